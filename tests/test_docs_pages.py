"""Every page of the repository: its links lead somewhere, and the site shows it."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from scripts import load_script

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"), (ROOT / "results", "*.md"))
    for path in folder.glob(pattern)
)


@pytest.fixture(scope="module")
def site() -> ModuleType:
    return load_script(ROOT / "tools" / "build_site.py")


def anchors(path: Path, site: ModuleType) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them: lower case, words joined, no punctuation."""
    text = site.CODE.sub(lambda code: code[0] if "\n" not in code[0] else "", path.read_text(encoding="utf-8"))
    headings = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", one) for one in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in headings}


def dead_links(path: Path, site: ModuleType) -> list[str]:
    dead = []
    for link in site.find_links(path.read_text(encoding="utf-8")):
        if link["target"].startswith(("http://", "https://", "mailto:")):
            continue
        target = (path.parent / link["target"]).resolve() if link["target"] else path
        anchor = (link["anchor"] or "#")[1:]
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target, site)):
            dead.append(f"{path.name}: {link[0]}")
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path, site: ModuleType) -> None:
    assert dead_links(page, site) == []


def test_the_readme_is_short_and_names_both_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    assert "make demo" in text
    assert "make test" in text


def test_a_dead_link_is_seen_and_code_is_none(tmp_path: Path, site: ModuleType) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n[here](#a-title) [no](#b) ![x](no.png) `[a](b)`\n\n```\n[c](d)\n```\n[e](page.md#a-title)\n"
    )
    assert dead_links(page, site) == ["page.md: [no](#b)", "page.md: [x](no.png)"]


def test_links_are_moved_to_the_places_of_the_site(site: ModuleType) -> None:
    files = {ROOT / "docs/paper.md": Path("paper.md"), ROOT / "results/README.md": Path("results/index.md")}
    moved = site.move_links("[r](../results/README.md#in-short) [w](https://x.y)", ROOT / "docs/paper.md", files)
    assert moved == "[r](results/index.md#in-short) [w](https://x.y)"
    back = site.move_links("[p](../docs/paper.md) `[p](../docs/paper.md)`", ROOT / "results/README.md", files)
    assert back == "[p](../paper.md) `[p](../docs/paper.md)`"
    assert (
        site.move_links("see [the code](../src/x.py), [a](#b)", ROOT / "docs/paper.md", files)
        == "see the code, [a](#b)"
    )


def test_the_site_has_every_page_and_every_room(site: ModuleType, tmp_path: Path) -> None:
    """Pages are staged with links that lead somewhere, and each is in the menu; the API has all rooms."""
    config = site.stage(tmp_path / "build")
    text = config.read_text(encoding="utf-8")
    pages = tmp_path / "build" / "pages"
    missing = [path for path in pages.rglob("*.md") if f'"{path.relative_to(pages).as_posix()}"' not in text]
    assert missing == []
    rooms = {path.stem for path in (pages / "api").glob("*.md")}
    assert {"classifier", "outputs", "runtime", "scores", "serving", "verdicts"} <= rooms
    assert "cli" not in rooms
    assert "- auroc\n" in (pages / "api" / "metrics.md").read_text(encoding="utf-8")
    for path in pages.rglob("*.md"):
        own = [link["target"] for link in site.find_links(path.read_text(encoding="utf-8"))]
        inner = [one for one in own if one and not one.startswith(("http", "mailto"))]
        assert [one for one in inner if not (path.parent / one).exists()] == [], path.name
