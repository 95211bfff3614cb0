#!/usr/bin/env bash
# Write requirements.lock: exact versions of the core and dev sets, for Python 3.11 and newer, for every platform.
# Called by `make lock`; needs uv. The CUDA packages are left out: torch brings its own, if it is a CUDA build.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${PIP_FIND_LINKS:-}" ]; then
    export UV_FIND_LINKS="${UV_FIND_LINKS:-$PIP_FIND_LINKS}"
fi
temporary="$(mktemp)"
trap 'rm -f "$temporary"' EXIT
uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --output-file "$temporary" pyproject.toml >/dev/null
{
    echo "# Pinned versions of everything 'make env' installs, CI included: the core and dev sets of pyproject.toml."
    echo "# Made by 'make lock' (uv pip compile --universal --python-version 3.11, CUDA packages left out)."
    echo "# torch is pinned without a build tag: a +cpu or +cu build that is already installed, or at hand, will do."
    grep -vE '^(nvidia-|cuda-|triton)' "$temporary" | sed -E 's/^(torch==[0-9.]+)\+[a-z0-9]+/\1/'
} >requirements.lock
echo "requirements.lock: $(grep -c '==' requirements.lock) packages"
