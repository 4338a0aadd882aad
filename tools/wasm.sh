#!/usr/bin/env bash
# Builds memlab/viewer/core.wasm, the core that reads a file dropped onto the empty page.
#   tools/wasm.sh           builds it
#   tools/wasm.sh --check   builds it elsewhere and says whether the one here is the same
# Needs Debian's clang-14, lld-14, llvm-14, wasi-libc and libclang-rt-14-dev-wasm32: other
# versions make other bytes of the same source.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work

# What the page needs of the core: what reads files, analyses, judges, and writes the page's
# data.
# It has no system, and so nothing of base/system.
rooms=(base recording stacks ledger file/codec file/mlab file/snapshot analysis
    gpu/gpu_account.c gpu/placement.c lab show/text show/page)

# compile FILE: into $work.
compile()
{
    clang-14 --target=wasm32-wasi -std=c11 -Icsrc -Icsrc/core -Oz -DNDEBUG -flto -fno-ident \
        -Werror -c "$1" \
        -ffile-prefix-map="$PWD=." -o "$work/${1//\//_}.o"
}
export -f compile
find "${rooms[@]/#/csrc/core/}" csrc/wasm -name '*.c' -not -path '*/base/system/*' | sort |
    xargs -P "$(nproc)" -n 1 bash -c 'compile "$1"' compile

llvm-ar-14 rcsD "$work/core.a" "$work"/csrc_core_*.o
# The stack lies first, so that running over its end traps.
clang-14 --target=wasm32-wasi -nostartfiles \
    -Wl,--no-entry,--gc-sections,--strip-all,--stack-first,-z,stack-size=1048576 \
    "$work"/csrc_wasm_*.o "$work/core.a" -lc-printscan-no-floating-point \
    -o "$work/core.wasm"

if [ "${1:-}" = --check ]; then
    cmp "$work/core.wasm" memlab/viewer/core.wasm || {
        echo "memlab/viewer/core.wasm is not what csrc makes: run make wasm" >&2
        exit 1
    }
else
    install -m 644 "$work/core.wasm" memlab/viewer/core.wasm
    wc -c memlab/viewer/core.wasm
fi
