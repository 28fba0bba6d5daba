"""The grid: whole, resumed after a kill, mended after damage, refused where settings differ, on many processes."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shiftprism import Classifier
from shiftprism.benchmark import Plan, _study, study
from shiftprism.benchmark._cells import run_cell
from shiftprism.benchmark._grid import Cell, list_cells
from shiftprism.benchmark._study import _record_plan
from shiftprism.benchmark._suites import in_distribution, list_shifts, photographs, split_by_mean_image
from shiftprism.calibrators import Temperature, cross_validate
from shiftprism.datasets import Dataset, load
from shiftprism.metrics import ece, nll
from shiftprism.outputs import Outputs
from shiftprism.plots import read_model_outputs
from shiftprism.rows import Results, ResultsFolder, Row, set_file
from shiftprism.scores import SCORES

SMALL: dict[str, Any] = {
    "models": ("vanilla:2", "alpha-beta", "ensemble"),
    "seeds": 1,
    "scores": ("g", "u", "msp", "energy", "knn", "fisher"),
    "calibrators": ("temperature", "alpha-beta"),
    "corruptions": ("motion_blur",),
    "settings": {"epochs": 2},
}


def small(**changes: Any) -> Plan:
    return Plan(suite="digits", **(SMALL | changes)).resolve()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("grid")
    shares: list[float] = []
    outcome = study(small(), out, progress=lambda share, text: shares.append(share), command="shiftprism benchmark …")
    assert outcome.failed == {}
    assert outcome.notes == []
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] == 1
    assert outcome.results.rows == Results.read(out).rows
    return out


def untimed(rows: list[Row]) -> list[Row]:
    """Rows without what may differ between two runs of the same: the clock and the commit."""
    return [replace(row, commit="") for row in rows if row.metric != "seconds"]


def same(one: Path, other: Path) -> None:
    first, second = (Results.read(folder) for folder in (one, other))
    assert untimed(first.rows) == untimed(second.rows)
    kept = [number for number, row in enumerate(first.rows) if row.metric != "seconds"]
    assert np.array_equal(first.resamples[kept], second.resamples[kept])


def test_progress_counts_what_is_written_and_names_what_runs(whole: Path, tmp_path: Path) -> None:
    """Ten sets; two models of two epochs each, pixels beside them."""
    plan, stop, heard = small(models=("vanilla", "alpha-beta")), threading.Event(), list[tuple[float, str]]()
    cells = list_cells(plan, tmp_path)
    stop.set()

    def report() -> tuple[Any, str]:
        _study._report_progress(cells, {"digits": [("", 0)] * 10}, lambda *state: heard.append(state), stop)
        return heard[-1]

    work = 10 + 1 + 2 * (2 * _study._EPOCH + 10 + _study._SETS)
    assert report() == (0, "0 of 3 cells; shifted images")
    run = next(cell for cell in cells if cell.model == "alpha-beta").folder.run
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text("{}\n")
    share, words = report()
    assert share == pytest.approx(_study._EPOCH / work)
    assert words == "0 of 3 cells; digits-alpha-beta-0"
    for cell in cells:
        shutil.copytree(whole / "cells" / cell.key, tmp_path / "cells" / cell.key, dirs_exist_ok=True)
    share, words = report()
    assert share == pytest.approx((work - 10) / work)
    assert words == "3 of 3 cells"


def test_the_process_keeps_its_threads(whole: Path) -> None:
    """A study runs in the process of the user where there is one job, and its cells compute on one thread."""
    torch.set_num_threads(3)
    study(small(), whole)
    assert torch.get_num_threads() == 3


def test_the_grid_is_whole(whole: Path) -> None:
    rows = Results.read(whole).rows
    assert {(row.model, row.seed) for row in rows} == {
        ("pixels", 0),
        ("vanilla", 0),
        ("vanilla", 1),
        ("alpha-beta", 0),
        ("ensemble", 0),
    }
    assert {(row.shift, row.severity) for row in rows if row.subject == "u" and row.metric == "auroc"} == {
        *(("motion_blur", severity) for severity in range(6)),
        *(("concept-splits", severity) for severity in range(4)),
        ("corrupted", 0),
        ("unseen digits", 0),
        ("photographs", 0),
    }
    assert {row.protocol for row in rows if row.model != "pixels"} == {"held-out"}
    assert {row.subject for row in rows if row.metric == "median" and row.model == "alpha-beta"} == {
        *("norm", "alpha", "beta"),
    }
    histogram = {row.shift: row.value for row in rows if row.subject == "histogram"}
    assert histogram["unseen digits"] < 0.2 < histogram["photographs"]
    parameters = {row.model: row.value for row in rows if row.metric == "parameters"}
    assert parameters["alpha-beta"] - parameters["vanilla"] == 2 * 65
    folder = ResultsFolder(whole)
    assert folder.read_suite()["plan"]["models"] == ["vanilla:2", "alpha-beta:1", "ensemble:1"]
    assert folder.commands() == ["shiftprism benchmark …"]
    assert np.array(folder.read_pixels("digits")["photographs"]).sum() == 1000 * 64
    assert folder.collect().rows == rows


def test_a_folder_remembers_the_commands_that_filled_it(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    for model, command in (("vanilla:1", "one"), ("vanilla:2", "two"), ("vanilla:2", "two"), ("beta", "one")):
        _record_plan(Plan(suite="digits", models=(model,)).resolve(), folder, command)
    assert folder.commands() == ["two", "one"]
    assert folder.read_suite()["plan"]["models"] == ["beta:3"]
    folder.suite.write_text('{"command": "one"}')
    with pytest.raises(ValueError, match=r"a folder of results but got .*suite\.json without a plan"):
        _record_plan(small(), folder, "two")


def test_pixel_distances_are_total_variation(whole: Path) -> None:
    counts = ResultsFolder(whole).read_pixels("digits")
    one, other = (np.array(counts[name][0], float) for name in ("digits", "unseen digits"))
    expected = 0.5 * np.abs(one / one.sum() - other / other.sum()).sum()
    (row,) = Results.read(whole).where(subject="histogram", shift="unseen digits").rows
    assert row.value == pytest.approx(expected)
    assert 0 < row.error < 0.05


def test_an_ensemble_is_the_mean_of_its_members(whole: Path) -> None:
    members = [read_model_outputs(whole, "vanilla", seed).clean.logits.softmax(1) for seed in (0, 1)]
    found = read_model_outputs(whole, "ensemble")
    assert torch.allclose(found.clean.logits.exp(), (members[0] + members[1]) / 2, atol=1e-6)
    rows = Results.read(whole).where(model="ensemble").rows
    # logits alone have no norm; those of an ensemble have no energy, although they could be asked for one
    assert {row.subject for row in rows if row.metric == "auroc"} == {"msp"}
    assert "rounding" in ResultsFolder(whole).cell("digits-ensemble-0").read_about()["left_out"]["energy"]


def test_given_runs_may_be_the_members_of_an_ensemble(whole: Path, tmp_path: Path) -> None:
    """The vanilla networks under another name: their ensemble is the same, with the same images held out."""
    runs = tuple(f"alpha-beta={whole}/cells/digits-vanilla-{seed}/run" for seed in (0, 1))
    outcome = study(small(models=("alpha-beta-ensemble",), runs=runs), tmp_path)
    assert not outcome.failed
    found, expected = (
        {(row.shift, row.severity, row.subject, row.metric): row.value for row in results.where(model=model).rows}
        for results, model in ((outcome.results, "alpha-beta-ensemble"), (Results.read(whole), "ensemble"))
    )
    assert found == pytest.approx(expected)
    assert {row.protocol for row in outcome.results.where(model="alpha-beta-ensemble").rows} == {"held-out"}


def test_outputs_are_read_from_the_folder(whole: Path) -> None:
    found = read_model_outputs(whole, "alpha-beta", most=50)
    assert (found.model, found.source.seed, found.source.data, found.clean.N) == ("alpha-beta", 0, "digits", 50)
    assert found.source.weights == Results.read(whole).where(model="alpha-beta").rows[0].weights
    assert set(found.calibrators) == {"temperature", "alpha-beta"}
    assert len(found.shifted) == 5 + 3 + 2
    for condition, outputs, labels in found.shifted:
        file = ResultsFolder(whole).shifted("digits") / set_file(condition.shift, condition.severity)
        assert torch.equal(load(str(file), "all").labels[:50], labels)
        assert outputs.N == len(labels) == 50
    assert read_model_outputs(whole, "vanilla", 1, "digits").source.seed == 1
    with pytest.raises(FileNotFoundError, match="has no outputs of duq, seed any, data any; it has digits-alpha"):
        read_model_outputs(whole, "duq")
    with pytest.raises(FileNotFoundError, match="has no outputs of vanilla, seed 7, data digits"):
        read_model_outputs(whole, "vanilla", 7, "digits")


def test_a_second_command_computes_nothing(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.glob("cells/*/rows.jsonl")}
    outcome = study(small(), whole)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(outcome.results.rows) == len(Results.read(whole).rows)


def test_a_broken_last_line_and_lost_resamples_are_mended(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(whole, out)
    rows = out / "cells/digits-vanilla-0/rows.jsonl"
    rows.write_text(rows.read_text()[:-40])
    resamples = out / "cells/digits-vanilla-1/resamples.safetensors"
    resamples.write_bytes(resamples.read_bytes()[:-1000])
    stored = (out / "cells/digits-vanilla-0/outputs/clean-0.safetensors").stat().st_mtime_ns
    outcome = study(small(), out)
    assert len(outcome.notes) == 2
    assert all("measured again from its stored outputs" in note for note in outcome.notes)
    assert outcome.notes[0].startswith("digits-vanilla-0: Expected `path` to be a file of benchmark rows but got line ")
    assert (out / "cells/digits-vanilla-0/outputs/clean-0.safetensors").stat().st_mtime_ns == stored
    same(whole, out)


def test_other_settings_are_refused_and_more_models_are_added(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Expected `out` .* with images 100 for 0; epochs 3 for 2; repeat"):
        study(small(images=100, settings={"epochs": 3}), whole)
    out = tmp_path / "copy"
    shutil.copytree(whole, out)
    outcome = study(small(models=("gsd",)), out)
    assert {row.model for row in outcome.results.rows} == {"pixels", "vanilla", "alpha-beta", "ensemble", "gsd"}


def test_more_scores_are_measured_from_what_is_stored(whole: Path, tmp_path: Path) -> None:
    out, anew = tmp_path / "copy", tmp_path / "anew"
    shutil.copytree(whole, out)
    stored = {path: path.stat().st_mtime_ns for path in out.glob("cells/*[!e]-?/outputs/*")}  # a mean is no forward
    more = small(scores=("mahalanobis_logits", *SMALL["scores"], "vim"))
    found = study(more, out).results
    assert {path: path.stat().st_mtime_ns for path in stored} == stored
    shutil.copytree(whole, anew)
    for rows in anew.glob("cells/*/rows.jsonl"):
        rows.unlink()
    (anew / "suite.json").unlink()
    expected = study(more, anew).results
    number = {row: place for place, row in enumerate(untimed(expected.rows))}
    order = [number[row] for row in untimed(found.rows)]
    assert sorted(order) == list(range(len(number)))
    timed = [[place for place, row in enumerate(one.rows) if row.metric != "seconds"] for one in (found, expected)]
    np.testing.assert_allclose(found.resamples[timed[0]], expected.resamples[timed[1]][order], atol=1e-6)
    subjects = {row.subject for row in found.rows if row.model == "ensemble"}
    assert "mahalanobis_logits" in subjects
    assert "vim" not in subjects  # it has no features: left out, and not asked again
    before = {path: path.stat().st_mtime_ns for path in out.glob("cells/*/rows.jsonl")}
    study(more, out)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    with pytest.raises(ValueError, match=r"Expected `out` .* with scores"):
        study(small(), out)


def test_a_failing_cell_does_not_stop_the_others(tmp_path: Path) -> None:
    def fails(cell: Cell, threads: int, device: str) -> Results:
        if cell.model == "vanilla":
            raise RuntimeError("no luck")
        return run_cell(cell, threads, device)

    outcome = study(small(models=("vanilla", "ensemble", "gsd")), tmp_path, work=fails)
    assert set(outcome.failed) == {"digits-vanilla-0", "digits-ensemble-0"}
    assert outcome.failed["digits-vanilla-0"].startswith("no luck")
    assert "no digits-vanilla-0 in" in outcome.failed["digits-ensemble-0"]
    assert "Traceback" in (tmp_path / "cells/digits-vanilla-0/error.txt").read_text()
    assert {row.model for row in outcome.results.rows} == {"pixels", "gsd"}


def test_a_given_model_is_measured_by_the_papers_protocol(whole: Path, tmp_path: Path) -> None:
    """A saved classifier without a config was trained on everything: calibrators are cross-validated on test images."""
    model = tmp_path / "mine"
    Classifier.load(whole / "cells/digits-vanilla-0/run").save(model)
    changes: dict[str, Any] = {"models": (), "runs": (f"mine={model}",), "scores": ("g", "knn"), "images": 100}
    plan = small(**changes)
    assert [cell.key for cell in list_cells(plan, tmp_path)] == ["digits-pixels-0", "digits-mine-0"]
    results = study(plan, tmp_path / "out").results
    rows = results.where(model="mine").rows
    assert {(row.protocol, row.backbone, row.head) for row in rows} == {("paper", "digits", "vanilla")}
    assert {row.n for row in rows if row.severity and row.metric == "auroc"} == {100}
    clean, labels = Outputs.load(tmp_path / "out/cells/digits-mine-0/outputs/clean-0.safetensors")
    assert labels is not None
    crossed = torch.softmax(cross_validate(Temperature, clean, labels).double(), 1)
    (found,) = results.where(shift="clean", subject="temperature", metric="ece").rows
    assert found.value == ece(crossed, labels)
    blurred, truth = Outputs.load(tmp_path / "out/cells/digits-mine-0/outputs/motion_blur-2.safetensors")
    whole_fit = torch.softmax(Temperature.fit(clean, labels)(blurred).double(), 1)
    (found,) = results.where(shift="motion_blur", severity=2, subject="temperature", metric="nll").rows
    assert truth is not None
    assert found.value == pytest.approx(nll(whole_fit, truth), rel=1e-5)


def test_corruptions_may_have_fewer_images_than_the_other_sets(whole: Path, tmp_path: Path) -> None:
    sizes = {one.name: len(one.make().images) for one in list_shifts(small(), "digits", ResultsFolder(whole))}
    plan = small(images=300, corrupted_images=20)
    fewer = {one.name: len(one.make().images) for one in list_shifts(plan, "digits", ResultsFolder(tmp_path))}
    assert fewer == {name: 20 if name == "motion_blur" else min(n, 300) for name, n in sizes.items()}
    assert max(sizes.values()) > 300
    other = list_shifts(small(images=20, corrupted_images=300), "digits", ResultsFolder(tmp_path / "other"))
    assert {len(one.make().images) for one in other} == {20}


def test_a_folder_of_an_older_version_can_be_resumed(tmp_path: Path) -> None:
    """Its plan has a list of data sets, seeds by model, pairs as runs, and lacks a later option."""
    plan = small()
    older = {name: value for name, value in plan.to_json().items() if name not in ("corrupted_images", "seeds")}
    older |= {"data": ["digits"], "models": {"vanilla": 2, "alpha-beta": 1, "ensemble": 1}, "runs": []}
    assert plan.differences(older) == []
    assert small(corrupted_images=20).differences(older) == ["corrupted_images 20 for 0"]
    images_in(tmp_path, {"mine": "abc", "other": "abc"})
    mine = own(tmp_path / "mine")
    assert mine.differences(mine.to_json() | {"data": [str(tmp_path / "mine")]}) == []
    (difference,) = mine.differences(mine.to_json() | {"data": [str(tmp_path / "other")]})
    assert difference.startswith("data ")


def images_in(root: Path, folders: dict[str, str]) -> None:
    """Folders of class folders of one letter, 20 small images in each."""
    rng = np.random.default_rng(0)
    for folder, names in folders.items():
        for number, name in enumerate(names):
            (root / folder / name).mkdir(parents=True)
            for i in range(20):
                pixels = rng.integers(0, 40, (8, 8)) + 30 * number
                Image.fromarray(pixels.astype(np.uint8)).save(root / folder / name / f"{i}.png")


def own(data: Path, **changes: Any) -> Plan:
    options = {"models": ("vanilla",), "backbone": "digits", "preset": "smoke"}
    return Plan(data=str(data), **(SMALL | options | changes)).resolve()


def test_own_images_get_the_same_ladder(tmp_path: Path) -> None:
    images_in(tmp_path, {"mine": "abcdef", "far": "xy"})
    plan = own(tmp_path / "mine", far=str(tmp_path / "far"))
    inside = in_distribution(plan, plan.data, ResultsFolder(tmp_path / "out"))
    assert inside.load("train").names == ("a", "b", "c", "d", "f")
    found = list_shifts(replace(plan, hold_out=("a", "c")), plan.data, ResultsFolder(tmp_path / "other"))
    assert [(one.name, one.kind, one.severity) for one in found[:4]] == [
        ("unseen classes", "concept", 0),
        ("far", "both", 0),
        ("concept-splits", "concept", 1),
        ("concept-splits", "concept", 2),
    ]
    outcome = study(plan, tmp_path / "out")
    assert outcome.failed == {}
    assert {row.data for row in outcome.results.rows} == {"mine"}
    assert {"unseen classes", "far", "motion_blur", "corrupted"} <= {row.shift for row in outcome.results.rows}
    assert {row.n for row in outcome.results.where(shift="far").rows} == {40}  # all of it: no model learns any


@pytest.mark.parametrize(
    ("mistake", "message"),
    [({"hold_out": ("z",)}, "Expected `hold_out` .* got z; it has a, b, c"), ({"far": "nowhere"}, "got 'nowhere'")],
)
def test_a_command_put_right_is_not_refused(tmp_path: Path, mistake: dict[str, Any], message: str) -> None:
    images_in(tmp_path, {"mine": "abc", "other/mine": "abc"})
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=message):
        study(own(tmp_path / "mine", **mistake), out, progress=lambda share, text: None)
    assert [path for path in out.rglob("*") if path.is_file()] == []
    done = study(own(tmp_path / "mine", hold_out=("a",)), out, work=nothing)
    assert done.failed == {}
    with pytest.raises(ValueError, match=r"Expected `out` to be a new folder, .* with data "):
        study(own(tmp_path / "other/mine", hold_out=("a",)), out)
    assert (out / "suite.json").exists()


def nothing(cell: Cell, threads: int, device: str) -> Results:
    return Results.without_resamples([])


@pytest.mark.parametrize("name", ["mine", "clean", "motion_blur"])
def test_far_images_do_not_take_the_name_of_another_set(tmp_path: Path, name: str) -> None:
    images_in(tmp_path, {"mine": "abc", f"other/{name}": "xy"})
    plan = own(tmp_path / "mine", far=str(tmp_path / "other" / name))
    found = list_shifts(plan, plan.data, ResultsFolder(tmp_path / "out"))
    assert [one.name for one in found if one.kind == "both"] == [f"far {name}"]


def test_the_ladder_by_looks() -> None:
    """Mean images: b is a with a little of c, c is the opposite of a."""
    a = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    a[..., :2] = 200
    b, c = a.clone(), 200 - a
    b[..., 3] = 90
    known = Dataset(a, torch.tensor([0]), ("a",))
    unseen = Dataset(torch.cat([c, b]), torch.tensor([0, 1]), ("c", "b"))
    assert split_by_mean_image(known, unseen) == {0: ("c",), 1: ("b",)}
    assert photographs().images.double().std() > 20


_COMMAND = """
import sys, torch
from shiftprism.benchmark import Plan, study
if __name__ == "__main__":
    torch.set_num_threads(1)
    outcome = study(Plan(suite="digits", **{options!r}), sys.argv[1], jobs={jobs})
    assert not outcome.failed, outcome.failed
