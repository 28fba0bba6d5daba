"""What is published in results/ and said in README.md is what the published rows say."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from shiftprism import claims, report
from shiftprism.benchmark import Results
from shiftprism.heads import Geometric
from shiftprism.outputs import Outputs

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def publish() -> ModuleType:
    spec = importlib.util.spec_from_file_location("publish", ROOT / "benchmarks/publish.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.read(RESULTS)


@pytest.mark.parametrize("name", ["README.md", "results/README.md"])
def test_a_text_says_what_the_rows_say(publish: ModuleType, name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert publish.BLOCK.search(text)
    assert publish.renewed(text, publish.parts(RESULTS)) == text, "run python benchmarks/publish.py"


def test_a_number_changed_by_hand_is_noticed(publish: ModuleType) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = publish.parts(RESULTS)
    block = publish.BLOCK.search(text)
    number = re.search(r"\d+\.\d", block[0])
    assert number is not None
    forged = text.replace(block[0], block[0].replace(number[0], "12.3", 1))
    assert forged != text
    assert publish.renewed(forged, made) == text


def test_tables_and_verdicts_are_those_of_the_rows(results: Results) -> None:
    tables = report.paper_tables(results)
    for kind, (write, ending) in report.FORMATS.items():
        stored = {path.stem: path.read_text(encoding="utf-8") for path in (RESULTS / "tables").glob(f"*.{ending}")}
        assert stored == {name: write(one) for name, one in tables.items()}, kind
    found = claims.judge(results)
    assert (RESULTS / "claims.json").read_text(encoding="utf-8") == claims.as_json(found)


def test_every_row_says_where_it_comes_from(results: Results) -> None:
    for row in results.rows:
        assert row.versions
        assert row.commit
        assert row.weights or row.model == "pixels"


def test_results_are_small_and_text() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".csv", ".json", ".jsonl", ".md", ".svg", ".tex", ".txt"}
    assert sum(path.stat().st_size for path in files) < 20e6


def test_pages_point_to_what_is_there() -> None:
    for page in (ROOT / "README.md", RESULTS / "README.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"


class Net(nn.Module):
    """Somebody's network: 512 features and a last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 512), nn.ReLU())
        self.fc: nn.Module = nn.Linear(512, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.body(images))
        return logits


def test_the_readmes_python_runs() -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(60, 3, 8, 8), torch.arange(60) % 10
    model = Net()
    before = model.fc
    names: dict[str, object] = {"model": model, "images": images, "mean": [0.5] * 3, "std": [0.2] * 3, "labels": labels}
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(first, names)
    for name in ("g", "h", "u"):
        values = names[name]
        assert isinstance(values, Tensor)
        assert values.shape == (60,)
    assert model.fc is before
    names["validation_outputs"] = names["outputs"]
    exec(second, names)
    logits, outputs = names["logits"], names["outputs"]
    assert isinstance(logits, Tensor)
    assert isinstance(outputs, Outputs)
    assert torch.equal(logits.argmax(1), outputs.predictions)
    assert isinstance(model.fc, Geometric)
