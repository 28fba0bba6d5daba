"""What is published in results/ and said in README.md is what the published rows say."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from rows_examples import made_results, row
from scripts import load_script
from shiftprism import claims, report
from shiftprism.heads import Geometric
from shiftprism.outputs import Outputs
from shiftprism.rows import Results, ResultsFolder
from shiftprism.training import PRESETS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def publish() -> ModuleType:
    return load_script(ROOT / "tools/publish.py")


@pytest.fixture(scope="module")
def parts(publish: ModuleType) -> dict[str, Callable[[], str]]:
    made: dict[str, Callable[[], str]] = publish.make_blocks()
    return made


@pytest.mark.parametrize(
    "name",
    [
        *("README.md", "docs/findings.md", "docs/style.md", "docs/training.md"),
        *("results/README.md", "results/short.md", "results/images.md", "results/peers.md"),
    ],
)
def test_a_text_says_what_the_rows_say(publish: ModuleType, parts: dict[str, Callable[[], str]], name: str) -> None:
    assert ROOT / name in publish.TEXTS
    text = (ROOT / name).read_text(encoding="utf-8")
    assert publish.BLOCK.search(text)
    assert publish.renew(text, parts) == text, "run python tools/publish.py"


def test_a_number_changed_by_hand_is_noticed(publish: ModuleType, parts: dict[str, Callable[[], str]]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = publish.BLOCK.search(text)
    number = re.search(r"\d+\.\d", block[0])
    assert number is not None
    forged = text.replace(block[0], block[0].replace(number[0], "12.3", 1))
    assert forged != text
    assert publish.renew(forged, parts) == text


@pytest.mark.slow
def test_tables_and_judgements_are_those_of_the_rows(published_rows: Results) -> None:
    tables = report.make_tables(published_rows)
    for kind, (write, ending) in report.FORMATS.items():
        stored = {path.stem: path.read_text(encoding="utf-8") for path in (RESULTS / "tables").glob(f"*.{ending}")}
        assert stored == {name: write(one) for name, one in tables.items()}, kind
    found = claims.judge(published_rows)
    assert (RESULTS / "claims.json").read_text(encoding="utf-8") == claims.to_json(found)


def test_every_row_says_where_it_comes_from(published_rows: Results) -> None:
    for one in published_rows.rows:
        assert one.versions
        assert one.commit
        assert one.weights or one.model == "pixels"


def test_results_are_small_and_text() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".csv", ".json", ".jsonl", ".md", ".svg", ".tex", ".txt"}
    assert sum(path.stat().st_size for path in files) < 25e6


def test_pages_point_to_what_is_there() -> None:
    for page in (ROOT / "README.md", RESULTS / "README.md"):
        for link in re.findall(r"\]\(([^)#]+)[#)]", page.read_text(encoding="utf-8")):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_table_of_peers_is_that_of_the_raw_output(publish: ModuleType) -> None:
    text = (RESULTS / "peers.md").read_text(encoding="utf-8")
    printed = text.partition("## `speed/peers.py`")[2]
    lines = publish.peers(text).splitlines()
    assert all(f"{line}\n" in printed for line in (*lines[:2], *lines[3:]))
    assert re.match(r"\| packages .* \| 29 \| 4 \| 54 \| 11 \|", lines[2])
    assert "Mahalanobis fit, 10,000 × 512, 100 classes | 9 |" in publish.peers(
        re.sub(r"(Mahalanobis fit, 10,000 × 512, 100 classes \| )[^|]+", r"\g<1>9 ", text)
    )


def grid(folder: Path, results: Results, **changed: object) -> ResultsFolder:
    results.write(folder)
    names = ("suite", "preset", "settings", "images", "corrupted_images", "corruptions", "scores", "calibrators")
    plan = dict.fromkeys(names, "same")
    asked = {"plan": plan | {"models": {"vanilla": 1}} | changed, "command": "shiftprism …", "earlier": []}
    (folder / "suite.json").write_text(json.dumps(asked))
    return ResultsFolder(folder)


def test_grids_that_do_not_belong_together_are_refused(publish: ModuleType, tmp_path: Path) -> None:
    one, other = made_results(1), made_results(1, "cifar100")
    grids = [grid(tmp_path / "a", one), grid(tmp_path / "b", other)]
    assert len(publish.merge(grids).rows) == len(one.rows) + len(other.rows)
    pixels = Results.without_resamples([row("pixels", "svhn", 0, "histogram", "distance", 0.1)])
    pair = [grid(tmp_path / str(number), Results.concat([part, pixels])) for number, part in enumerate((one, other))]
    assert len(publish.merge(pair).rows) == len(one.rows) + len(other.rows) + 1
    with pytest.raises(SystemExit, match=r"is in .*a and in .*c"):
        publish.merge([grids[0], grid(tmp_path / "c", one)])
    with pytest.raises(SystemExit, match="different images"):
        publish.merge([grids[0], grid(tmp_path / "d", other, images=500)])


def test_a_network_that_was_measured_again_replaces_its_published_rows(publish: ModuleType, tmp_path: Path) -> None:
    def accuracies(*seeds: int, value: float = 0.9, n: int = 100) -> Results:
        rows = [row("vanilla", "clean", 0, "none", "accuracy", value, seed=seed, n=n) for seed in seeds]
        return Results.without_resamples(rows)

    folder = tmp_path / "published"
    first, second = grid(tmp_path / "a", accuracies(0, 1)), grid(tmp_path / "b", accuracies(1, 2, value=0.8))
    publish.write_rows(folder, [first])
    (folder / "figures").mkdir()
    (folder / "figures" / "kept.svg").write_text("<svg/>")
    publish.write_rows(folder, [second], add=True)
    found = {one.seed: one.value for one in Results.read(folder).rows}
    assert found == {0: 0.9, 1: 0.8, 2: 0.8}
    assert (folder / "figures" / "kept.svg").exists()
    assert (folder / "commands.txt").read_text().count("shiftprism …") == 1  # the two grids have the same command
    with pytest.raises(SystemExit, match="50 images of vanilla, but 100 in"):
        publish.write_rows(folder, [grid(tmp_path / "c", accuracies(3, n=50))], add=True)


def test_a_network_with_the_same_weights_keeps_what_was_not_measured_again(publish: ModuleType, tmp_path: Path) -> None:
    def scores(value: float, weights: str, *names: str) -> Results:
        rows = [replace(row("vanilla", "svhn", 0, name, "auroc", value), weights=weights) for name in names]
        return Results.without_resamples(rows)

    def values() -> dict[str, float]:
        return {one.subject: one.value for one in Results.read(folder).rows}

    folder = tmp_path / "published"
    publish.write_rows(folder, [grid(tmp_path / "a", scores(0.9, "first", "u", "vim"))])
    publish.write_rows(folder, [grid(tmp_path / "b", scores(0.8, "first", "u", "knn"))], add=True)
    assert values() == {"vim": 0.9, "u": 0.8, "knn": 0.8}
    publish.write_rows(folder, [grid(tmp_path / "c", scores(0.7, "second", "u"))], add=True)
    assert values() == {"u": 0.7}


def test_seconds_of_another_machine_are_left_out(publish: ModuleType, tmp_path: Path) -> None:
    rows = [row("vanilla", "clean", 0, "training", name, 600.0) for name in ("seconds", "parameters")]
    one = grid(tmp_path / "a", Results.without_resamples(rows))
    for timed, expected in ((True, ["seconds", "parameters"]), (False, ["parameters"])):
        publish.write_rows(tmp_path / str(timed), [one], timed=timed)
        assert [found.metric for found in Results.read(tmp_path / str(timed)).rows] == expected


def test_of_checkpoints_the_aurocs_on_whole_sets_are_kept(publish: ModuleType, tmp_path: Path) -> None:
    def checkpoints(model: str, value: float) -> Results:
        rows = [row(f"{model}@{epoch}", "svhn", value=value + epoch / 1000, kind="both") for epoch in (5, 10)]
        rows += [row(f"{model}@5", "fog", 3, value=0.1), row(f"{model}@5", "svhn", metric="tnr_at_tpr95", value=0.2)]
        return Results.without_resamples(rows)

    folder = tmp_path / "epochs"
    publish.write_part(folder, [grid(tmp_path / "a", checkpoints("vanilla-long", 0.8))])
    publish.write_part(folder, [grid(tmp_path / "b", checkpoints("alpha-beta-long", 0.9))])
    found = {one.model: one.value for one in Results.read(folder).rows}
    first = {"vanilla-long@5": 0.805, "vanilla-long@10": 0.81}
    assert found == pytest.approx(first | {"alpha-beta-long@5": 0.905, "alpha-beta-long@10": 0.91})
    (axis,) = publish.draw_epochs(Results.read(folder)).axes
    assert {line.get_label() for line in axis.get_lines()} >= {"U, vanilla", "U, α-β"}


def test_a_command_names_no_folder_of_one_machine(publish: ModuleType, tmp_path: Path) -> None:
    words = "shiftprism benchmark --runs ab@5=/home/me/runs/ab/5 --config /tmp/p.toml --out /tmp/my-grid/"
    folder = grid(tmp_path, made_results(1), settings={"precision": "bfloat16"})
    asked = folder.read_suite()
    folder.suite.write_text(json.dumps(asked | {"command": words, "earlier": ["shiftprism --out /a/b"]}))
    expected = "shiftprism benchmark --runs ab@5=5 --config p.toml --out my-grid"
    told = "   # in the config: {'precision': 'bfloat16'}"
    assert publish.list_commands(folder) == ["shiftprism --out b" + told, expected + told]


def test_the_training_of_a_run_is_among_the_commands(publish: ModuleType, tmp_path: Path) -> None:
    """With the flags in which it differs from the nearest preset; a run that is gone has no such line."""
    run = tmp_path / "ddu-3"
    run.mkdir()
    names = {"data": "cifar10", "backbone": "fast-ddu", "head": "vanilla"}
    settings = names | asdict(replace(PRESETS["laptop-robust"], rate=0.2, flip=False, held_out=0.2, seed=3))
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
    (run / "config.toml").write_text("".join(lines))
    folder = grid(tmp_path / "grid", made_results(1), settings={}, runs=[f"ddu={run}", f"vanilla={tmp_path / 'gone'}"])
    start = "shiftprism train --data cifar10 --backbone fast-ddu --head vanilla --preset laptop-robust"
    trained = f"{start} --rate 0.2 --no-flip --held-out 0.2 --seed 3 --out ddu-3"
    assert publish.list_commands(folder) == [trained, "shiftprism …"]


@pytest.mark.slow
def test_a_grid_of_the_papers_protocol_is_published_without_hands(publish: ModuleType, tmp_path: Path) -> None:
    """`--preset paper` holds nothing out, so its rows have another protocol than those of results/."""
    made = made_results(2)
    paper = Results([replace(one, protocol=one.protocol and "paper") for one in made.rows], made.resamples)
    publish.publish_apart(tmp_path / "out", [grid(tmp_path / "a", paper)])
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "| cifar10 | small | alpha-beta | paper | 2 |" in text
    assert claims.count_judgements(claims.judge(paper)).split(",")[0] in text  # so many hold
    assert "### cifar10 (paper protocol): AUROC, near and far" in text
    assert "### cifar10 (paper protocol): calibration" in text
    assert "| order | seeds to add |" in text
    there = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"rows.jsonl", "commands.txt", "claims.json", "tables", "figures", "report.html", "README.md"} <= there
    values = sorted(one.value for one in Results.read(tmp_path / "out").rows)  # their order is the file's own
    assert values == pytest.approx(sorted(one.value for one in paper.rows), rel=1e-5)


class Net(nn.Module):
    """Somebody's network: 512 features and a last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 512), nn.ReLU())
        self.fc: nn.Module = nn.Linear(512, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.body(images))
        return logits


def test_the_python_of_readme_and_start_page_runs() -> None:
    torch.manual_seed(0)
    images, labels = (torch.rand(60, 3, 8, 8) * 255).to(torch.uint8), torch.arange(60) % 10
    model = Net()
    before = model.fc
    names: dict[str, object] = {"model": model, "images": images, "mean": [0.5] * 3, "std": [0.2] * 3, "labels": labels}
    names["new_images"] = images
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/index.md")]
    five, first, second = re.findall(r"```python\n(.*?)```", "\n".join(pages), re.DOTALL)
    exec(five, names)
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
