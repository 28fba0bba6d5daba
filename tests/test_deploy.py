"""The files in deploy/: consistent with the package, and the Dockerfile's steps run in a plain environment."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exported import Exported
from served_digits import to_png

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
TOKEN = "a-token-of-enough-length"
MOST_INSTALLED = 250
"""Megabytes of site-packages. python:3.11-slim has about 130: together below 400."""


def read_pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {name.strip().lower().replace("_", "-"): version.split(";")[0].strip() for name, version in pairs}


def test_the_image_has_the_versions_that_are_tested_and_nothing_heavy() -> None:
    pins, tested = read_pins(DEPLOY / "requirements.txt"), read_pins(ROOT / "constraints.txt")
    assert {name: version for name, version in pins.items() if tested.get(name, version) != version} == {}
    wanted = [re.split(r"[\[\s]", line)[0] for line in (DEPLOY / "requirements.in").read_text().splitlines()]
    assert {name for name in wanted if name and not name.startswith("#")} <= set(pins)
    assert not {"torch", "scipy", "scikit-learn", "matplotlib"} & set(pins)


def test_the_dashboard_asks_for_numbers_that_exist() -> None:
    from shiftprism.serving._metrics import Metrics

    known = set()
    for family in Metrics().registry.collect():
        known |= {family.name, *(f"{family.name}_{end}" for end in ("total", "bucket", "sum", "count"))}
    board = json.loads((DEPLOY / "grafana" / "shiftprism.json").read_text(encoding="utf-8"))
    asked = {name for panel in board["panels"] for each in panel.get("targets", ()) for name in _names(each["expr"])}
    assert len(asked) > 10
    assert asked <= known


def _names(expression: str) -> list[str]:
    return re.findall(r"shiftprism_\w+", expression)


def test_flags_and_variables_of_the_files_exist() -> None:
    from dataclasses import fields

    from shiftprism.serving import Settings
    from shiftprism.serving._tokens import VARIABLE

    flags = {field.name.replace("_", "-") for field in fields(Settings)}
    for name in ("Dockerfile", "shiftprism.service"):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        (command,) = re.findall(r"^(?:ENTRYPOINT|ExecStart=)(.*(?:\\\n.*)*)", text, re.MULTILINE)
        used = set(re.findall(r"--([a-z-]+)", command))
        assert used
        assert used <= flags
    compose = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"(SHIFTPRISM_\w+):", compose)) == {"SHIFTPRISM_STORE", VARIABLE}
    secrets = set(re.findall(r"\$\{(\w+):\?\}", compose))
    given = set(re.findall(r"^(\w+)=$", (DEPLOY / "env.example").read_text(), re.MULTILINE))
    assert secrets <= given
    docker = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER [1-9]\d*$", docker, re.MULTILINE), "not root"


@pytest.mark.slow
def test_the_steps_of_the_dockerfile_serve_without_torch(exported_digits: Exported, tmp_path: Path) -> None:
    """Needs a package index, as docker does."""
    from serving_process import Client, Process, make_form

    docker = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for step in (
        "pip install --no-cache-dir hatchling build",
        "python -m build --wheel --no-isolation --outdir /wheels",
        "pip install --no-cache-dir --no-compile -r /tmp/requirements.txt",
        "pip install --no-cache-dir --no-compile --no-deps /wheels/*.whl",
    ):
        assert step in docker, "the steps below are no longer the Dockerfile's"
    source, wheels = tmp_path / "build", tmp_path / "wheels"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    builder, image = tmp_path / "builder", tmp_path / "image"
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}

    def run(*words: "str | Path", where: Path = tmp_path) -> str:
        done = subprocess.run(
            list(map(str, words)), cwd=where, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
        return done.stdout

    for folder in (builder, image):
        run(sys.executable, "-m", "venv", folder)
    run(builder / "bin/pip", "install", "-q", "--no-cache-dir", "hatchling", "build")
    run(builder / "bin/python", "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, where=source)
    pip = (image / "bin/pip", "install", "-q", "--no-cache-dir", "--no-compile")
    run(*pip, "-r", DEPLOY / "requirements.txt")
    run(*pip, "--no-deps", *wheels.glob("*.whl"))
    code = "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, ('torch', 'scipy', 'sklearn'))))"
    run(image / "bin/python", "-c", code)
    (packages,) = (image / "lib").glob("python3*/site-packages")
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file()) / 1e6
    assert size < MOST_INSTALLED, f"{size:.0f} MB"
    program = (str(image / "bin/shiftprism"),)
    clean = {"PYTHONPATH": "", "SHIFTPRISM_TOKENS": f"clients:{TOKEN}"}
    process = Process(
        exported_digits.path, str(tmp_path / "store.sqlite"), "--host", "0.0.0.0", environment=clean, program=program
    )
    anonymous, client = Client(process.port), Client(process.port, TOKEN)
    form = make_form([to_png(image) for image in exported_digits.images[:5]])
    assert anonymous.predict(*form)[0] == 401
    status, answer = client.predict(*form)
    assert status == 200
    assert [row["label"] for row in answer["predictions"]] == exported_digits.detector(
        exported_digits.images[:5]
    ).label.tolist()
    anonymous.close()
    client.close()
    assert process.stop() == 0
