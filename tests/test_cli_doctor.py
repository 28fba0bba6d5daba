"""`shiftprism doctor`, and completion for shells."""

import os
import subprocess
import sys
from importlib import metadata

import pytest

from shiftprism.cli import main

OLD = ("torch>=2.6", "tomli>=2; python_version < '3.11'", 'ray>=2.40; extra == "cluster"', 'pytest>=8; extra == "dev"')


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0)


def test_it_names_versions_extras_devices_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 0
    printed = capsys.readouterr().out
    for package in ("torch", "numpy", "scikit-learn", "pillow"):
        assert f"  {package:14} {metadata.version(package)}\n" in printed
    assert f"accelerate {metadata.version('accelerate')}\n" in printed
    assert "\nDevices\n  cpu " in printed
    assert "  digits         with scikit-learn\n" in printed
    assert "dev " not in printed.partition("Extras")[2].partition("Devices")[0]
    assert printed.endswith("All is well.\n")


def test_an_extra_that_is_missing_has_its_pip_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: [*OLD, 'no-such-package>=1; extra == "cluster"'])
    assert run("doctor") == 0
    lines = capsys.readouterr().out.splitlines()
    assert '  cluster        missing no-such-package: pip install "shiftprism[cluster]"' in lines
    assert any(line.startswith("  tomli") for line in lines) == (sys.version_info < (3, 11))


def test_a_torch_that_does_not_load_is_named_and_kills_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> None:
        if name == "torch":
            raise OSError("libtorch_cpu.so: cannot open shared object file")

    monkeypatch.setattr("shiftprism.cli.doctor.importlib.import_module", load)
    assert run("doctor") == 1
    printed = capsys.readouterr().out
    version = metadata.version("torch")
    assert f"  {'torch':14} {version:14} does not load: libtorch_cpu.so: cannot open shared object file\n" in printed
    assert "torch does not load, so others cannot be seen" in printed
    assert "Not well: torch. Run: pip install --force-reinstall torch\n" in printed


def test_a_core_package_that_is_missing_is_said_to_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["no-such-package>=1"])
    assert run("doctor") == 1
    assert f"  {'no-such-package':14} {'-':14} is missing" in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "wanted"), [("shiftprism do", "doctor"), ("shiftprism data c", "check")])
def test_a_shell_completes_commands(typed: str, wanted: str) -> None:
    count = str(len(typed.split()) - 1)
    asked = {"_SHIFTPRISM_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": count}
    code = "import sys; sys.argv = ['shiftprism']; from shiftprism.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [wanted]
