#!/usr/bin/env bash
# Checks the lengths of source files, the layout of the C files, their warnings under gcc and
# clang, cppcheck, ruff, the order of the rooms and coined terms.  A missing tool is a failure
# that names its package.
#
#   tools/lint.sh C_FILE...
set -uo pipefail
cd "$(dirname "$0")/.."

failed=0

# check NAME COMMAND...: runs it and remembers a failure.
check()
{
    local name=$1
    shift
    if "$@"; then
        echo "lint: $name: clean"
    else
        echo "lint: $name: FAILED" >&2
        failed=1
    fi
}

# find_tool PACKAGE NAME...: prints the first NAME that there is.
find_tool()
{
    local package=$1 name
    shift
    for name in "$@"; do
        if command -v "$name" >/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "lint: $1 not found; install it ($package)" >&2
    return 1
}

# layout CLANG_FORMAT FILE...: names the files that `make format` would change.
layout()
{
    local tool=$1 file status=0
    shift
    for file in "$@"; do
        "$tool" --dry-run -Werror "$file" 2>/dev/null || {
            echo "$file: not as \`make format\` would have it" >&2
            status=1
        }
    done
    return $status
}

# lengths: names source files of more than 600 lines.  Tables of data end otherwise (.def).
lengths()
{
    local long
    long=$(find setup.py pytest_memlab.py csrc memlab tests examples bench tools -type f \
        \( -name '*.[ch]' -o -name '*.cpp' -o -name '*.py' -o -name '*.js' \) \
        -exec awk 'END { if (FNR > 600) print FILENAME ": " FNR " lines, at most 600" }' \
        {} \;)
    [ -z "$long" ] || {
        echo "$long" >&2
        return 1
    }
}

objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
export objects

# compile CC INCLUDE FILE: compiles FILE with -Werror, into $objects.
compile()
{
    local cc=$1 include=$2 file=$3 flags object
    object=$objects/$cc/${file#csrc/}.o
    mkdir -p "${object%/*}"
    flags=(-O2 -fPIC @tools/warnings.flags -Werror -isystem "$include" -Icsrc -Icsrc/core)
    case $file in
    csrc/core/*) flags+=(@tools/warnings-core.flags) ;;
    csrc/py/*) flags+=(-Icsrc/py) ;;
    csrc/phantom/*) flags+=(-Icsrc/phantom) ;;
    tests/c/*) flags+=(-Icsrc/py -Itests/c/support) ;;
    esac
    "$cc" "${flags[@]}" -c "$file" -o "$object"
}
export -f compile

# warnings CC: every C file compiled, as many at a time as there are processors.
warnings()
{
    local cc=$1 include
    include=$("${PYTHON:-python3}" -c \
        'import sysconfig; print(sysconfig.get_path("include"))')
    find csrc/core csrc/py csrc/phantom tests/c -name '*.c' -print0 | sort -z |
        xargs -0 -P "$(nproc)" -n 1 bash -c 'compile "$@"' compile "$cc" "$include"
}

# imports LINT_IMPORTS: shows what it says only where it finds something.
imports()
{
    local said
    said=$("$1" --config tools/rooms.ini --no-cache --no-logo 2>&1) || {
        echo "$said" >&2
        return 1
    }
}

check "lengths of files" lengths
check "terms" "${PYTHON:-python3}" tools/words.py
if tool=$(find_tool "Debian: apt-get install clang-format-14" clang-format-14); then
    check clang-format layout "$tool" "$@"
else
    failed=1
fi
for compiler in gcc clang; do
    names=("$compiler")
    [ "$compiler" = clang ] && names=(clang-14 clang)
    if tool=$(find_tool "Debian: apt-get install ${names[0]}" "${names[@]}"); then
        check "warnings of $tool" warnings "$tool"
    else
        failed=1
    fi
done
check "rooms of csrc/" "${PYTHON:-python3}" tools/rooms.py "$objects/gcc"
if tool=$(find_tool "Debian: apt-get install cppcheck" cppcheck); then
    check cppcheck "$tool" --quiet --std=c11 --language=c --error-exitcode=1 \
        --enable=warning,performance --library=python --inline-suppr -Icsrc -Icsrc/core \
        -Icsrc/py -Icsrc/phantom csrc/core csrc/py csrc/phantom
else
    failed=1
fi
if tool=$(find_tool "pip install ruff" ruff "${MEMLAB_VENV:-.venv}/bin/ruff"); then
    check ruff "$tool" check --quiet setup.py memlab tests examples bench tools
else
    failed=1
fi
if tool=$(find_tool "pip install import-linter" lint-imports \
    "${MEMLAB_VENV:-.venv}/bin/lint-imports"); then
    check "rooms of memlab/" imports "$tool"
else
    failed=1
fi
exit $failed
