"""python -m memlab.phantom: its options, its variables, what it refuses."""

import sys

import pytest
from on_phantom import command, needs_library, run

from memlab import phantom

MIB = 1 << 20


@needs_library
def test_command_lists_the_gpus():
    listed = command("--list")
    assert listed.returncode == 0
    names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
    assert names == list(phantom.gpus())
    assert {"h200", "h100", "a100-80", "a100-40", "l40s", "a10g", "l4"} <= set(names)
    assert {"b300", "b200", "gh200", "h20", "rtxpro6000", "rtx5090"} <= set(names)
    assert {"rtx4090", "rtx3090", "t4", "v100"} <= set(names)


@needs_library
def test_command_starts_the_program_with_its_arguments():
    show = "import os, sys; print(os.environ['MEMLAB_PHANTOM_MEMORY'], sys.argv[1:])"
    done = command("--memory", "1.5GiB", sys.executable, "-c", show, "--gpu", "x")
    assert done.stdout == f"{3 * 512 * MIB} ['--gpu', 'x']\n"
    failing = command(sys.executable, "-c", "raise SystemExit(7)")
    assert failing.returncode == 7


OF_THE_DEVICE = """
import os
print(*(os.environ[f"MEMLAB_PHANTOM_{name}"]
        for name in ("GPU", "DEVICES", "MEMORY", "BACKED")))
"""
VARIABLES = {"GPU": "l4", "DEVICES": "3", "MEMORY": "1.5GiB", "BACKED": "1"}


@needs_library
@pytest.mark.parametrize(
    "options, variables, seen",
    [
        ([], {}, ["h200", "1", "0"]),
        ([], VARIABLES, ["l4", "3", str(3 * 512 * MIB), "1"]),
        (["--gpu", "t4", "--memory", "2GiB"], VARIABLES,
         ["t4", "3", str(2048 * MIB), "1"]),
        (["--devices", "2"], {"DEVICES": "", "MEMORY": str(MIB)},
         ["h200", "2", str(MIB), "0"]),
    ],
)
def test_an_option_before_a_variable_before_the_default(
    options, variables, seen, monkeypatch
):
    for name in VARIABLES:
        monkeypatch.delenv(f"MEMLAB_PHANTOM_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"MEMLAB_PHANTOM_{name}", value)
    done = command(*options, sys.executable, "-c", OF_THE_DEVICE)
    assert done.stdout.split() == seen, done.stderr


@needs_library
def test_command_runs_a_file_of_python(tmp_path):
    (tmp_path / "train.py").write_text("import sys; print(*sys.argv[1:])")
    done = command(str(tmp_path / "train.py"), "--batch", "4")
    assert (done.returncode, done.stdout) == (0, "--batch 4\n"), done.stderr


@needs_library
@pytest.mark.parametrize(
    "variable, value, words",
    [
        ("GPU", "rtx409", "unknown GPU 'rtx409'; did you mean rtx4090; known are b300,"),
        ("MEMORY", "lots", "'lots' is not a memory size"),
        ("DEVICES", "many", "MEMLAB_PHANTOM_DEVICES=many is not a number"),
    ],
)
def test_command_refuses_variables_that_make_no_sense(
    variable, value, words, monkeypatch
):
    monkeypatch.setenv(f"MEMLAB_PHANTOM_{variable}", value)
    done = command("true")
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@needs_library
@pytest.mark.parametrize(
    "arguments, status, words",
    [
        (["--gpu", "abacus", "true"], 2, "unknown GPU 'abacus'; known are b300, b200"),
        (["--gpu", "MI300X", "true"], 2, "'MI300X' is a GPU of AMD's"),
        (["--memory", "24", "true"], 2, "'24' has no unit; did you mean 24GiB?"),
        (["--memory", "lots", "true"], 2, "'lots' is not a memory size"),
        (["--memory", "0", "true"], 2, "'0' is not a memory size"),
        (["--devices", "99", "true"], 2, "99 devices: from 1 to 16 are possible"),
        ([], 2, "no program given"),
        (["/no/such/program"], 127, "/no/such/program: No such file or directory"),
    ],
)
def test_command_refuses_in_one_line(arguments, status, words):
    done = command(*arguments)
    assert done.returncode == status
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@needs_library
@pytest.mark.parametrize(
    "variable, value",
    [("GPU", "h300"), ("DEVICES", "none"), ("MEMORY", "24GiB")],
)
def test_library_refuses_an_environment_that_makes_no_sense(variable, value):
    name = f"MEMLAB_PHANTOM_{variable}"
    count = "import ctypes; ctypes.CDLL(None).cudaGetDeviceCount(ctypes.byref(ctypes.c_int()))"
    done = run(count, env={name: value})
    assert done.returncode == 2
    assert done.stderr.startswith(f"memlab phantom: {name}={value} is ")


@needs_library
def test_environment_keeps_what_is_preloaded(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", f"/a.so:{phantom.LIBRARY} /b.so")
    preload = phantom.environment()["LD_PRELOAD"]
    assert preload == f"{phantom.LIBRARY}:/a.so:/b.so"


@pytest.mark.parametrize(
    "text, size",
    [("24GiB", 24 << 30), ("24g", 24 << 30), ("512 MiB", 512 << 20), ("2000000", 2000000),
     ("0.5T", 1 << 39), ("1KB", 1024)],
)
def test_memory_sizes(text, size):
    assert phantom.parse_memory(text) == size


@needs_library
@pytest.mark.parametrize(
    "written, name",
    [
        ("RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("4090", "rtx4090"),
        ("A100-80GB", "a100-80"),
        ("a100_40gb", "a100-40"),
        ("a100", "a100-80"),
        ("H100", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("5090", "rtx5090"),
        ("RTX PRO 6000", "rtxpro6000"),
        ("GH200", "gh200"),
    ],
)
def test_a_gpu_is_known_by_what_people_call_it(written, name):
    assert phantom.find_gpu(written) == name


def test_a_number_from_1_mib_up_is_of_bytes():
    assert phantom.parse_memory("1048576") == phantom.parse_memory("1MiB") == 1 << 20
    assert phantom.parse_memory("512 B") == 512
    for text in ("1048575", "0.5", "80"):
        with pytest.raises(ValueError, match=rf"has no unit; did you mean {text}GiB\?"):
            phantom.parse_memory(text)
