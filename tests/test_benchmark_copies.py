"""Shifted copies in a benchmark: style, spectrum, shift-aware, attribution and mirrored models come out as rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from examples import head_of
from shiftprism import Classifier, benchmark, metrics
from shiftprism.benchmark import Plan
from shiftprism.benchmark._attribution import Attribution
from shiftprism.benchmark._cells import _fit_contrasts
from shiftprism.benchmark._copies import SEVERITIES, divide_held_out
from shiftprism.benchmark._measure import CLEAN, RowList
from shiftprism.benchmark._photos import Photographs
from shiftprism.corruptions import COMMON, EXTRA, OWN_EXTRA
from shiftprism.datasets import Dataset, load
from shiftprism.edits import predict_mirrored
from shiftprism.outputs import Outputs
from shiftprism.recommend import Labelled
from shiftprism.rows import Condition, Results, ResultsFolder, Row, Source
from shiftprism.scores import Spectrum, Style, g, gen, h, p_value, u
from shiftprism.training import split_held_out

PLAN = Plan(
    suite="digits",
    models=("alpha-beta:1",),
    scores=("u",),
    calibrators=("temperature",),
    corruptions=("gaussian_noise", "contrast"),
    settings={"epochs": 2},
)
MORE = replace(
    PLAN, scores=("u", "style", "spectrum"), calibrators=("temperature", "shift-aware", "alpha-beta"), mirror=True
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small benchmark, then the same folder again with more scores, calibrators and mirrored models."""
    out = tmp_path_factory.mktemp("copies")
    first = benchmark.study(PLAN, out)
    second = benchmark.study(MORE, out)
    assert first.failed == second.failed == {}
    kept = [row for row in second.results.rows if row.model == "alpha-beta" and row.subject in ("u", "temperature")]
    before = [row for row in first.results.rows if row.subject in ("u", "temperature")]
    assert sorted(map(repr, kept)) == sorted(map(repr, before))  # what was measured first stays as it was
    return out


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return Results.read(folder)


def value(results: Results, model: str, *key: object) -> float:
    names = ("shift", "severity", "subject", "metric")
    (row,) = results.where(model=model, **dict(zip(names, key, strict=True))).rows
    return row.value


def test_scores_and_calibrators_that_need_copies_have_rows_of_every_set(results: Results) -> None:
    for model in ("alpha-beta", "alpha-beta-mirrored"):
        for shift in ("unseen digits", "photographs", "gaussian_noise", "contrast", "corrupted"):
            for score in ("style", "spectrum"):
                assert 0 <= value(results, model, shift, 0, score, "auroc") <= 1
            if shift in ("unseen digits", "photographs", "corrupted"):
                calls = [value(results, model, shift, 0, "attribution", name) for name in ("covariate", "concept")]
                assert sum(calls) == pytest.approx(value(results, model, shift, 0, "attribution", "flagged"))
        assert value(results, model, "corrupted", 0, "shift-aware", "predictions_changed") == 0
        assert value(results, model, "contrast", 5, "shift-aware", "ece") > 0
    # contrast 5 changes digits beyond doubt, and digits of other classes have the usual style
    assert value(results, "alpha-beta", "contrast", 5, "style", "auroc") > 0.95
    assert value(results, "alpha-beta", "unseen digits", 0, "style", "auroc") < 0.85
    assert value(results, "alpha-beta", "corrupted", 0, "style, gen", "which_way") > 0.7


def test_copies_are_extras_alone_and_are_kept(folder: Path) -> None:
    outputs = folder / "cells" / "digits-alpha-beta-0" / "outputs" / "copies"
    names = {path.stem.rpartition("-")[0] for path in outputs.glob("*.safetensors")}
    assert names
    assert names <= {*EXTRA, *OWN_EXTRA}
    assert not names & set(COMMON)


def test_a_mirrored_model_is_the_same_network_asked_twice(folder: Path, results: Results) -> None:
    cells = ResultsFolder(folder).cells()
    (cell,) = [cell for cell in cells if cell.path.name == "digits-alpha-beta-0"]
    classifier = Classifier.load(cell.run)
    own, mirrored = (results.where(model=name, metric="auroc").rows for name in ("alpha-beta", "alpha-beta-mirrored"))
    assert {row.weights for row in own} == {row.weights for row in mirrored}
    inside = load(str((folder / "data" / "digits.safetensors").resolve()), "test")
    far = load(str((folder / "shifted" / "digits" / "contrast-3.safetensors").resolve()), "all")
    clean, shifted = (u(predict_mirrored(classifier, data.images)[0]) for data in (inside, far))
    expected = metrics.auroc(clean, shifted)
    assert value(results, "alpha-beta-mirrored", "contrast", 3, "u", "auroc") == pytest.approx(expected, abs=1e-6)
    assert value(results, "alpha-beta", "contrast", 3, "u", "auroc") != pytest.approx(expected, abs=1e-6)


def test_an_older_folder_may_get_calibrators_and_mirrored_models() -> None:
    plan, more = PLAN.resolve(), MORE.resolve()
    older = {name: field for name, field in plan.to_json().items() if name != "mirror"}
    assert more.differences(older) == []
    assert any("calibrators" in phrase for phrase in plan.differences(more.to_json()))


def data_set(count: int = 400) -> tuple[Dataset, Outputs]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 16, 16), generator=generator, dtype=torch.uint8)
    return Dataset(images, torch.arange(count) % 5, tuple("abcde")), look(images)


