#!/usr/bin/env bash
# Makes the virtual environment VENV with Composer, which brings a torch of its own, and
# builds memlab into it.  What is there already is kept.
#
#   PYTHON=python3 tools/setup_composer.sh VENV
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
composer=mosaicml==0.32.1
stamp=$venv/memlab-composer

[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$composer" ]; then
    echo "$composer, with its torch: some 5.4 GB, once"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check \
        "$composer" 'setuptools>=64' wheel pytest
    echo "$composer" >"$stamp"
fi
MEMLAB_TORCH=1 "$venv/bin/python" -W ignore setup.py -q build_ext --inplace
