"""The page is one whole file that a browser opens without a network, at any width, light and dark."""

import os
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shiftprism import benchmark, report
from shiftprism.training import PRESETS


@pytest.fixture(scope="module")
def rows_and_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[benchmark.Row], Path]:
    short = replace(PRESETS["smoke"], epochs=2)
    rows, evidence = benchmark.digits(("vanilla", "alpha-beta"), (0, 1), short)
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.write_page(path, "A <title>", "What it is.", rows, evidence)
    return rows, path


class Reader(HTMLParser):
    """Collects tags, and fails on one that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(rows_and_page: tuple[list[benchmark.Row], Path]) -> None:
    text = rows_and_page[1].read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.tags.count("svg") == 4
    assert reader.tags.count("table") == 2
    assert all(link.startswith(("#", "data:")) for link in reader.links)
    assert not re.search(r"(src|href)=\"http|@import|url\(http", text)
    assert "A &lt;title&gt;" in text


def test_ids_do_not_repeat(rows_and_page: tuple[list[benchmark.Row], Path]) -> None:
    ids = re.findall(r'\bid="([^"]+)"', rows_and_page[1].read_text(encoding="utf-8"))
    assert ids
    assert len(ids) == len(set(ids))


def test_tables_hold_the_means_of_the_rows(rows_and_page: tuple[list[benchmark.Row], Path]) -> None:
    rows, _ = rows_and_page
    table = report.detection_table(rows)
    found = benchmark.summarise(rows)["alpha-beta", "motion_blur", 0, "u", "auroc"]
    (line,) = [line for line in table.body if line[:2] == ["alpha-beta", "u"]]
    assert line[4].removesuffix(" *") == f"{100 * found.mean:.1f} ± {100 * found.std:.1f}"
    table = report.calibration_table(rows)
    values = [
        row.value
        for row in rows
        if (row.model, row.kind, row.subject, row.metric) == ("vanilla", "covariate", "none", "nll")
    ]
    (line,) = [line for line in table.body if line[:3] == ["vanilla", "corrupted", "uncalibrated"]]
    assert line[5].startswith(f"{sum(values) / len(values):.3f} ± ")


def test_in_short_names_each_shift_and_its_best_score(rows_and_page: tuple[list[benchmark.Row], Path]) -> None:
    sentences = report.in_short(rows_and_page[0])
    assert len(sentences) == 4
    assert all("vanilla detects it best with" in sentence for sentence in sentences)


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None and "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    assert found, "chromium is not installed, and SHIFTPRISM_NO_SKIP forbids to skip"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_opens_the_page_offline(
    rows_and_page: tuple[list[benchmark.Row], Path], tmp_path: Path, scheme: str, width: int
) -> None:
    from playwright.sync_api import sync_playwright

    program, troubles = chromium(), []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(
            offline=True, viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("requestfailed", lambda request: troubles.append(request.url))
        page.goto(rows_and_page[1].as_uri())
        assert page.title() == "A <title>"
        assert page.locator("figure svg").count() == 4
        assert all(
            box is not None and box["height"] > 100 for box in (f.bounding_box() for f in page.locator("svg").all())
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page itself scrolls sideways"
        ink, paper = page.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        assert contrast(ink, paper) > 7
        page.keyboard.press("Tab")
        assert (
            page.evaluate("document.activeElement.getAttribute('role')") == "region"
        )  # wide tables scroll by keyboard
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        browser.close()
    assert troubles == []
    assert (tmp_path / "page.png").stat().st_size > 50_000


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two CSS colours, as WCAG defines it."""

    def luminance(colour: str) -> float:
        channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
