"""Settings all tests share."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from exported import Exported, export_digits
from postgres import Server, run_server

# Small tensors gain nothing from threads, and on a busy machine they wait for one another.
torch.set_num_threads(1)
# A deadline would be a timed test; a fixed seed makes a failure on one machine a failure on all.
settings.register_profile("shiftprism", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("shiftprism")
os.environ.setdefault("COLUMNS", "120")  # what `--help` prints should not depend on the terminal


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server, started once. A test takes a database of its own; one that kills it starts it again."""
    with run_server() as server:
        yield server


@pytest.fixture(scope="session")
def exported_digits(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A detector of digits and its ONNX file."""
    return export_digits(tmp_path_factory.mktemp("exported"))
