"""The tables in the docs are those of the registries."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "docs_tables.py"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_tables", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_show_the_registries(tables: ModuleType) -> None:
    tables.main(check=True)


def test_a_page_that_differs_is_named_and_can_be_refreshed(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "TABLES", {"page.md": {"x": lambda: tables.to_markdown([("name", "b"), ("|a|", "")])}})
    with pytest.raises(SystemExit, match=r"page\.md differ from the registries; run: python tools/docs_tables\.py"):
        tables.main(check=True)
    tables.main(check=False)
    table = "| name | b |\n| --- | --- |\n| `\\|a\\|` | |"
    assert page.read_text() == f"before\n<!-- x -->\n\n{table}\n\n<!-- end -->\nafter\n"
    tables.main(check=True)


def test_a_missing_marker_is_an_error(tables: ModuleType) -> None:
    with pytest.raises(ValueError, match="the page has no <!-- x --> … <!-- end -->"):
        tables.refresh("<!-- x --> and no end", "x", "table")
