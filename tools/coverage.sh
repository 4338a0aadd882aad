#!/usr/bin/env bash
# Measures which lines of the C core and binding the C tests and the Python tests
# reach; a table here, the lines in coverage/index.html.
#
#   tools/coverage.sh VENV_PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
"$python" -c 'import gcovr' 2>/dev/null || {
    echo "memlab: gcovr not found; install it ($python -m pip install gcovr)" >&2
    exit 1
}

find build -name '*.gcda' -delete
make --no-print-directory test-c VARIANT=cov
MEMLAB_COVERAGE=1 "$python" -W ignore setup.py -q build_ext --inplace
status=0
"$python" -m pytest -q tests || status=$?
# The instrumented build must not stay: it is slow and writes files where it runs.
"$python" -W ignore setup.py -q build_ext --inplace
mkdir -p coverage
"$python" -m gcovr --root . --filter csrc/ --html-details coverage/index.html --txt - \
    build/ctest/cov build/native-*
exit $status