def look(images: Tensor) -> Outputs:
    """A model whose features and style are a few numbers of the image."""
    pixels = images.double() / 255
    steps = (pixels[..., 1:] - pixels[..., :-1]).square().mean((1, 2, 3))
    columns = torch.stack([pixels.mean((1, 2, 3)), pixels.std((1, 2, 3)), steps], 1)
    with torch.no_grad():
        outputs = head_of("vanilla").outputs(torch.cat([columns, columns.square()], 1))
    return outputs._replace(style=columns)


def test_the_parts_of_held_out_data_are_disjoint_and_copies_are_of_the_first() -> None:
    held, outputs = data_set()
    training = Labelled(outputs.rows(slice(0, 50)), held.labels[:50])
    seen: dict[str, Dataset] = {}

    def predict(file: str, data: Dataset | Photographs) -> Outputs:
        assert isinstance(data, Dataset)
        seen[file] = data
        return look(data.images)

    parts = divide_held_out(training, held, outputs, predict)
    assert parts is not None
    known = parts.known.outputs.rows(slice(50, None))
    numbers = [{tuple(row.tolist()) for row in part.style} for part in (known, parts.reference.outputs, parts.ranked)]
    assert [len(part) for part in numbers] == [200, 100, 100]
    assert len(set.union(*numbers)) == 400  # disjoint
    assert set(seen) == {f"copies/{name}-{s}.safetensors" for name in (*EXTRA, *OWN_EXTRA) for s in SEVERITIES}
    assert sum(len(seen[f"copies/gamma-{s}.safetensors"].images) for s in (1, 3, 5)) == parts.copies["gamma"].outputs.N
    # of random pixels, a copy is nearest to the image that it was made of
    own = {tuple(row.tolist()) for row in known.style}
    copy = seen["copies/saturate-1.safetensors"]
    nearest = torch.cdist(copy.images.double().flatten(1), held.images.double().flatten(1)).argmin(1)
    assert torch.equal(copy.labels, held.labels[nearest])
    assert all(tuple(outputs.style[i].tolist()) in own for i in nearest)
    for count, enough in ((39, False), (40, True)):
        few = slice(0, count)
        assert (divide_held_out(training, held.rows(few), outputs.rows(few), predict) is not None) == enough
    assert divide_held_out(training, held, outputs._replace(style=torch.zeros(400, 0)), predict) is None


def test_attribution_counts_what_the_rule_says() -> None:
    _, outputs = data_set()
    clean, reference, ranked, unseen = (outputs.rows(slice(i, i + 100)) for i in range(0, 400, 100))
    shifted = clean._replace(style=clean.style + 0.3)
    style = Style.fit(reference, {"brighter": shifted})
    spectrum = Spectrum.fit(reference, reference=unseen, shifted={"brighter": shifted})
    rows = RowList(Source("m", "d", "b", "h", 0, "held-out", "w"))
    attribution = Attribution(rows, style, spectrum, ranked)
    sets = {CLEAN: clean, Condition("others", "concept", 0): unseen}
    sets |= {Condition("brighter", "covariate", s): shifted.rows(slice(0, 20 * s)) for s in (3, 5)}
    for condition, one in sets.items():
        attribution.add(condition, one)
    attribution.finish()
    found = {(row.shift, row.severity, row.subject, row.metric): row for row in rows.rows}

    def p(score: object, one: Outputs) -> Tensor:
        assert callable(score)
        return p_value(score(ranked).sort().values, score(one))

    for condition, one in sets.items():
        alarm, covariate = p(spectrum, one) <= 0.05, p(style, one) <= 0.05
        shares = {"flagged": alarm, "covariate": alarm & covariate, "concept": alarm & ~covariate}
        for name, expected in shares.items():
            row: Row = found[condition.shift, condition.severity, "attribution", name]
            assert row.value == pytest.approx(float(expected.double().mean()))
            assert row.n == one.N
    for subject, (first, second) in {"style, gen": (style, gen), "g, h": (g, h)}.items():
        ways = [(p(first, one).log() - p(second, one).log()).numpy() for one in sets.values()]
        expected_way = [metrics.auroc(ways[1], way) for way in ways[2:]]
        got = [found["brighter", s, subject, "which_way"].value for s in (3, 5)]
        assert got == pytest.approx(expected_way)
        assert found["corrupted", 0, subject, "which_way"].value == pytest.approx(np.mean(expected_way))
        assert ("others", 0, subject, "which_way") not in found


def test_contrasts_are_the_scores_that_need_copies() -> None:
    """Not the calibrators that need them, and not the other scores: those are fitted elsewhere."""
    held, outputs = data_set(100)
    data = Labelled(outputs, held.labels)
    names = ["u", "knn", "style", "spectrum", "temperature", "shift-aware"]
    fitted, left_out = _fit_contrasts(names, None, data, data, None)
    assert fitted == {}
    assert left_out.keys() == {"style", "spectrum"}


def test_nothing_held_out_leaves_the_contrasts_out(tmp_path: Path) -> None:
    plan = replace(PLAN, scores=("u", "style"), calibrators=("shift-aware",), settings={"epochs": 1, "held_out": 0.0})
    outcome = benchmark.study(plan, tmp_path)
    assert outcome.failed == {}
    assert not {"style", "shift-aware"} & {row.subject for row in outcome.results.rows}
    (cell,) = [cell for cell in ResultsFolder(tmp_path).cells() if "alpha-beta" in cell.path.name]
    left_out = cell.read_about()["left_out"]
    assert "shifts.make_shifted_copies" in left_out["style"]
    assert "shifts.make_shifted_copies" in left_out["shift-aware"]
    assert len(split_held_out("digits", 0.0)[1].images) == 0
