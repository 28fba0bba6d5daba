"""The mistakes that tools/mutate.py plants: real ones, each alone, and none in what only a reader sees."""

import ast
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

import mutate

SOURCE = '''
@dataclass(frozen=True)
class Line:
    """Not 3 of 4."""
    def __repr__(self):
        return 1 + 2
    def total(self, β: Literal[3] = 0) -> Literal[4]:
        if not self.parts or β < 1:
            raise ValueError(3 + 4)
        got = f"{1 + 1}" if β else "2"
        self.check(axis=1)
        return -min(self.parts[1:]) * (2.5 if β else 1)
'''


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", Path(__file__).parents[1] / "tools/mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_mistake_is_one_replacement_and_texts_are_left_alone(mutants: ModuleType) -> None:
    found = list(mutants.list_mutants(SOURCE, "line.py"))
    assert [(one.kind, one.before, one.after) for one in found] == [
        ("constant", "0", "1"),
        ("and or", "not self.parts or β < 1", "(not self.parts and β < 1)"),
        ("sign or not", "not self.parts", "(self.parts)"),
        ("comparison", "β < 1", "(β <= 1)"),
        ("constant", "1", "0"),
        ("raise deleted", "raise ValueError(3 + 4)", "pass"),
        ("statement deleted", "self.check(axis=1)", "pass"),
        ("keyword dropped", "self.check(axis=1)", "self.check()"),
        ("constant", "1", "0"),
        ("arithmetic", "-min(self.parts[1:]) * (2.5 if β else 1)", "(-min(self.parts[1:]) / (2.5 if β else 1))"),
        ("sign or not", "-min(self.parts[1:])", "(min(self.parts[1:]))"),
        ("min max", "min(self.parts[1:])", "max(self.parts[1:])"),
        ("slice", "1:", ":"),
        ("constant", "1", "0"),
        ("branch", "2.5 if β else 1", "(2.5)"),
        ("branch", "2.5 if β else 1", "(1)"),
        ("constant", "2.5", "5.0"),
        ("constant", "1", "0"),
    ]
    text = SOURCE.encode()
    for one in found:
        assert text[one.start : one.end].decode() == one.before
        ast.parse(text[: one.start] + one.after.encode() + text[one.end :])


def test_the_same_seed_draws_the_same_mutants_from_every_room(mutants: ModuleType) -> None:
    root = Path(__file__).parents[1]
    drawn = mutants.draw(["metrics", "rows"], root, 40, 3)
    assert drawn == mutants.draw(["metrics", "rows"], root, 40, 3) != mutants.draw(["metrics", "rows"], root, 40, 4)
    assert len({one.key for one in drawn}) == 40
    assert sum("/metrics/" in one.file for one in drawn) == 20


def test_a_line_that_only_an_import_runs_is_tried_with_the_tests_of_its_file_or_room(mutants: ModuleType) -> None:
    tests = mutate.Tests.__new__(mutate.Tests)
    tests.budget = 10.0
    tests.seconds = {"tests/test_rows.py::a": 1.0, "tests/test_rows_folder.py::b": 2.0, "tests/test_heads.py::c": 1.0}
    tests.lines = {"src/shiftprism/rows/_x.py": {3: {"tests/test_rows_folder.py::b"}, 4: set()}}
    tests.lines["src/shiftprism/rows/_table.py"] = {4: set()}

    def choose(file: str, line: int) -> list[str]:
        return tests.choose(mutants.Mutant(f"src/shiftprism/rows/{file}.py", line, 0, 1, "constant", "1", "0"))

    assert choose("_x", 3) == choose("_x", 4) == ["tests/test_rows_folder.py::b"]
    assert choose("_table", 4) == ["tests/test_rows.py::a", "tests/test_rows_folder.py::b"]


def test_survivors_are_listed_with_their_judgement_and_a_time_limit_counts_as_killed(tmp_path: Path) -> None:
    results = {"rows": ["killed", "timeout", "survived", "killed"], "heads": ["survived"]}
    entries = [
        {"key": f"{room} {number}", "room": room, "result": result}
        for room, found in results.items()
        for number, result in enumerate(found)
    ]
    (tmp_path / "judged.json").write_text(json.dumps({"rows 2": "equivalent"}))
    assert mutate.describe(entries, list(results), tmp_path / "judged.json").splitlines()[2:] == [
        "| rows | 4 | 3 | 1 | 75 % |",
        "| heads | 1 | 0 | 0 | 0 % |",
        "| all | 5 | 3 | 1 | 60 % |",
        "",
        "- `rows 2`: equivalent",
        "- `heads 0`: not judged yet",
    ]
