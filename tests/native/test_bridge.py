"""Finding, building and refusing bridges to torch, in copies of the package."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memlab._native import bridge

ROOT = Path(__file__).resolve().parents[2]

LOAD = """
import sys
from memlab._native import bridge
module = bridge.load()
assert module is bridge.load() is sys.modules["memlab._torch"]
print(module.__file__)
"""

EXPECT_ERROR = """
import memlab
from memlab._native import bridge
try:
    bridge.load()
except memlab.Error as error:
    print(error)
else:
    raise SystemExit("no error")
"""


def copy_package(folder):
    """A copy of the installed layout under FOLDER: the package with the bridge's sources
    inside, without a built bridge."""
    package = folder / "memlab"
    ignored = shutil.ignore_patterns("_torch.*.so", "_bridge_src", "__pycache__")
    shutil.copytree(ROOT / "memlab", package, ignore=ignored)
    shipped = package / "_bridge_src"
    shutil.copytree(ROOT / "csrc" / "torch", shipped / "torch")
    (shipped / "core").mkdir()
    shutil.copy(ROOT / "csrc" / "core" / "memlab.h", shipped / "core")
    return package


def environment(folder, **changes):
    """Where Python finds the package in FOLDER and keeps bridges in FOLDER/cache."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MEMLAB_")}
    return {
        **kept,
        "PYTHONPATH": str(folder),
        "MEMLAB_CACHE": str(folder / "cache"),
        **changes,
    }


def start(folder, code, **changes):
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(folder, **changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder, code, **changes):
    """Standard output of Python code that sees the package in FOLDER."""
    process = start(folder, code, **changes)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    return out.strip()


@pytest.mark.parametrize("new", [True, False])
def test_the_kind_of_strings_is_told_by_a_function_of_c10(tmp_path, new):
    """torch 2.6 has old strings, and the new ones of the library that is linked into it."""
    names = [b"_ZNSt11logic_errorC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"]
    names.append(b"_ZN3c1014DeviceTypeName%sENS_10DeviceTypeEb" % (b"B5cxx11" if new else b""))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libc10.so").write_bytes(b"\0".join(names))
    assert bridge.TorchBuild(tmp_path).new_strings is new


def test_the_kind_of_strings_is_that_which_torch_says(torch):
    build = bridge.TorchBuild(Path(torch.__file__).parent)
    assert build.new_strings == torch.compiled_with_cxx11_abi()


