"""`shiftprism list`: the tables a person reads."""

import pytest
from typer.testing import CliRunner

from shiftprism.calibrators import CALIBRATORS
from shiftprism.cli import app
from shiftprism.corruptions import CORRUPTIONS
from shiftprism.heads import HEADS
from shiftprism.scores import SCORES


@pytest.fixture(params=[500, 80])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def list_lines(what: str) -> list[str]:
    """The lines that `shiftprism list WHAT` prints, with single spaces."""
    done = CliRunner().invoke(app, ["list", what])
    assert done.exit_code == 0, done.output
    return [" ".join(line.split()) for line in done.output.splitlines()]


@pytest.mark.parametrize(
    ("what", "names"),
    [("scores", SCORES), ("calibrators", CALIBRATORS), ("heads", HEADS), ("corruptions", CORRUPTIONS)],
    ids=lambda v: str(v)[:11],
)
def test_no_name_is_lost_or_cut(what: str, names: dict[str, object], columns: int) -> None:
    starts = {line.split(" ")[0] for line in list_lines(what)}
    assert set(names) <= starts


@pytest.mark.parametrize("columns", [500], indirect=True)
def test_every_score_has_its_line(columns: int) -> None:
    lines = list_lines("scores")
    for name, entry in SCORES.items():
        start = f"{name} {entry.formula} {', '.join(entry.reads)}"
        assert [line for line in lines if line.startswith(start) and line.endswith(entry.paper)], start
    assert "max_logit max_k l_k logits no Hendrycks et al. 2022" in lines
    assert "knn −|z − z_(k)|, z = f/|f| features KNN Sun et al. 2022" in lines
    assert [line for line in lines if "features Prism with reference ours" in line]
    assert [line for line in lines if "logits Mahalanobis(space='logits') with labels Lee et al. 2018" in line]


@pytest.mark.parametrize("columns", [500], indirect=True)
def test_calibrators_and_heads_say_what_they_are(columns: int) -> None:
    assert "beta Geometric(alpha=False) (|f| + β(f)) · s_k Tian et al. 2021, its β-only model" in list_lines("heads")
    for name, kind in CALIBRATORS.items():
        about = " ".join((kind.__doc__ or "").splitlines()[0].rstrip(".").split())
        line = next(line for line in list_lines("calibrators") if line.startswith(f"{name} "))
        assert line.startswith(f"{name} {about} {kind.__name__} ")


def test_without_a_word_it_says_what_can_be_listed() -> None:
    done = CliRunner().invoke(app, ["list"])
    assert all(word in done.output for word in ("scores", "calibrators", "heads"))
