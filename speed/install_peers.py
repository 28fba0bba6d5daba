"""What `pip install` brings, for ShiftPrism and its peers: python speed/install_peers.py

pip resolves each in an empty environment and installs nothing. torch is held at one version, so that a peer without a
bound of its own does not pull another build; torch and what it brings itself are counted apart.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PEERS = ("torch", ".", "pytorch-ood==0.4.0", "torch-uncertainty[cpu]==0.13.0", "probmetrics==1.3.0", "openood")


def list_packages(wanted: str, folder: Path) -> set[str] | None:
    """The names of all packages, or None where pip finds no way."""
    (folder / "constraints.txt").write_text("torch==2.13.0\n")
    report = folder / "report.json"
    words = ["install", "--dry-run", "--ignore-installed", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", *words, "-c", str(folder / "constraints.txt"), "--report", str(report)]
    done = subprocess.run([*command, wanted], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{wanted}: {done.stderr.strip().splitlines()[-1]}")
        return None
    return {item["metadata"]["name"].lower().replace("_", "-") for item in json.loads(report.read_text())["install"]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {wanted: list_packages(wanted, Path(folder)) for wanted in PEERS}
    own = found["torch"] or set()
    for wanted, names in found.items():
        if names is not None and wanted != "torch":
            others = sorted(names - own - {re.split(r"[\[=]", wanted)[0], "shiftprism"})
            with_torch = "torch" if "torch" in names else "no torch"
            print(f"{wanted}: {with_torch} and {len(others)} more: {', '.join(others)}")


if __name__ == "__main__":
    main()
