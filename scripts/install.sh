#!/bin/sh
# Make the virtual environment where it is missing or broken, then install into it within constraints.txt.
# Usage: scripts/install.sh PYTHON VENV PIP-ARGUMENT...
set -eu

python=$1
venv=$2
shift 2

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

check_python() {
    command -v "$python" >/dev/null 2>&1 || fail \
        "There is no '$python' on this machine, and autoresearch needs Python 3.11 or newer." \
        "Install it, or name the one you have: make run PYTHON=/path/to/python3"
    version=$("$python" -c 'import platform; print(platform.python_version())')
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail \
        "autoresearch needs Python 3.11 or newer, and '$python' is $version." \
        "Name a newer one: make run PYTHON=python3.12"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || fail \
        "'$python' ($version) cannot make virtual environments: it lacks the modules venv and ensurepip." \
        "Debian and Ubuntu package them apart: sudo apt install python3-venv. Then run make again."
}

# A virtual environment whose interpreter is gone, or whose making was cut off, has no working pip.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    check_python
    "$python" -m venv --clear "$venv"
fi

echo "Installing into $venv: $*. The first time this takes a few minutes."
exec "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt "$@"