@pytest.fixture
def package(tmp_path, torch):
    return copy_package(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(folder, path) of a package whose bridge was built at first use, by two processes
    that needed it at once, and what they said."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("built")
    copy_package(folder)
    processes = [start(folder, LOAD) for _ in range(2)]
    said = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    return folder, said


def bridge_module(package):
    """_native/bridge.py of PACKAGE, apart from the one that the tests' process may have."""
    spec = importlib.util.spec_from_file_location("copy_bridge", package / "_native/bridge.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_processes_build_one_bridge_and_say_so(built, torch):
    folder, said = built
    (path,) = {Path(out.strip()) for out, _ in said}
    assert path.parent.parent == folder / "cache" / "bridge"
    assert torch.__version__ in path.parent.name
    errors = "".join(err for _, err in said).splitlines()
    building = [line for line in errors if "building" in line]
    assert len(building) == 1 and torch.__version__ in building[0]
    assert all(line.startswith("memlab: ") for line in errors), errors
    assert sorted(p.name for p in path.parent.iterdir()) == ["_torch.so", "lock"]
    assert path.stat().st_mode & 0o022 == 0


def test_a_built_bridge_is_loaded_without_a_word_or_a_compiler(built):
    folder, said = built
    process = start(folder, LOAD, CXX="/nowhere/c++")
    out, err = process.communicate(timeout=300)
    assert (out, err) == (said[0][0], "")


def test_an_installed_bridge_comes_before_the_cache(built, tmp_path):
    folder, said = built
    package = copy_package(tmp_path)
    bridge = bridge_module(package)
    installed = package / bridge.file_name(bridge.bridge_key())
    shutil.copy(said[0][0].strip(), installed)
    assert run(tmp_path, LOAD, CXX="/nowhere/c++") == str(installed)
    assert not (tmp_path / "cache").exists()


def test_the_key_stands_for_the_sources(package):
    bridge = bridge_module(package)
    before = bridge.bridge_key()
    assert bridge.bridge_key() == before
    source = package / "_bridge_src" / "torch" / "sources" / "cpu.cpp"
    source.write_text(source.read_text() + "\n")
    assert bridge.bridge_key() != before


def test_a_missing_compiler_is_named_with_the_remedy(package, torch):
    process = start(package.parent, EXPECT_ERROR, CXX="/nowhere/c++")
    said, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "C++ compiler" in said and "g++" in said and torch.__version__ in said
    assert "building" not in err


def test_no_compiler_on_the_path_is_the_same(package):
    said = run(package.parent, EXPECT_ERROR, CXX="", PATH="/nowhere")
    assert "apt-get install g++" in said


def test_torches_that_the_package_has_bridges_to_are_named(package, torch):
    for version in ("2.10.0+cu128", "2.5.0+cu121"):
        other = package / f"_torch.cp311-torch{version}-0123456789ab.so"
        other.write_bytes(b"never to be opened")
    said = run(package.parent, EXPECT_ERROR, CXX="/nowhere/c++")
    assert len(said.splitlines()) == 1
    assert "bridges to torch 2.5.0+cu121, 2.10.0+cu128, none to torch" in said
    assert torch.__version__ in said and "apt-get install g++" in said


def test_a_wrong_file_under_the_right_name_is_refused(built):
    path = built[1][0][0].strip()
    said = run(
        built[0],
        f"""
import sys, types
import memlab, torch
from memlab._native import bridge
try:
    bridge.import_bridge(types.SimpleNamespace(__version__="9.9.9"), {path!r})
except memlab.Error as error:
    print(error)
assert "memlab._torch" not in sys.modules
""",
    )
    assert (
        "9.9.9" in said and f"{path} was built for torch" in said and "remove" in said
    )


def test_a_damaged_bridge_is_refused_by_its_path(package):
    bridge = bridge_module(package)
    cached = package.parent / "cache" / "bridge" / bridge.bridge_key() / "_torch.so"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"not a library")
    said = run(package.parent, EXPECT_ERROR)
    assert str(cached) in said and "remove" in said


def test_a_cached_bridge_that_others_can_write_is_refused(package):
    bridge = bridge_module(package)
    cached = package.parent / "cache" / "bridge" / bridge.bridge_key() / "_torch.so"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"not a library")
    cached.chmod(0o666)
    said = run(package.parent, EXPECT_ERROR)
    assert str(cached) in said and "another user" in said


def deny(folder, path, said):
    assert str(path) in said and "another user" in said and "MEMLAB_CACHE" in said
    # Nothing was opened or made in there.
    assert not list((folder / "cache").rglob("lock"))
    assert not list((folder / "cache").rglob("_torch.so"))


@pytest.mark.parametrize("below", ["", "bridge", "bridge/key"])
def test_a_folder_of_the_cache_that_others_can_write_is_refused(package, below):
    key = bridge_module(package).bridge_key()
    folder = package.parent / "cache" / below.replace("key", key)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    deny(package.parent, folder, run(package.parent, EXPECT_ERROR))
    # Where the folder of the bridge itself is sticky others can add to it.
    folder.chmod(0o1777)
    if below == "bridge/key":
        deny(package.parent, folder, run(package.parent, EXPECT_ERROR))


def test_what_another_user_owns_is_refused(package):
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    key = bridge_module(package).bridge_key()
    folder = package.parent / "cache" / "bridge" / key
    folder.mkdir(parents=True)
    for path in (folder, folder.parent, folder.parent.parent):
        os.chown(path, 12345, 12345)
        deny(package.parent, path, run(package.parent, EXPECT_ERROR))
        os.chown(path, 0, 0)
    (folder / "_torch.so").write_bytes(b"not a library")
    os.chown(folder / "_torch.so", 12345, 12345)
    said = run(package.parent, EXPECT_ERROR)
    assert str(folder / "_torch.so") in said and "another user" in said


