#!/usr/bin/env bash
# Make .venv and install the pinned packages and this checkout into it: with uv when present, with pip otherwise.
# An existing .venv is kept (so a torch for your own GPU, installed first, stays); PYTHON=/path/to/python overrides
# the search for an interpreter. Called by `make env`.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS

usable() { # is this command a Python 3.11 or newer?
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14 python; do
        if usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "engram_lab needs Python 3.11 or newer, and none was found as python3, python3.11 to python3.14 or python." \
        "Install one, or say where it is: make env PYTHON=/path/to/python3.11" >&2
    return 1
}

if [ -e .venv/bin/python ] && ! usable .venv/bin/python; then
    echo "The Python behind .venv is gone or older than 3.11. Remove the folder (rm -r .venv) and run make env again." >&2
    exit 1
fi

if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then
    installer="uv"
    # uv does not read pip's find-links, where a machine may keep its own torch build
    if [ -n "${PIP_FIND_LINKS:-}" ]; then
        export UV_FIND_LINKS="${UV_FIND_LINKS:-$PIP_FIND_LINKS}"
    fi
    if [ ! -e .venv/bin/python ]; then
        python="$(find_python)"
        uv venv --quiet --python "$("$python" -c 'import sys; print(sys.executable)')" .venv
    fi
    install() { uv pip install --quiet --python .venv/bin/python "$@"; }
else
    installer="pip"
    if [ ! -e .venv/bin/python ]; then
        python="$(find_python)"
        "$python" -m venv --without-pip .venv
    fi
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        if ! .venv/bin/python -m ensurepip --upgrade >/dev/null 2>&1; then
            echo "This Python has no ensurepip, so .venv has no pip. On Debian or Ubuntu: apt-get install python3-venv;" \
                "or install uv. Then run make env again." >&2
            exit 1
        fi
    fi
    install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input "$@"; }
fi

echo "Installing engram_lab and what it needs into .venv, with $installer (once; a few minutes at most) ..."
install -r requirements.lock
install --no-deps -e .
echo "Installed with $installer in $((SECONDS - started)) s."
