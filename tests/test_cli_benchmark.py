"""`shiftprism benchmark`: wrong words are one line, help needs no torch, and a whole run ends in a page."""

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shiftprism import benchmark, report
from shiftprism.benchmark import Outcome, Plan
from shiftprism.claims import Finding, Judgement, judge
from shiftprism.cli import app
from shiftprism.rows import Results

TINY: tuple[str, ...]
TINY = ("--suite", "digits", "--models", "vanilla", "--seeds", "1", "--scores", "g,u", "--calibrators", "temperature")
TINY = (*TINY, "--corruptions", "motion_blur", "--images", "100", "--jobs", "1")


WORDS: tuple[Judgement, ...] = ("holds", "not measured", "not measured")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "shiftprism", "benchmark", *words]


@pytest.fixture
def short(tmp_path: Path) -> str:
    path = tmp_path / "short.toml"
    path.write_text("epochs = 1\n")
    return str(path)


def test_help_answers_without_torch() -> None:
    code = "import sys; sys.argv = ['shiftprism', 'benchmark', '--help']\nfrom shiftprism.cli import main\n"
    code += "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
    code += "assert not {'torch', 'numpy', 'joblib', 'ray'} & set(sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--cluster" in done.stdout


def test_a_wrong_word_is_one_line(tmp_path: Path) -> None:
    words = ("--suite", "digits", "--models", "oracle", "--out", str(tmp_path))
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("shiftprism: Expected --models to be one of alpha, ")
    assert len(done.stderr.splitlines()) == 1


def test_flags_are_the_fields_of_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.json").write_text("{}")
    (tmp_path / "settings.toml").write_text('preset = "laptop"\nepochs = 3\n')
    plans: list[Plan] = []

    def study(plan: Plan, *_: object, **__: object) -> Outcome:
        plans.append(plan)
        return Outcome(Results.without_resamples([]), {}, [])

    monkeypatch.setattr(benchmark, "study", study)
    words = ["--suite", "digits", "--scores", "u,msp", "--images", "50", "--config", str(tmp_path / "settings.toml")]
    runs = ["--runs", str(tmp_path / "a"), "--runs", f"other={tmp_path / 'b'}"]
    done = CliRunner().invoke(app, ["benchmark", *words, *runs, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    expected = Plan(
        suite="digits",
        scores=("u", "msp"),
        images=50,
        runs=(f"a={tmp_path / 'a'}", f"other={tmp_path / 'b'}"),
        preset="laptop",
        settings={"epochs": 3},
    )
    assert plans == [expected.resolve()]
    CliRunner().invoke(app, ["benchmark", *words, *runs, "--preset", "smoke", "--out", str(tmp_path / "out")])
    assert plans[1].preset == "smoke"  # the command line comes before the file


def test_the_summary_and_a_failed_cell(tmp_path: Path, short: str, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[Path] = []

    def publish(folder: Path, results: Results) -> list[Finding]:
        published.append(folder)
        assert results.rows == Results.read(folder).rows
        findings = judge(results)[:3]
        return [one._replace(judgement=word) for one, word in zip(findings, WORDS, strict=True)]

    monkeypatch.setattr(report, "publish", publish)
    words = ["benchmark", *TINY, "--config", short, "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "1 hold, 0 contradicted, 0 not shown, 2 not measured" in done.output
    assert f"The page: {tmp_path / 'out' / 'report.html'}" in done.output
    assert published == [tmp_path / "out"]
    published.clear()
    assert {row.model for row in Results.read(tmp_path / "out").rows} == {"pixels", "vanilla"}
    done = CliRunner().invoke(app, [*words, "--models", "vanilla,duq", "--config", str(tmp_path / "none.toml")])
    assert isinstance(done.exception, FileNotFoundError)
    (tmp_path / "out/cells/digits-gsd-0").mkdir()
    (tmp_path / "out/cells/digits-gsd-0/run").write_text("a file where a folder should be")
    done = CliRunner().invoke(app, [*words, "--models", "vanilla,gsd"])
    assert done.exit_code == 1
    assert "Failed: digits-gsd-0: " in done.output
    assert published == [tmp_path / "out"]  # what was measured is published all the same


@pytest.mark.slow
def test_a_run_ends_in_a_page(tmp_path: Path, short: str) -> None:
    done = subprocess.run(command(*TINY, "--config", short, "--out", str(tmp_path)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("report.html", "claims.json", "rows.jsonl", "resamples.safetensors", "suite.json"):
        assert (tmp_path / name).stat().st_size > 0
    assert str(tmp_path / "report.html") in done.stdout


@pytest.mark.slow
def test_ctrl_c_says_how_to_resume(tmp_path: Path) -> None:
    words = command("--suite", "digits", "--out", str(tmp_path), "--jobs", "2")
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests in the background ignore it
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heeds)
    while not list(tmp_path.glob("cells/*/run/metrics.jsonl")) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)  # the workers may be slow to stop on a busy machine
    assert process.returncode == 130
    assert "the same command resumes it" in said
