#!/usr/bin/env bash
# Ask pip-audit whether a pinned dependency (constraints.txt) has a known weakness. It needs a network: without one, or without
# pip-audit on the index, this says so and ends with 0; with findings it ends with 1.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --disable-pip-version-check -q pip-audit >"$place/log" 2>&1 || {
  echo "not audited: pip-audit cannot be installed here"
  exit 0
}
"$place/venv/bin/pip-audit" --disable-pip --no-deps --progress-spinner off --timeout 15 -r constraints.txt >"$place/found" 2>"$place/log" && {
  skipped=$(grep -c 'could not be audited' "$place/found" || true)
  echo "no known weakness in $(($(grep -c == constraints.txt) - skipped)) pinned packages; $skipped are not known to the index of advisories"
  exit 0
}
if [ -s "$place/found" ]; then
  cat "$place/found"
  exit 1
fi
echo "not audited: $(tail -n 1 "$place/log")"
