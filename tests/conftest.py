"""Settings all tests share."""

import gc
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# Small tensors gain nothing from threads. Where several test processes share the cores, threads that wait for one
# another spin, and everything takes several times as long. Set before NumPy reads it, and for processes of tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("COLUMNS", "120")  # what `--help` prints should not depend on the terminal

import pytest
import torch
from hypothesis import settings
from threadpoolctl import threadpool_limits

from exported import Exported, export_digits
from postgres import Server, run_server
from shiftprism import claims
from shiftprism.rows import Results

if TYPE_CHECKING:
    from playwright.sync_api import Browser

threadpool_limits(1)  # of NumPy's library too, if a plugin has imported it before
torch.set_num_threads(1)
# A deadline would be a timed test; a fixed seed makes a failure on one machine a failure on all.
settings.register_profile("shiftprism", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("shiftprism")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported stays until the end: the garbage collector need not look at it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A test that has changed torch's threads changes them for itself alone."""
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def published_rows() -> Results:
    """All rows of results/, read once."""
    return Results.read(Path(__file__).parents[1] / "results")


@pytest.fixture(scope="session")
def held_out_rows(published_rows: Results) -> Results:
    """Those that the texts are about: of networks some of whose training images were held out."""
    return published_rows.where(protocol=("held-out", ""))


@pytest.fixture(scope="session")
def published_findings(held_out_rows: Results) -> list[claims.Finding]:
    """The paper's claims judged by them."""
    return claims.judge(held_out_rows)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server, started once. A test takes a database of its own; one that kills it starts it again."""
    with run_server() as server:
        yield server


@pytest.fixture(scope="session")
def exported_digits(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A detector of digits and its ONNX file; do not change them."""
    for name in ("onnxruntime", "onnxscript"):
        pytest.importorskip(name, reason='pip install "shiftprism[onnx]"')
    return export_digits(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium, for one file of tests: a playwright that stayed open would disturb tests of asyncio."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None and "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    assert found, "chromium is not installed, and SHIFTPRISM_NO_SKIP forbids to skip"
    with sync_playwright() as playwright:
        program = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield program
        program.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core's source, from npm; it is a tool for this test and no part of the package."""
    folder = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None and "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.skip("no npm on this machine: apt-get install npm")
    assert npm, "npm is not installed, and SHIFTPRISM_NO_SKIP forbids to skip"
    packed = subprocess.run(
        [npm, "pack", "--silent", "axe-core@4.14.0"], cwd=folder, capture_output=True, text=True, check=False
    )
    if packed.returncode and "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.skip("axe-core is not to be had from npm here")
    assert packed.returncode == 0, packed.stderr
    subprocess.run(["tar", "xzf", packed.stdout.split()[-1], "package/axe.min.js"], cwd=folder, check=True)
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8")