"""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_at_any_point_the_same_command_ends_with_the_same_rows(whole: Path, tmp_path: Path, jobs: int) -> None:
    """SIGKILL when the third shifted set, the first epoch, the first outputs and the first rows have been written."""
    program, out = tmp_path / "command.py", tmp_path / "out"
    program.write_text(_COMMAND.format(options=SMALL, jobs=jobs))
    signs = ("shifted/digits/*", "cells/*/run/metrics.jsonl", "cells/*/outputs/*", "cells/digits-v*/rows.jsonl")
    for pattern, count in zip(signs, (3, 1, 4, 1), strict=True):
        process = subprocess.Popen([sys.executable, str(program), str(out)], start_new_session=True)
        while len(list(out.glob(pattern))) < count and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (out / "rows.jsonl").exists()
    subprocess.run([sys.executable, str(program), str(out)], check=True)
    same(whole, out)


@pytest.mark.slow
def test_a_killed_process_of_the_pool_costs_nothing_but_time(whole: Path, tmp_path: Path) -> None:
    def dies_once(cell: Cell, threads: int, device: str) -> Results:
        mark = Path(cell.out) / "died"
        if cell.key == "digits-alpha-beta-0" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run_cell(cell, threads, device)

    outcome = study(small(), tmp_path, jobs=2, work=dies_once)
    assert (tmp_path / "died").exists()
    assert outcome.failed == {}
    same(whole, tmp_path)


_GROWS = """
import builtins, time, numpy
from shiftprism._tasks import run_tasks
def grows(item, threads, device):
    builtins.kept = [*getattr(builtins, "kept", []), numpy.ones(60_000_000)]
    time.sleep(1.5)  # loky looks at the size once a second
    return item
