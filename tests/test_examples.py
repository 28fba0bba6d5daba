"""The examples run an exported file without shiftprism: plain onnxruntime, and a page in a browser."""

import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

from exported import Exported

EXAMPLES = Path(__file__).parent.parent / "examples"
ROWS = (3, 150, 250, 399)


def write_images(made: Exported, folder: Path) -> list[Path]:
    """Clean and noisy digits as files."""
    paths = [folder / f"{row}.png" for row in ROWS]
    for row, path in zip(ROWS, paths, strict=True):
        Image.fromarray(made.images[row, 0].numpy()).save(path)
    return paths


def test_fifteen_lines_of_onnxruntime_say_what_the_detector_says(exported_digits: Exported, tmp_path: Path) -> None:
    paths = write_images(exported_digits, tmp_path)
    script = EXAMPLES / "onnx_score.py"
    code = f"""
import sys
sys.modules.update(dict.fromkeys(("torch", "shiftprism", "onnx")))  # an import of them fails from here on
exec(compile(open({str(script)!r}).read(), "onnx_score.py", "exec"))
"""
    words = [sys.executable, "-c", code, str(exported_digits.path), *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdicts = exported_digits.detector(exported_digits.images[list(ROWS)])
    for line, path, one in zip(done.stdout.splitlines(), paths, verdicts, strict=True):
        assert line == f"{path}: {one.name} ({one.confidence:.0%}), {one.kind} (p = {one.p_combined:.2g})"
    body = script.read_text(encoding="utf-8").split('"""')[2].splitlines()
    assert sum(bool(line.strip()) and not line.startswith(("import", "from")) for line in body) <= 15


@pytest.mark.slow
def test_the_page_judges_images_in_a_browser(exported_digits: Exported, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    page_folder = EXAMPLES / "browser"
    if (program is None or not (page_folder / "node_modules").exists()) and "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.skip("this needs chromium, and onnxruntime-web: make examples/browser/node_modules")
    assert program, "chromium is not installed, and SHIFTPRISM_NO_SKIP forbids to skip"
    paths = write_images(exported_digits, tmp_path)
    bare = tmp_path / "bare.onnx"
    bare.write_bytes(b"\x08\x0a")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(page_folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    own = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page()
            troubles: list[str] = []
            asked: list[str] = []
            page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            page.goto(own)
            page.set_input_files("#model", bare)
            page.wait_for_function("document.querySelector('#status').textContent.startsWith('Not opened')")
            page.set_input_files("#model", exported_digits.path)
            page.wait_for_function("document.querySelector('#status').textContent.includes('classes')", timeout=120_000)
            page.set_input_files("#images", paths)
            page.wait_for_function("document.querySelector('#status').textContent.includes('judged')", timeout=120_000)
            rows = [row.locator("td").all_text_contents() for row in page.locator("tbody tr").all()]
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    verdicts = exported_digits.detector(exported_digits.images[list(ROWS)])
    assert [row[1] for row in rows] == [one.name for one in verdicts]
    assert [row[3] for row in rows] == [one.kind for one in verdicts]
    rank = 1.1 / (len(exported_digits.detector.held.style) + 1)
    for row, one in zip(rows, verdicts, strict=True):
        assert float(row[6]) == pytest.approx(
            one.p_combined, abs=rank
        )  # WebAssembly rounds otherwise: one rank at most
    assert troubles == []
    assert [url for url in asked if not url.startswith((own, "data:", "blob:"))] == []
