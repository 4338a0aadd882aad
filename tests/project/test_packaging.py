"""What is shipped: the source archive, the wheel built from it, and the wheel installed
where there is no torch."""

import json
import subprocess
import sys
import tarfile
import zipfile

import pytest
from checkout import ROOT, copy_checkout, run_python

import memlab

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source archive of this checkout, unpacked."""
    pytest.importorskip("build", reason="the package `build` is not installed")
    folder = tmp_path_factory.mktemp("sdist")
    checkout = copy_checkout(folder / "checkout")
    run_python(
        "-m",
        "build",
        "--sdist",
        "--no-isolation",
        "--outdir",
        folder,
        cwd=checkout,
        MEMLAB_TORCH=0,
    )
    (archive,) = folder.glob("memlab-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """A wheel built from the unpacked source archive, without torch.

    Not optimised: what the tests ask is what is in it, and so it goes fast.
    """
    folder = tmp_path_factory.mktemp("wheel")
    run_python(
        *("-m", "pip", "wheel", "--no-build-isolation", "--no-deps"),
        *("--wheel-dir", folder, "."),
        cwd=sdist,
        MEMLAB_TORCH=0,
        MEMLAB_DEBUG=1,
    )
    (made,) = folder.glob("memlab-*.whl")
    return made


def names_under(folder, *patterns):
    found = {p for pattern in patterns for p in folder.rglob(pattern) if p.is_file()}
    return {str(p.relative_to(folder)) for p in found}


def test_sdist_has_every_file_that_building_and_testing_need(sdist):
    for folder in ("csrc", "tests", "examples", "tools"):
        kept = names_under(ROOT / folder, "*.[ch]", "*.cpp", "*.py", "*.flags", "*.txt")
        assert kept <= names_under(sdist / folder, "*"), folder
    assert names_under(sdist, "*.so") == set()


def test_wheel_has_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {n.removeprefix("memlab/") for n in names if n.startswith("memlab/")}
    assert {n.split("/")[0] for n in names} == {
        "memlab",
        "memlab.pth",
        "pytest_memlab.py",
        f"memlab-{memlab.__version__}.dist-info",
    }
    assert names_under(ROOT / "memlab", "*.py", "*.pyi", "py.typed") <= package
    viewer = {f"viewer/{n}" for n in names_under(ROOT / "memlab" / "viewer", "*")}
    assert {n for n in viewer if "__pycache__" not in n} <= package
    bridge = {f"_bridge_src/torch/{n}" for n in names_under(ROOT / "csrc/torch", "*.cpp", "*.h")}
    assert bridge | {"_bridge_src/core/memlab.h"} <= package
    assert any(n.startswith("_core.") and n.endswith(".so") for n in package)
    assert not any(n.startswith("_torch.") and n.endswith(".so") for n in package)
    if sys.platform == "linux":
        assert "libmemlab_phantom.so" in package
    assert {"phantom_driver/libcuda.a", "phantom_driver/libcuda.so.1"} <= package


def test_wheel_declares_what_it_is(wheel):
    archive = zipfile.ZipFile(wheel)
    prefix = f"memlab-{memlab.__version__}.dist-info"
    metadata = archive.read(f"{prefix}/METADATA").decode()
    header = metadata.split("\n\n")[0].splitlines()
    assert "Name: memlab" in header
    assert "Requires-Python: >=3.10" in header
    assert {"License: MIT", "License-Expression: MIT"} & set(header)
    required = [h for h in header if h.startswith("Requires-Dist:")]
    assert all("extra ==" in h for h in required), "memlab has no runtime dependencies"
    points = archive.read(f"{prefix}/entry_points.txt").decode()
    assert "memlab = memlab.__main__:main" in points
    assert "[pytest11]\npytest_memlab = pytest_memlab" in points


def test_installed_without_torch_it_imports_and_says_what_is_missing(wheel, tmp_path):
    venv = tmp_path / "venv"
    run_python("-m", "venv", venv, cwd=tmp_path)
    python = venv / "bin" / "python"
    install = (python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel)
    program = (
        "import json, sys, memlab\n"
        "imported_torch = 'torch' in sys.modules\n"
        "print(json.dumps([memlab.__file__, imported_torch, memlab.backends()]))"
    )
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(install, check=True, cwd=tmp_path, env=plain)
    output = subprocess.run(
        (python, "-c", program),
        check=True,
        cwd=tmp_path,
        env=plain,
        capture_output=True,
        text=True,
    ).stdout
    where, imported_torch, backends = json.loads(output)
    assert where.startswith(str(venv))
    assert not imported_torch
    assert "torch" in json.dumps(backends["cuda"])
    usage = subprocess.run(
        (venv / "bin" / "memlab", "--help"),
        check=True,
        cwd=tmp_path,
        env=plain,
        capture_output=True,
        text=True,
    ).stdout
    assert "report" in usage and "run" in usage
