"""Rows and results in files: they come back as they were, and what is broken is named."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from rows_examples import made_results
from shiftprism.rows import (
    RESAMPLES,
    Condition,
    Results,
    Row,
    Source,
    Summary,
    find_fault,
    make_row,
    read_rows,
    write_rows,
)
from shiftprism.rows._row import format_brief_rows


@pytest.fixture(scope="module")
def results() -> Results:
    return made_results(2)


def sample(seed: int = 0, value: float = 0.5, metric: str = "auroc") -> Row:
    about = ("m", "d", "b", "h", seed, "held-out", "s", "covariate", 0, "g", metric, value, 0.01, 10)
    return Row(*about, "abc", "v", "c")


def test_a_file_gives_the_rows_back(results: Results, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", results.rows)
    assert read_rows(tmp_path / "rows.jsonl") == results.rows


def test_a_row_knows_its_source_and_condition() -> None:
    source = Source("m", "d", "b", "h", 3, "held-out", "abc")
    condition = Condition("fog", "covariate", 2)
    row = make_row(source, condition, subject="g", metric="auroc", value=0.5, error=0.01, n=10)
    assert (row.source, row.condition) == (source, condition)
    assert (row.subject, row.metric, row.value, row.error, row.n) == ("g", "auroc", 0.5, 0.01, 10)
    assert re.match(r"shiftprism \S+, torch \S+, numpy \S+, scipy \S+$", row.versions)


def test_results_survive_a_folder(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path)
    for path in (tmp_path, tmp_path / "rows.jsonl"):
        back = Results.read(path)
        assert back.rows == results.rows
        assert np.array_equal(back.resamples, results.resamples)


def test_rows_are_found_by_their_fields(results: Results) -> None:
    few = results.where(metric="auroc", subject=["g", "u"], severity=0, model="alpha")
    wanted = [
        number
        for number, row in enumerate(results.rows)
        if (row.metric, row.severity, row.model) == ("auroc", 0, "alpha") and row.subject in ("g", "u")
    ]
    assert len(wanted) > 4
    assert few.rows == [results.rows[number] for number in wanted]
    assert np.array_equal(few.resamples, results.resamples[wanted])
    with pytest.raises(ValueError, match=r"Expected `conditions` to be one of .*model.* but got 'colour'"):
        results.where(colour="red")


def test_rows_are_taken_by_number_in_any_order(results: Results) -> None:
    few = results.take(number for number in (7, 2, 5))
    assert few.rows == [results.rows[7], results.rows[2], results.rows[5]]
    assert np.array_equal(few.resamples, results.resamples[[7, 2, 5]])
    none = results.take([])
    assert (none.rows, none.resamples.shape) == ([], (0, RESAMPLES))


def test_parts_are_joined_in_order(results: Results) -> None:
    both = Results.concat(part for part in (results.take([3, 4]), results.take([1])))
    again = results.take([3, 4, 1])
    assert both.rows == again.rows
    assert np.array_equal(both.resamples, again.resamples)
    assert Results.concat([]).resamples.shape == (0, RESAMPLES)


def test_resamples_of_other_rows_are_not_taken(results: Results, tmp_path: Path) -> None:
    few = results.where(metric="auroc")
    few.write(tmp_path)
    write_rows(tmp_path / "rows.jsonl", few.rows[:10])
    with pytest.warns(UserWarning, match="does not belong to its rows"):
        drawn = Results.read(tmp_path)
    assert len(drawn.rows) == len(drawn.resamples) == 10
    assert not np.array_equal(drawn.resamples, few.resamples[:10])
    assert drawn.resamples.std(1, ddof=1) == pytest.approx([row.error for row in drawn.rows], rel=0.25, abs=1e-7)


def test_damaged_resamples_are_an_error(results: Results, tmp_path: Path) -> None:
    results.where(metric="auroc").write(tmp_path)
    file = tmp_path / "resamples.safetensors"
    content = file.read_bytes()
    for damaged in (content[:-100], content[:-2] + bytes([content[-2] ^ 64]) + content[-1:]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"resamples\.safetensors"):
            Results.read(tmp_path)
    assert "resamples.safetensors" in find_fault(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        '{"model": "m"',
        json.dumps({**asdict(sample()), "value": "high"}),
        json.dumps({**asdict(sample()), "value": float("nan")}),
        json.dumps(asdict(sample())).replace('"error": ', '"error": 1e999, "x": '),
        json.dumps({**asdict(sample()), "error": float("inf")}),
        json.dumps({**asdict(sample()), "n": 10**400}),
        json.dumps({**asdict(sample()), "n": 2**63}),  # the first that an int64 does not hold
        json.dumps({**asdict(sample()), "n": 1.5}),
        json.dumps({**asdict(sample()), "seed": True}),
        json.dumps({**asdict(sample()), "colour": 1}),
        json.dumps({**asdict(sample()), "kind": "style"}),
        json.dumps({**asdict(sample()), "protocol": "h\ufffdld-out"}),
        json.dumps({**asdict(sample()), "shift": ""}),
        json.dumps({**asdict(sample()), "metric": ""}),
        json.dumps({"model": "m"}),
        "[1, 2]",
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(asdict(sample())) + "\n" + line + "\n")
    with pytest.raises(ValueError, match="Expected `path` to be a file of benchmark rows but got line 2"):
        read_rows(tmp_path / "rows.jsonl")


def test_brief_lines_give_the_same_rows_and_the_resamples_that_are_compared(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "full")
    results.write_brief(tmp_path / "brief")
    found = {replace(row, value=0.0): row.value for row in read_rows(tmp_path / "brief/rows.jsonl")}
    assert found == pytest.approx({replace(row, value=0.0): row.value for row in results.rows}, rel=1e-5, abs=1e-12)
    full, brief = ((tmp_path / name / "rows.jsonl").read_text() for name in ("full", "brief"))
    assert len(brief) < len(full) / 1.5
    assert len(re.sub(r'"z":"[^"]*"', "", brief)) < len(full) / 6
    back, before = Results.read(tmp_path / "brief"), results.where(metric=("auroc", "ece"), severity=0)
    assert back.resamples.shape == (len(results.rows), RESAMPLES)
    back = back.where(metric=("auroc", "ece"), severity=0)
    place = {(row.weights, row.shift, row.subject, row.metric): number for number, row in enumerate(back.rows)}
    assert len(place) == len(before.rows)
    for row, resampled in zip(before.rows, before.resamples, strict=True):
        ours = back.resamples[place[row.weights, row.shift, row.subject, row.metric]]
        apart = np.clip(resampled - resampled.mean(), -4 * row.error, 31 / 8 * row.error)  # there the letters end
        assert ours - row.value == pytest.approx(apart, abs=row.error / 15 + 1e-6)


def test_no_row_is_lost_for_want_of_its_letters() -> None:
    with pytest.raises(ValueError, match="shorter"):
        format_brief_rows([sample(0), sample(1)], [""])


def test_letters_that_are_cut_off_are_noticed(results: Results, tmp_path: Path) -> None:
    results.where(model="alpha-beta").write_brief(tmp_path)
    file = tmp_path / "rows.jsonl"
    file.write_text(re.sub(r'"z":"..', '"z":"', file.read_text(), count=1))
    with pytest.raises(ValueError, match=r"brief rows with 200 letters as z but got alpha-beta .* with z = "):
        Results.read(tmp_path)


def test_brief_rows_take_the_place_of_rows_with_resamples(tmp_path: Path) -> None:
    Results.without_resamples([sample(0), sample(1)]).write(tmp_path)
    Results.without_resamples([sample(0), sample(2)]).write_brief(tmp_path)
    assert [row.seed for row in Results.read(tmp_path).rows] == [0, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_brief_rows_of_a_ladder_share_a_line(tmp_path: Path) -> None:
    """Only where no other field differs, and where none of them has letters of its own."""
    ladder = [replace(sample(value=step / 10, metric="ece"), severity=step) for step in (1, 2, 3)]
    rows = [*ladder, replace(ladder[0], shift="t"), replace(ladder[1], shift="t", value=0.1)]
    text = format_brief_rows(rows, [""] * 5)
    assert [json.loads(line) for line in text.splitlines()[2:]] == [
        {"severity": [1, 2], "value": [0.1, 0.1], "error": [0.01, 0.01], "shift": "t"}
    ]
    (tmp_path / "rows.jsonl").write_text(text)
    assert read_rows(tmp_path / "rows.jsonl") == rows
    lettered = format_brief_rows(ladder, ["", "a", ""])
    assert [json.loads(line).get("z") for line in lettered.splitlines()[1:]] == [None, "a", None]


def test_brief_rows_of_the_first_format_are_still_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    lines = [json.dumps({"format": "shiftprism-brief-rows-1"}), json.dumps(asdict(sample())), '{"seed":1,"value":0.25}']
    file.write_text("\n".join(lines) + "\n")
    assert read_rows(file) == [sample(), sample(1, 0.25)]
    assert find_fault(tmp_path) == ""
    file.write_text("\n".join([*lines, '{"severity":[1,2],"value":[0.1,0.2],"error":[0.1,0.2]}']) + "\n")
    with pytest.raises(ValueError, match=r"line 4 of .*severity is \[1, 2\]"):
        read_rows(file)


@pytest.mark.parametrize(
    "line",
    [
        '{"severity":[1,2],"value":[0.1],"error":[0.1,0.2]}',
        '{"severity":[1,2],"value":0.1,"error":[0.1,0.2]}',
        '{"severity":[1,2],"value":[0.1,0.2]}',
    ],
)
def test_lists_of_a_brief_line_have_one_length(tmp_path: Path, line: str) -> None:
    Results.without_resamples([sample(0), sample(1)]).write_brief(tmp_path)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match="a file of benchmark rows but got line 4"):
        read_rows(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("line", ['{"value": "high"}', '{"colour": 1}', "[1]", '{"seed"'])
def test_a_broken_brief_line_is_named(tmp_path: Path, line: str) -> None:
    Results.without_resamples([sample(0), sample(1)]).write_brief(tmp_path)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match="Expected `path` to be a file of benchmark rows but got line 4"):
        read_rows(tmp_path / "rows.jsonl")


def test_only_a_file_that_says_so_may_leave_fields_out(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(asdict(sample())) + '\n{"seed": 1}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_rows(tmp_path / "rows.jsonl")


def test_a_fault_of_a_folder_is_found(tmp_path: Path) -> None:
    """Full rows need their own resamples; brief rows carry what they need."""
    assert find_fault(tmp_path) == "absent"
    results = Results.without_resamples([sample(0), sample(1)])
    results.write(tmp_path)
    assert find_fault(tmp_path) == ""
    write_rows(tmp_path / "rows.jsonl", results.rows[:1])
    assert find_fault(tmp_path) == f"{tmp_path / 'resamples.safetensors'} does not belong to its rows."
    results.write_brief(tmp_path)
    assert find_fault(tmp_path) == ""
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"seed"')
    assert find_fault(tmp_path).startswith("Expected `path` to be a file of benchmark rows but got line 4 of ")


def test_brief_rows_that_nothing_is_compared_with_are_whole_too(tmp_path: Path) -> None:
    Results.without_resamples([sample(metric="brier")]).write_brief(tmp_path)
    assert '"z"' not in (tmp_path / "rows.jsonl").read_text()
    assert find_fault(tmp_path) == ""


def test_a_summary_is_over_seeds() -> None:
    assert Summary.of([0.2, 0.4, 0.6]) == pytest.approx(Summary(0.4, 0.2, 3))
    assert Summary.of([0.5]) == Summary(0.5, 0.0, 1)
