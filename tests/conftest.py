"""Settings all tests share."""

import os

import pytest
import torch
from hypothesis import settings

from exported import Exported, export_digits

# Small tensors gain nothing from threads, and on a busy machine they wait for one another.
torch.set_num_threads(1)
# A deadline would be a timed test; a fixed seed makes a failure on one machine a failure on all.
settings.register_profile("shiftprism", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("shiftprism")
os.environ.setdefault("COLUMNS", "120")  # what `--help` prints should not depend on the terminal


@pytest.fixture(scope="session")
def exported_digits(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A detector of digits and its ONNX file."""
    return export_digits(tmp_path_factory.mktemp("exported"))
