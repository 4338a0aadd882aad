#!/usr/bin/env bash
# Prints the path of a CPython of VERSION: one that is here, or else Debian's unstable one,
# which is unpacked into a folder with the libraries that it needs and leaves the system as it
# is.  It takes a machine whose apt has Debian's archive; no root.
#
#   tools/get_python.sh VERSION      as in: tools/get_python.sh 3.14
set -euo pipefail

version=$1
folder=${XDG_CACHE_HOME:-$HOME/.cache}/memlab/python$version

fail()
{
    echo "memlab: CPython $version: $*" >&2
    exit 1
}

# runs PYTHON: whether it is a CPython of VERSION with its headers and the GIL.
runs()
{
    "$1" - "$version" <<'CHECK' 2>/dev/null
import os, sys, sysconfig
assert "%d.%d" % sys.version_info[:2] == sys.argv[1]
assert not sysconfig.get_config_var("Py_GIL_DISABLED")
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
CHECK
}

for python in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python3 \
    "$HOME"/.local/share/uv/python/cpython-"$version".*/bin/python3 \
    "$folder/usr/bin/python$version"; do
    if runs "$python"; then
        command -v "$python"
        exit
    fi
done

command -v apt-get >/dev/null || fail "not found, and there is no apt to get it by:" \
    "install it with its headers, for example by \`uv python install $version\`"
# The archive that this machine's own packages come from.
archive=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
    awk '$1 ~ /\/debian\/$/ && $2 == "main" { print $1; exit }')
[ -n "$archive" ] || fail "not found, and apt here has no archive of Debian's to get it" \
    "from: install it with its headers, for example by \`uv python install $version\`"

mkdir -p "${folder%/*}"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{state/lists,cache/archives}/partial "$work/root"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keys" ] && keys="[signed-by=$keys] " || keys=
echo "deb $keys$archive unstable main" >"$work/sources"
touch "$work/status"
# Lists, packages and what counts as installed (nothing) apart from the system's.
cat >"$work/apt.conf" <<CONFIG
Dir::State "$work/state";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Etc::SourceList "$work/sources";
Dir::Etc::SourceParts "$work/none";
Acquire::Languages "none";
APT::Sandbox::User "";
CONFIG
export APT_CONFIG=$work/apt.conf
{
    apt-get update -q
    apt-get install -q -y --download-only --no-install-recommends \
        "python$version-dev" "python$version-venv" patchelf
} </dev/null >"$work/apt.log" 2>&1 || {
    cat "$work/apt.log" >&2
    fail "Debian's unstable suite did not give it: install it with its headers," \
        "for example by \`uv python install $version\`"
}
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$work/root"
done

libraries=$(echo "$work"/root/usr/lib/*/libc.so.6)
libraries=${libraries%/libc.so.6}
loader=$(echo "$libraries"/ld-linux*.so.*)
target=$folder/${libraries#"$work/root/"}
edit()
{
    "$loader" --library-path "$libraries" "$work/root/usr/bin/patchelf" "$@" \
        "$work/root/usr/bin/python$version"
}
# Its own libraries come first, whatever starts it.  In this order: a program that is not
# position-independent does not survive the other.
edit --force-rpath --set-rpath "$target"
edit --set-interpreter "$target/${loader##*/}"
# The headers' own choice among processors names folders of the system.
cp "$work"/root/usr/include/*/"python$version/pyconfig.h" \
    "$work/root/usr/include/python$version/pyconfig.h"
# Where ensurepip, of the module venv, finds pip.
sed -i "s,'/usr/share/python-wheels/','$folder/usr/share/python-wheels/'," \
    "$work/root/usr/lib/python$version"/_sysconfigdata_*.py
# Links into folders of the system.
find "$work/root" -xtype l -delete
rm -rf "$folder"
mv "$work/root" "$folder"
runs "$folder/usr/bin/python$version" || fail "what was unpacked in $folder does not run"
echo "$folder/usr/bin/python$version"
