#!/usr/bin/env bash
# Builds the docs site into build/docs, in an environment of its own, VENV.  A link to a page
# or a heading that is not there is a failure.
#
#   PYTHON=python3 MEMLAB_PYTHON=.venv/bin/python tools/docs/build.sh VENV
#
# MEMLAB_PYTHON has memlab built: the pages of the command line are made from its parsers.
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=$1
stamp=$venv/memlab-docs
wanted=$(cat tools/docs/requirements.txt)

[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    echo "mkdocs and its theme: some 170 MB, once"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check \
        -r tools/docs/requirements.txt
    echo "$wanted" >"$stamp"
fi
# Without the theme's advertisement of another generator.  With --quiet, --strict would count
# no warning.
NO_MKDOCS_2_WARNING=1 "$venv/bin/python" -m mkdocs build --strict \
    --config-file tools/docs/mkdocs.yml
echo "Docs: build/docs/index.html"