def test_a_link_to_a_folder_that_others_can_write_is_refused(package):
    there = package.parent / "there"
    there.mkdir()
    there.chmod(0o777)
    (package.parent / "cache").symlink_to(there)
    said = run(package.parent, EXPECT_ERROR)
    assert str(there) in said and "another user" in said
    assert not list(there.rglob("lock"))


def test_folders_of_the_cache_are_made_for_this_user_alone(package):
    """Whatever the umask: what memlab made it does not refuse."""
    code = "import os; os.umask(0)\n" + EXPECT_ERROR
    said = run(package.parent, code, CXX="/nowhere/c++")
    assert "another user" not in said
    made = [package.parent / "cache", *(package.parent / "cache").rglob("*")]
    assert len(made) == 4
    for path in made:
        if path.is_dir():
            assert path.stat().st_mode & 0o777 == 0o700, path


def test_a_cache_that_cannot_be_written_is_named_with_the_variable(package):
    blocker = package.parent / "file"
    blocker.write_text("")
    said = run(package.parent, EXPECT_ERROR, MEMLAB_CACHE=str(blocker / "below"))
    assert str(blocker) in said and "MEMLAB_CACHE" in said


def test_a_failing_compiler_is_quoted_and_leaves_nothing(package):
    compiler = package.parent / "c++"
    compiler.write_text(
        "#!/bin/sh\necho 'x.cpp:1: error: no such header' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    said = run(package.parent, EXPECT_ERROR, CXX=str(compiler))
    assert "does not compile" in said and "no such header" in said
    left = [p.name for p in (package.parent / "cache").rglob("*") if p.is_file()]
    assert left == ["lock"]


def test_missing_cuda_headers_are_named_with_the_remedy(package, torch, monkeypatch):
    if torch.version.cuda is None:
        pytest.skip(f"torch {torch.__version__} is not a CUDA build")
    bridge = bridge_module(package)
    monkeypatch.setattr(bridge, "cuda_include_dirs", lambda root: [])
    with pytest.raises(RuntimeError, match="CUDA's headers.*CUDA_HOME"):
        bridge.compile_command(["cuda.cpp"], "cuda.o", bridge.find_torch())


def test_memlab_torch_0_switches_the_bridge_off(package):
    assert "MEMLAB_TORCH=0" in run(package.parent, EXPECT_ERROR, MEMLAB_TORCH="0")


def test_backends_builds_nothing_and_imports_no_torch(package, torch):
    said = run(
        package.parent,
        """
import sys, memlab
found = memlab.backends()
assert "torch" not in sys.modules
assert set(found) == {"cuda", "cpu", "script", "phantom"}
for name, entry in found.items():
    assert isinstance(entry["available"], bool) and entry["reason"], name
assert found["cpu"]["available"] and found["script"]["available"]
print(found["cpu"]["torch"], found["cpu"]["reason"])
""",
    )
    assert re.fullmatch(
        rf"{re.escape(torch.__version__)} .* is built at first use", said
    )
    assert not (package.parent / "cache").exists()


def test_backends_says_what_stands_in_the_way(package):
    show = "import memlab; print(memlab.backends()['cpu'])"
    assert "C++ compiler" in run(package.parent, show, CXX="/nowhere/c++")
    assert "MEMLAB_TORCH=0" in run(package.parent, show, MEMLAB_TORCH="0")


def test_backends_without_torch(package):
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import memlab; print(memlab.backends()['cuda'])"],
        cwd=package.parent,
        env=environment(package.parent),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "pip install torch" in done.stdout and "'available': False" in done.stdout


def test_cuda_without_a_gpu_points_to_the_phantom(package, torch):
    if torch.version.cuda is None:
        expected = "built without CUDA"
    elif os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a GPU")
    else:
        expected = "memlab phantom"
    show = "import memlab; print(memlab.backends()['cuda'])"
    said = run(package.parent, show, LD_PRELOAD="")
    assert "'available': False" in said and expected in said
