#!/bin/sh
# Builds memlab/viewer/core.wasm, the core that reads a file dropped onto the empty page.
#   tools/wasm.sh           builds it
#   tools/wasm.sh --check   builds it elsewhere and says whether the one here is the same
# Needs Debian's clang-14, lld-14, wasi-libc and libclang-rt-14-dev-wasm32: other versions
# make other bytes of the same source.
set -eu
cd "$(dirname "$0")/.."

FILES="account adopt annotations base blocks blocks_walk category cause chunk dialect forward
frame_lines lives ledger linetable mlab_control mlab_memory mlab_reader mlab_stacks pack
page_chunks page_data page_device page_groups page_head page_json page_kinds page_levels
page_rows page_segments peak peak_groups process_tell purposes recording replay settle
snapshot_extras snapshot_fields snapshot_memory snapshot_reader snapshot_tables stack_facts stacks stacks_objects stacks_resolve
unpickle value varint"

sources="csrc/wasm/core.c csrc/wasm/no_system.c csrc/wasm/region.c"
for file in $FILES; do
    sources="$sources csrc/core/$file.c"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
# The stack lies first, so that running over its end traps.
${CLANG:-clang-14} --target=wasm32-wasi -std=c11 -Oz -DNDEBUG -fno-ident -flto=full \
    -ffunction-sections -fdata-sections -ffile-prefix-map="$PWD=." -nostartfiles \
    -Wall -Werror \
    -Wl,--no-entry -Wl,--gc-sections -Wl,--strip-all -Wl,--stack-first \
    -Wl,-z,stack-size=1048576 -Wl,--lto-O2 \
    $sources -lc-printscan-no-floating-point -o "$work/core.wasm"

if [ "${1:-}" = --check ]; then
    cmp "$work/core.wasm" memlab/viewer/core.wasm || {
        echo "memlab/viewer/core.wasm is not what csrc makes: run make wasm" >&2
        exit 1
    }
else
    cp "$work/core.wasm" memlab/viewer/core.wasm
    wc -c memlab/viewer/core.wasm
fi
