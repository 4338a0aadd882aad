#!/usr/bin/env bash
# Runs every C test, each under RUNNER if that is not empty and one beside the other, and
# adds up their counts.
#
#   tools/run_c_tests.sh RUNNER TEST...
set -euo pipefail

export runner=$1
shift
results=$(mktemp -d)
export results
trap 'rm -rf "$results"' EXIT
printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -n 1 bash -c '
    status=0
    $runner "$1" >"$results/${1##*/}" || status=$?
    echo "$status" >"$results/${1##*/}.status"' run_test
passed=0
failed=0
for test in "$@"; do
    status=$(<"$results/${test##*/}.status")
    output=$(<"$results/${test##*/}")
    last=${output##*$'\n'}
    printf '%-52s %s\n' "$test" "$last"
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        if [ "$status" -ne 0 ] && [ "${BASH_REMATCH[2]}" -eq 0 ]; then
            echo "$test: exit status $status" >&2
            failed=$((failed + 1))
        fi
    else
        echo "$test: exit status $status, no count on its last line" >&2
        failed=$((failed + 1))
    fi
done
echo "C tests: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
