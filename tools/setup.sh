#!/usr/bin/env bash
# Makes the virtual environment VENV with TORCH and memlab's test tools, and builds
# memlab into it.  What is there already is kept, so that a second run takes seconds.
#
#   PYTHON=python3 tools/setup.sh VENV TORCH
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
torch=$2
python=${PYTHON:-python3}
stamps=$venv/memlab-setup

fail()
{
    echo "memlab: $*" >&2
    exit 1
}

# stage NUMBER TEXT: one progress line.
stage()
{
    printf '[%s/4] %s\n' "$1" "$2"
}

pip()
{
    "$venv/bin/python" -m pip --disable-pip-version-check "$@"
}

# constraint_files: the files, on this disk, in which pip's configuration caps packages.
constraint_files()
{
    local file
    for file in ${PIP_CONSTRAINT-$(pip config list | sed -n "s/^[a-z]*\.constraint='\(.*\)'$/\1/p")}; do
        [ ! -f "$file" ] || echo "$file"
    done
}

# torch_caps FLAG: what grep FLAG prints of these files, of the lines that are on torch.
torch_caps()
{
    local files
    mapfile -t files < <(constraint_files)
    grep "$1" -iE '^[[:space:]]*torch([^a-z0-9_.-]|$)' ${files[@]+"${files[@]}"} </dev/null
}

# is_stamp NAME TEXT: whether the stamp NAME says TEXT.
is_stamp()
{
    [ -f "$stamps/$1" ] && [ "$(cat "$stamps/$1")" = "$2" ]
}

if [ ! -x "$venv/bin/python" ]; then
    command -v "$python" >/dev/null || fail "$python not found: set PYTHON to a" \
        "Python 3.10 or newer, as in: make setup PYTHON=python3.11"
    version=$("$python" -c 'import platform; print(platform.python_version())')
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail \
        "$python is Python $version, memlab needs 3.10 or newer:" \
        "set PYTHON, as in: make setup PYTHON=python3.11"
    stage 1 "virtual environment $venv (Python $version)"
    "$python" -m venv "$venv" || {
        rm -rf "$venv"
        fail "could not make $venv: is the venv module there?" \
            "(Debian: apt-get install python3-venv)"
    }
else
    stage 1 "virtual environment $venv: there"
fi
mkdir -p "$stamps"

if is_stamp torch "$torch"; then
    stage 2 "$torch: there"
else
    stage 2 "$torch (a CUDA build is some 3 GB, once)"
    rm -f "$stamps/torch"
    if ! pip install --progress-bar on "$torch"; then
        again="name another with TORCH, as in: make setup TORCH=torch==2.14.1"
        again+=" (Python 3.10 has none newer)"
        cap=$(torch_caps -H) || fail "could not install $torch: $again"
        # A cap is there for other programs: this environment holds memlab's tests alone.
        echo "memlab: pip's configuration caps torch ($cap);" \
            "once more without this line, in $venv only"
        torch_caps -hv >"$stamps/constraints" || true
        PIP_CONSTRAINT=$stamps/constraints pip install --progress-bar on "$torch" ||
            fail "could not install $torch, with or without the cap $cap: $again"
    fi
    echo "$torch" >"$stamps/torch"
fi

wanted=$(cat requirements-test.txt)
if is_stamp requirements "$wanted"; then
    stage 3 "test tools: there"
else
    stage 3 "test tools"
    # Without a hold pip may change torch: to what a cap allows, or what a tool asks for.
    { torch_caps -hv || true; pip freeze | grep '^torch[ =]'; } >"$stamps/constraints"
    PIP_CONSTRAINT=$stamps/constraints pip install -q -r requirements-test.txt
    echo "$wanted" >"$stamps/requirements"
fi

export MEMLAB_TORCH=1
# An editable install names one checkout, and its entry points are fixed then.
wanted="$PWD $(cat pyproject.toml memlab.pth | cksum)"
if is_stamp memlab "$wanted" && [ -x "$venv/bin/memlab" ]; then
    stage 4 "memlab: building what changed"
    "$venv/bin/python" -W ignore setup.py -q build_ext --inplace
else
    stage 4 "memlab: building (about a minute)"
    rm -f "$stamps/memlab"
    pip install -q --no-build-isolation --no-deps -e .
    # An editable install has no files but the package's own.
    cp memlab.pth "$("$venv/bin/python" -c \
        'import sysconfig; print(sysconfig.get_path("purelib"))')"
    echo "$wanted" >"$stamps/memlab"
fi
