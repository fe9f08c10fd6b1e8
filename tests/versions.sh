#!/usr/bin/env bash
# The unit tests on other Python versions: tests/versions.sh BUILD_DIR VERSION...
# An interpreter is looked for on PATH, then among pyenv's; one that isn't there is said, not hidden.
set -euo pipefail
build=$1
shift
for version in "$@"; do
  python=$(command -v "python$version" || true)
  if [ -z "$python" ] || ! "$python" -c 'pass' 2>/dev/null; then
    python=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python 2>/dev/null | tail -n 1 || true)
  fi
  if [ -z "$python" ]; then
    echo "Python $version: not installed here, its unit tests were not run"
    continue
  fi
  venv=$build/venv-$version
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[cpu,build,dev]'
  echo "Python $version: unit tests"
  "$venv/bin/python" -m pytest -q -m "not slow" -p no:cacheprovider tests/unit tests/conformance
done