if __name__ == "__main__":
    print(sorted(task.result for task in run_tasks(grows, range(6), 2)))
"""


@pytest.mark.slow
def test_processes_that_have_grown_are_renewed_in_silence(tmp_path: Path) -> None:
    program = tmp_path / "grows.py"
    program.write_text(_GROWS)
    done = subprocess.run([sys.executable, str(program)], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[0, 1, 2, 3, 4, 5]\n", "")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_a_ray_cluster_gives_the_same_rows_though_a_worker_is_killed(whole: Path, tmp_path: Path) -> None:
    if "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.importorskip("ray", reason='no ray: pip install "shiftprism[cluster]"')
    import ray

    def dies_once(cell: Cell, threads: int, device: str) -> Results:
        mark = Path(cell.out) / "died"
        if cell.key == "digits-alpha-beta-0" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run_cell(cell, threads, device)

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        outcome = study(small(), tmp_path, cluster="local", work=dies_once)
    finally:
        ray.shutdown()
    assert (tmp_path / "died").exists()
    assert outcome.failed == {}
    same(whole, tmp_path)
    assert ResultsFolder(tmp_path).collect().rows == Results.read(tmp_path).rows


def test_every_score_has_a_row(tmp_path: Path) -> None:
    """With all scores: those that a head cannot serve are named in cell.json, none is lost."""
    study(small(models=("vanilla",), scores=(), calibrators=("temperature",), images=50), tmp_path)
    folder = ResultsFolder(tmp_path)
    rows = folder.collect().where(model="vanilla", metric="auroc").rows
    left_out = folder.cell("digits-vanilla-0").read_about()["left_out"]
    assert {row.subject for row in rows} == set(SCORES) - set(left_out)
    assert set(left_out) == {"kernel"}
