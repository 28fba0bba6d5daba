"""The page in a real browser: upload, verdict, dot, status, token; phone width, keyboard, dark mode, axe-core."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from serving_examples import Brightness, Running, made_picture, run_service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
TOKEN = "a-token-of-enough-length"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_service(tmp_path_factory.mktemp("page"), {"shapes": Brightness(), "second": Brightness()}) as service:
        yield service


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pictures")
    made = {"usual": made_picture(4), "bright": made_picture(1, brightness=170), "words": b"no picture"}
    for name, content in made.items():
        (folder / f"{name}.png").write_bytes(content)
    return {name: str(folder / f"{name}.png") for name in made}


def opened(browser: "Browser", port: int, width: int = 1280, scheme: str = "light") -> "tuple[Page, list[str]]":
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    outside = f"http://127.0.0.1:{port}/"
    page.on(
        "request", lambda request: None if request.url.startswith((outside, "blob:")) else troubles.append(request.url)
    )
    page.goto(outside)
    return page, troubles


def wait_until_ready(page: "Page") -> None:
    page.wait_for_selector("#takes:not(:empty)")


def test_an_image_gets_its_verdict_in_words_and_its_dot(
    browser: "Browser", running: Running, pictures: dict[str, str]
) -> None:
    page, troubles = opened(browser, running.client.port)
    wait_until_ready(page)
    assert page.locator("#plane .cloud").count() == 400
    page.set_input_files("#file", pictures["usual"])
    page.wait_for_selector(".answer .badge.in-distribution")
    assert "The image looks like the data that the model knows" in page.inner_text(".sentence")
    page.set_input_files("#file", pictures["bright"])
    page.wait_for_selector(".answer .badge.covariate")
    assert "the style of the image has shifted" in page.inner_text(".sentence")
    assert page.locator("#earlier li").count() == 1
    dot, cloud = page.locator("#plane rect.newest"), page.locator("#plane .cloud")
    assert dot.count() == 1
    left = min(float(each.get_attribute("cx") or "nan") for each in cloud.all())
    assert float(dot.get_attribute("x") or "nan") < left, "its style lies outside the cloud"
    assert "style has shifted" in page.inner_text("#plane-text")
    page.set_input_files("#file", pictures["words"])
    page.wait_for_selector("#trouble:not(:empty)")
    assert "no image format" in page.inner_text("#trouble")
    assert [line for line in troubles if "415" not in line] == []  # the browser itself notes the refused request
    page.context.close()


def test_pasted_and_dropped_images_are_answered(browser: "Browser", running: Running) -> None:
    page, troubles = opened(browser, running.client.port)
    wait_until_ready(page)
    for event, holder in (("paste", "clipboardData"), ("drop", "dataTransfer")):
        page.evaluate(
            """async ([bytes, kind, holder]) => {
                const transfer = new DataTransfer();
                transfer.items.add(new File([new Uint8Array(bytes)], "x.png", { type: "image/png" }));
                const event = holder === "clipboardData"
                    ? new ClipboardEvent(kind, { clipboardData: transfer, bubbles: true })
                    : new DragEvent(kind, { dataTransfer: transfer, bubbles: true });
                document.body.dispatchEvent(event);
            }""",
            [list(made_picture(7)), event, holder],
        )
        page.wait_for_selector(".answer")
        page.evaluate("document.getElementById('answer').replaceChildren()")
    assert troubles == []
    page.context.close()


def test_the_status_changes_while_the_page_is_open(browser: "Browser", tmp_path: Path) -> None:
    with run_service(tmp_path) as running:
        page, troubles = opened(browser, running.client.port)
        page.wait_for_selector("#level.ok")
        assert page.locator("#accuracy .change").count() == 0
        for first in range(0, 150, 50):
            running.client.predict(*[made_picture(seed) for seed in range(first, first + 50)])
        for first in range(0, 100, 50):
            running.client.predict(*[made_picture(seed, brightness=145) for seed in range(first, first + 50)])
        page.wait_for_selector("#level.alarm")
        assert "the style of the images has shifted" in page.inner_text("#status")
        page.wait_for_selector("#evidence line.change", state="attached")
        assert page.locator("#accuracy path.line").count() == 3
        assert "estimated right" in page.inner_text("#accuracy-text")
        assert troubles == []
        page.context.close()


def test_the_page_asks_for_a_token_and_forgets_it(browser: "Browser", tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"alice {TOKEN}\n")
    with run_service(tmp_path, tokens=str(tmp_path / "tokens")) as running:
        page, _ = opened(browser, running.client.port)
        page.wait_for_selector("#access:not([hidden])")
        assert page.evaluate("document.activeElement.id") == "token"
        page.keyboard.type("a-wrong-token")
        page.keyboard.press("Enter")
        page.wait_for_selector("#access-wrong:not(:empty)")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        wait_until_ready(page)
        assert not page.is_visible("#access")
        assert page.evaluate("Object.keys(localStorage).length") == 0
        assert page.evaluate("document.cookie") == ""
        other = page.context.new_page()  # another tab does not know it
        other.goto(f"http://127.0.0.1:{running.client.port}/")
        other.wait_for_selector("#access:not([hidden])")
        page.context.close()


def test_everything_works_by_keyboard(browser: "Browser", running: Running, pictures: dict[str, str]) -> None:
    page, _ = opened(browser, running.client.port)
    wait_until_ready(page)
    seen = []
    for _ in range(4):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert seen[:3] == ["model", "file", "camera"]
    page.focus("#file")
    outline = page.evaluate("getComputedStyle(document.querySelector('.button:focus-within')).outlineStyle")
    assert outline == "solid"
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Space")
    chooser.value.set_files(pictures["usual"])
    page.wait_for_selector(".answer select")
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SELECT"
    page.keyboard.type("bright")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".truth:has-text('Thank you')")
    page.context.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_finding_of_axe_and_no_sideways_scrolling(
    browser: "Browser", running: Running, pictures: dict[str, str], axe: str, width: int, scheme: str
) -> None:
    page, troubles = opened(browser, running.client.port, width, scheme)
    wait_until_ready(page)
    page.set_input_files("#file", [pictures["usual"], pictures["bright"]])
    page.wait_for_selector(".answer")
    page.wait_for_selector("#level.ok, #level.alarm, #level.warning")
    for path in ("/", "/docs"):
        if path == "/docs":
            page.goto(f"http://127.0.0.1:{running.client.port}/docs")
        page.evaluate(axe)
        found = page.evaluate("axe.run()")["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert serious == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert troubles == []
    page.context.close()
