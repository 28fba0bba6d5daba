"""A browser opens the page offline: any width, light and dark, by keyboard, without a word on its console."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outputs_examples import publish_example
from rows_examples import made_results
from shiftprism import report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a benchmark, and that of a small study whose outputs are not stored."""
    folder = tmp_path_factory.mktemp("pages")
    publish_example(folder / "benchmark")
    models, shifts = ("vanilla", "alpha-beta"), ("clean", "fog", "corrupted", "svhn")
    report.publish(folder / "study", made_results(2, "a <title>").where(model=models, shift=shifts), lead="What it is.")
    return {name: folder / name / "report.html" for name in ("benchmark", "study")}


def opened(browser: "Browser", path: Path, width: int = 1280, scheme: str = "light", scripts: bool = True) -> "Page":
    context = browser.new_context(
        offline=True,
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=scripts,
    )
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("requestfailed", lambda request: troubles.append(request.url))
    page.goto(path.as_uri())
    assert troubles == []
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["benchmark", "study"])
def test_the_page_reads_at_every_width(
    browser: "Browser", pages: dict[str, Path], tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    page = opened(browser, pages[name], width, scheme)
    drawings = page.locator("figure svg").all()
    assert len(drawings) == (13 if name == "benchmark" else 4)
    assert all(box is not None and box["height"] > 100 for box in (each.bounding_box() for each in drawings))
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page itself scrolls sideways"
    claimed = (".verdict", ".place") if name == "benchmark" else ()  # the paper claims nothing about other data
    for place in ("body", ".lead", "section p", "a", "svg text", *claimed):
        colours = "e => [getComputedStyle(e).color, getComputedStyle(document.body).backgroundColor]"
        assert contrast(*page.locator(place).first.evaluate(colours)) > 4.5, place
    room = page.locator("main").bounding_box()["width"]  # type: ignore[index]
    assert all(box is not None and box["width"] > 0.9 * min(room, 1000) for box in (d.bounding_box() for d in drawings))
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 50_000


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_cut_without_a_word(browser: "Browser", pages: dict[str, Path], width: int) -> None:
    """What scrolls sideways says so, and nothing scrolls downwards: every row of a table is on the page."""
    page = opened(browser, pages["benchmark"], width)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    page.wait_for_timeout(200)
    cut = """() => [...document.querySelectorAll('.wide, figure')].map(each => [
        each.scrollWidth > each.clientWidth + 1,
        getComputedStyle(each, '::before').content.includes('scroll sideways'),
        each.scrollHeight > each.clientHeight + 1])"""
    found = page.evaluate(cut)
    assert [one[0] for one in found] == [one[1] for one in found]
    assert not any(one[2] for one in found)
    assert width > 390 or any(one[0] for one in found)
    shadows = page.locator(".wide").first.evaluate("each => getComputedStyle(each).backgroundAttachment")
    assert shadows == "local, local, scroll, scroll"  # the cue without scripts


def test_a_column_is_sorted_by_keyboard(browser: "Browser", pages: dict[str, Path]) -> None:
    page = opened(browser, pages["study"])
    table = page.locator("#does-it-detect table").first
    column = table.locator("thead th").nth(2)

    def values() -> list[float]:
        cells = table.locator("tbody tr td:nth-child(3)")
        return [float(value) for value in cells.evaluate_all("found => found.map(cell => cell.dataset.value)")]

    def press_tab_until(place: str) -> None:
        for _ in range(99):
            page.keyboard.press("Tab")
            if page.evaluate("place => document.activeElement === document.querySelector(place)", place):
                return
        raise AssertionError(f"Tab does not reach {place}")

    before = values()
    assert before not in (sorted(before), sorted(before, reverse=True))
    press_tab_until("#does-it-detect .wide")  # a wide table scrolls by keyboard
    press_tab_until("#does-it-detect table thead th:nth-child(3) button")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for key, order in (("Enter", "descending"), ("Space", "ascending")):
        page.keyboard.press(key)
        assert column.get_attribute("aria-sort") == order
        assert values() == sorted(before, reverse=order == "descending")
    table.locator("thead th").first.locator("button").click()
    assert column.get_attribute("aria-sort") is None
    names = table.locator("tbody tr th:first-child").all_text_contents()
    assert names == sorted(names)


def test_unmeasured_cells_sort_last(browser: "Browser", pages: dict[str, Path], tmp_path: Path) -> None:
    from shiftprism.report._page import Section, page, table

    body = [
        [report.Cell(name), report.Cell(name, mean=mean)] for name, mean in (("b", 2), ("?", float("nan")), ("c", 10))
    ]
    (tmp_path / "page.html").write_text(
        page("t", "", [Section("s", table(report.Table("t", "", ["n", "v"], body, 1)))])
    )
    found = opened(browser, tmp_path / "page.html")
    for wanted in (["c", "b", "?"], ["b", "c", "?"]):
        found.locator("th button").nth(1).click()
        assert found.locator("tbody th").all_text_contents() == wanted


def test_claims_open_by_keyboard_and_links_lead_to_sections(browser: "Browser", pages: dict[str, Path]) -> None:
    page = opened(browser, pages["benchmark"], 390)
    evidence = page.locator(".claims li").first.locator("table")
    assert not evidence.is_visible()
    page.locator(".claims summary").first.focus()
    page.keyboard.press("Enter")
    assert evidence.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("nav a").last.click()
    assert page.locator("#how-was-this-made").bounding_box()["y"] < 900  # type: ignore[index]


def test_without_scripts_the_page_still_reads(browser: "Browser", pages: dict[str, Path]) -> None:
    page = opened(browser, pages["benchmark"], scripts=False)
    assert page.locator("th button").count() == 0
    assert page.locator("section").count() == 6
    assert page.locator("tbody tr").count() > 20


def test_a_script_smuggled_into_a_figure_does_not_run(
    browser: "Browser", pages: dict[str, Path], tmp_path: Path
) -> None:
    text = (
        pages["study"].read_text(encoding="utf-8").replace("</svg>", "<script>document.title = 'x'</script></svg>", 1)
    )
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.title() == "ShiftPrism on a <title>"
    assert any("Content Security Policy" in message for message in refused)


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two CSS colours, as WCAG defines it."""

    def luminance(colour: str) -> float:
        channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
