"""The house itself: layers without cycles, exact public names, small rooms, and a base install that imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import shiftprism

SOURCE = Path(shiftprism.__file__).parent
ROOT = Path(__file__).resolve().parents[1]
# What a room may import: rooms of its own row or of a row above it, and never in a circle.
ROWS = (
    ("_errors", "_checks", "_devices", "_extras", "_files", "_imports", "_lazy", "_levels", "_npz", "_tasks"),
    ("outputs", "rows", "verdicts", "_exported"),
    ("backbones", "heads", "scores", "calibrators", "metrics", "corruptions", "style"),
    ("datasets", "shifts", "classifier", "edits"),
    ("detector", "training", "recommend"),
    ("benchmark", "monitor", "export"),
    ("claims", "plots", "report", "runtime", "store", "archives"),
    ("serving",),
    ("cli", "__main__"),
)
EXTRAS = (
    *("accelerate", "ray", "datasets", "huggingface_hub", "tensorboard", "onnx", "onnxscript", "onnxruntime"),
    *("fastapi", "starlette", "uvicorn", "httptools", "python_multipart", "prometheus_client"),
    *("psycopg", "psycopg_pool", "pyarrow"),
    *("pytest", "hypothesis", "playwright", "schemathesis"),
)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_rooms(path: Path) -> set[str]:
    """The rooms a file imports anywhere in it, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "shiftprism":
            found |= {alias.name for alias in node.names if alias.name != "__version__"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shiftprism."):
            found.add(str(node.module).split(".")[1])
    return found


def graph() -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if path != SOURCE / "__init__.py":
            edges.setdefault(room_of(path), set()).update(imported_rooms(path) - {room_of(path)})
    return edges


def test_rooms_import_from_above_only() -> None:
    row = {room: number for number, rooms in enumerate(ROWS) for room in rooms}
    edges = graph()
    assert set(edges) <= set(row), "a new room belongs into ROWS, and into the design"
    wrong = [f"{room} imports {other}" for room, others in edges.items() for other in others if row[other] > row[room]]
    assert wrong == []


def test_there_is_no_cycle() -> None:
    edges, done = graph(), set[str]()

    def visit(room: str, path: tuple[str, ...]) -> None:
        assert room not in path, " -> ".join((*path, room))
        if room not in done:
            for other in edges.get(room, set()):
                visit(other, (*path, room))
            done.add(room)

    for room in edges:
        visit(room, ())


def foreign_imports(path: Path) -> set[str]:
    """The modules inside other rooms, and the private names of other rooms, that a file imports."""
    inside = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            inside |= {alias.name for alias in node.names if alias.name.count(".") > 1}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shiftprism."):
            module = str(node.module)
            private = {f"{module}.{alias.name}" for alias in node.names if alias.name.startswith("_")}
            inside |= {module} if module.count(".") > 1 else private
    rooms = {name for name in inside if name.startswith("shiftprism.") and not name.split(".")[1].startswith("_")}
    return {name for name in rooms if name.split(".")[1] != room_of(path)}


def test_no_room_imports_from_inside_another() -> None:
    """What a room offers stands in its `__init__`; files at the package's top level (`_files`, …) are everyone's."""
    offences = {
        f"{path.relative_to(SOURCE)} imports {name}" for path in SOURCE.rglob("*.py") for name in foreign_imports(path)
    }
    assert offences == set()


def test_files_of_a_room_are_private() -> None:
    """A room's folder holds `__init__.py` and `_x.py`. The files of `cli` are named like its commands."""
    files = {path for path in SOURCE.glob("*/**/*.py") if room_of(path) != "cli"}
    offences = {str(path.relative_to(SOURCE)) for path in files if not path.name.startswith("_")}
    assert offences == set()


@pytest.mark.parametrize("folder", ["src", "tests", "speed", "tools"])
def test_rooms_stay_small(folder: str) -> None:
    own = [path for path in (ROOT / folder).rglob("*.py") if not any(part.startswith(".venv") for part in path.parts)]
    long = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in own}
    assert {path: lines for path, lines in long.items() if lines > 500} == {}


def test_public_names_are_exact() -> None:
    assert sorted(shiftprism.__all__) == ["Classifier", "Detector", "Outputs", "__version__", "adapt", "predict"]
    assert dir(shiftprism) == sorted(shiftprism.__all__)
    for name in shiftprism.__all__:
        assert getattr(shiftprism, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Oracle'; its public names are"):
        shiftprism.Oracle  # noqa: B018


def python(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("room", ["", ".rows", ".verdicts", ".claims", ".benchmark", ".runtime", ".monitor", ".store"])
def test_rooms_that_import_without_torch(room: str) -> None:
    """`benchmark` offers `Plan` to the command line before it loads what runs one."""
    done = python(f"import sys, shiftprism{room}; assert 'torch' not in sys.modules, 'torch'")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_module_imports_without_any_extra() -> None:
    code = f"""
import importlib, pkgutil, sys
for name in {EXTRAS!r}:
    sys.modules[name] = None  # an import of it fails from here on
import shiftprism
count = 0
for module in pkgutil.walk_packages(shiftprism.__path__, "shiftprism."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        count += 1
print(count)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_a_missing_extra_is_named_with_its_pip_line() -> None:
    code = """
import sys
sys.modules["datasets"] = None
from shiftprism.datasets import load
load("hf:someone/something", "train")
"""
    done = python(code)
    assert 'pip install "shiftprism[hf]"' in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["demo", "--help"],
        ["fit", "--help"],
        ["score", "--help"],
        ["explain", "--help"],
        ["data", "show", "--help"],
        ["train", "--help"],
        ["calibrate", "--help"],
        ["list", "scores", "--help"],
        ["benchmark", "--help"],
        ["claims", "--help"],
        ["report", "--help"],
        ["monitor", "--help"],
        ["serve", "--help"],
        ["store", "export", "--help"],
    ],
)
def test_help_answers_without_torch(words: list[str]) -> None:
    code = f"""
import sys
sys.argv = ["shiftprism", *{words!r}]
from shiftprism.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = {{"torch", "numpy", "scipy", "sklearn", "matplotlib"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_only_the_command_line_prints() -> None:
    for path in SOURCE.rglob("*.py"):
        if room_of(path) != "cli":
            calls = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
            assert not [n for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"], path
