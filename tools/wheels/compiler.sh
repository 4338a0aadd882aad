#!/usr/bin/env bash
# gcc where it is called as `cc`, g++ as `c++`, of this machine, for programs that run with
# glibc 2.28 and the libstdc++ of its time: compiles against the headers that PyPI's Zig has of
# that glibc, and links with Zig, which has the symbols.
#
# Read from the environment: MEMLAB_ZIG (the folder of PyPI's ziglang), MEMLAB_OLD (the object
# of old_libraries.cpp).
set -euo pipefail

libc=$MEMLAB_ZIG/lib/libc/include
own=$(dirname "$(gcc -print-libgcc-file-name)")
version=$(basename "$own")

c_folders=("$own/include" "$libc"/{x86_64-linux-gnu,x86-linux-gnu,generic-glibc}
    "$libc"/{x86,any}-linux-any)
cxx_folders=("/usr/include/c++/$version" "/usr/include/x86_64-linux-gnu/c++/$version")
flags=(-nostdinc -D__GLIBC_MINOR__=28 "$@")

case "$(basename "$0") $* " in
*" -shared "*)
    words=()
    linked=("$own/libgcc.a")
    [ "$(basename "$0")" = cc ] ||
        linked+=("$MEMLAB_OLD" "$(g++ -print-file-name=libstdc++.so)")
    for word; do
        # Debian's CPythons ask for this, which Zig does not know.
        [ "$word" = -Wl,-Bsymbolic-functions ] || words+=("$word")
    done
    # Symbols that are missing are found when the library is loaded, not when one is called.
    exec "$MEMLAB_ZIG/zig" cc -target x86_64-linux-gnu.2.28 "${words[@]}" -Wl,-z,now \
        "${linked[@]}"
    ;;
cc*)
    exec gcc "${flags[@]}" $(printf -- '-isystem %s ' "${c_folders[@]}")
    ;;
*)
    exec g++ "${flags[@]}" -nostdinc++ \
        $(printf -- '-isystem %s ' "${cxx_folders[@]}" "${c_folders[@]}")
    ;;
esac
