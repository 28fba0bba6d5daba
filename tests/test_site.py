"""The documentation site in a real browser, as `make docs` has built it: every page, in both themes, offline."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow
SITE = Path(__file__).resolve().parents[1] / "site"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_finding_of_axe(browser: "Browser", axe: str, scheme: str) -> None:
    paths = sorted(SITE.rglob("*.html"))
    if not paths and "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.skip("the site is not built: make docs")
    assert len(paths) > 50, "make docs comes first, and SHIFTPRISM_NO_SKIP forbids to skip"
    context = browser.new_context(offline=True, color_scheme="dark" if scheme == "dark" else "light")
    page = context.new_page()
    page.set_default_timeout(60_000)
    found = []
    for path in paths:
        page.goto(path.as_uri())
        page.evaluate(axe)
        violations = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        for one in violations:
            if one["impact"] in ("serious", "critical"):
                places = [" ".join(node["target"]) for node in one["nodes"]]
                found.append(f"{path.relative_to(SITE)}: {one['id']}: {places[:3]} and {len(places)} in all")
    context.close()
    assert found == []
