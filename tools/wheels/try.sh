#!/usr/bin/env bash
# Installs a wheel where there is no compiler and records a program with it.
#
#   tools/wheels/try.sh WHEEL PYTHON
#
# PYTHON is an interpreter that has torch; what it has is read, not changed.  Where it has
# pytest, xdist and IPython too, five tasks of the docs are done by their pages, word for word.
set -euo pipefail

wheel=$(realpath "$1")
python=$(command -v "$2")
# Of a virtual environment it is a link, which must stay.
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
root=$(realpath "$(dirname "$0")/../..")
program=$root/examples/train_gpt.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$work/venv/bin/python" -m pip --disable-pip-version-check install -q --no-deps "$wheel"
# Its folders of packages, without what its own .pth files add.
"$python" -c 'import os, site
print(*filter(os.path.isdir, site.getsitepackages()), sep="\n")' >"$site/torch.pth"

cd "$work"
# Nothing on the PATH but the environment's own commands.
env -i HOME="$work" PATH="$work/venv/bin" MEMLAB_CACHE="$work/cache" memlab run \
    --phantom rtx4090 --out out "$program" --steps 2 --layers 2 --dim 48 --batch 2 --block 32 \
    2>&1 | tee said
if [ -e cache ] || grep -q "building" said; then
    echo "a bridge was compiled" >&2
    exit 1
fi
grep -q "^Peak on cuda:0: " said
env -i HOME="$work" PATH="$work/venv/bin" memlab report out >/dev/null
# As a launcher's program is recorded: by memlab.pth, which only an installed memlab has.
env -i HOME="$work" PATH="$work/venv/bin" MEMLAB="--out unchanged --quiet" memlab phantom \
    --gpu rtx4090 python "$program" --steps 2 --layers 2 --dim 48 --batch 2 --block 32
[ -e unchanged/rank0.mlab ]
if "$python" -c 'import IPython, pytest, xdist' 2>/dev/null; then
    (cd "$root" && MEMLAB_PAGES_PYTHON=$work/venv/bin/python "$python" -m pytest -q \
        -n "$(nproc)" -p no:cacheprovider tests/project/test_task_pages.py \
        -k "does_what_it_says and tasks and (oom or leak or fit or ci or notebook)")
fi
echo "$(basename "$wheel") records with $("$python" -c 'import torch; print(torch.__version__)')"
