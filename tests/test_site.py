"""The documentation site in a real browser, as `make docs` built it: pages of each kind, in both themes, offline."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow
SITE = Path(__file__).resolve().parents[1] / "site"
SAMPLE = (
    "index",
    "404",
    "guides/decide",
    "guides/onnx",
    "detector",
    "style",
    "changelog",
    "api/scores",
    "results/index",
)
"""A page takes seconds. SHIFTPRISM_ALL_PAGES=1 opens every one."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_finding_of_axe(browser: "Browser", axe: str, scheme: str) -> None:
    if not SITE.is_dir() and "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.skip("the site is not built: make docs")
    everything = "SHIFTPRISM_ALL_PAGES" in os.environ
    paths = sorted(SITE.rglob("*.html")) if everything else [SITE / f"{name}.html" for name in SAMPLE]
    assert all(path.is_file() for path in paths), "make docs comes first, and SHIFTPRISM_NO_SKIP forbids to skip"
    context = browser.new_context(offline=True, color_scheme="dark" if scheme == "dark" else "light")
    page = context.new_page()
    page.set_default_timeout(60_000)
    found = []
    for path in paths:
        page.goto(path.as_uri())
        page.evaluate(axe)
        for one in page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]:
            if one["impact"] in ("serious", "critical"):
                places = [" ".join(node["target"]) for node in one["nodes"]]
                found.append(f"{path.relative_to(SITE)}: {one['id']}: {places}")
    context.close()
    assert not found, "\n".join(found)
