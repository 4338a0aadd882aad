"""Every GPU of the phantom's table: which device code it runs, and what has none for it.

The rule is CUDA's ("Binary Compatibility" and "PTX Compatibility" of its programming
guide), written here once more, by hand and as a model.
"""

import json
import os
import re
import subprocess
import sys

import pytest
from amounts import amount
from on_phantom import (
    PROGRAMS,
    ROOT,
    command,
    needs_library,
    needs_torch,
    output,
    run,
)

import memlab
from memlab import phantom

GPUS = list(phantom.gpus()) if phantom.available() else []


def capability(gpu):
    """86 for 8.6."""
    return int(phantom.gpus()[gpu].capability.replace(".", ""))


def runs_on(gpu, built):
    """Whether a GPU runs code for the capabilities BUILT, as ["sm_80", "compute_80"]."""
    wanted = capability(gpu)
    for name in built:
        kind, number = re.fullmatch(r"(sm|compute)_(\d+)", name).groups()
        have = int(number)
        if have <= wanted and (kind == "compute" or have // 10 == wanted // 10):
            return True
    return False


def torchs_list():
    """What the installed torch was built for, asked without CUDA."""
    import torch

    return torch._C._cuda_getArchFlags().split()


def gpus_of_torch():
    return [gpu for gpu in GPUS if runs_on(gpu, torchs_list())]


def one_of_each_capability(gpus):
    return list({capability(gpu): gpu for gpu in gpus}.values())


# --- Which code runs -----------------------------------------------------------------

PTX, ELF = 1, 2
SPECIFIC = 0x100000  # as of sm_90a

NONE = "cudaErrorNoKernelImageForDevice"
# Entries of a fat binary, and what each of these GPUs runs of it.
RUN_BY = ["v100", "t4", "a100-80", "a10g", "rtx4090", "h200"]
FAT_BINARIES = [
    # torch 2.11 for CUDA 13: the newest of the same major version.
    (
        [(ELF, n, 0x8011) for n in (75, 80, 86, 90, 100, 120)],
        [NONE, [75, 75], [80, 80], [86, 86], [86, 86], [90, 90]],
    ),
    # PTX is compiled for the GPU.
    ([(PTX, 70, 0)], [[70, 70], [70, 75], [70, 80], [70, 86], [70, 89], [70, 90]]),
    # A program goes before PTX, be that newer; the order of the entries does not matter.
    (
        [(PTX, 86, 0), (ELF, 80, 0), (ELF, 70, 0)],
        [[70, 70], [70, 70], [80, 80], [80, 80], [80, 80], [86, 90]],
    ),
    ([(PTX, 75, 0), (PTX, 80, 0), (PTX, 100, 0)],
     [NONE, [75, 75], [80, 80], [80, 86], [80, 89], [80, 90]]),
    # Code of one architecture alone, of which there is other code, and of which not.
    ([(ELF, 90, SPECIFIC), (ELF, 80, 0)], [NONE, NONE] + [[80, 80]] * 3 + [[90, 90]]),
    ([(ELF, 80, SPECIFIC), (PTX, 70, SPECIFIC)],
     [[70, 70], NONE, [80, 80], NONE, NONE, NONE]),
    ([], [NONE] * 6),
]  # fmt: skip


@needs_library
def test_a_kernel_is_the_code_that_the_gpu_would_run():
    entries = json.dumps([entries for entries, _ in FAT_BINARIES])
    lines = output(PROGRAMS / "device_code.py", arguments=[json.dumps(RUN_BY), entries])
    for gpu, told in map(json.loads, lines.splitlines()):
        # What nobody registered was made at run time, for this GPU.
        own = [capability(gpu)] * 2
        assert told == [runs[RUN_BY.index(gpu)] for _, runs in FAT_BINARIES] + [own], (
            gpu
        )


@needs_library
def test_a_fat_binary_of_an_unknown_form_is_taken_to_run():
    program = """
import ctypes, struct
library = ctypes.CDLL(None)
library.__cudaRegisterFatBinary.restype = ctypes.c_void_p
content = ctypes.create_string_buffer(b"\\x7fELF and the like")
for magic in (0x466243B1, 7):
    wrapper = ctypes.create_string_buffer(
        struct.pack("<IIQQ", magic, 1, ctypes.addressof(content), 0)
    )
    handle = ctypes.c_void_p(library.__cudaRegisterFatBinary(wrapper))
    library.__cudaRegisterFunction(handle, ctypes.c_void_p(magic))
    print(library.cudaLaunchKernel(ctypes.c_void_p(magic)))
library.__cudaUnregisterFatBinary(handle)
print(library.cudaLaunchKernel(ctypes.c_void_p(magic)))
print(library.cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))
"""
    assert output(program, gpu="t4").split() == ["0"] * 4


@needs_library
def test_a_child_forked_while_kernels_are_launched_can_launch_and_end():
    program = """
import ctypes, os, struct, threading
library = ctypes.CDLL(None)
library.__cudaRegisterFatBinary.restype = ctypes.c_void_p
wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 7, 1, 0, 0))
handle = ctypes.c_void_p(library.__cudaRegisterFatBinary(wrapper))
library.__cudaRegisterFunction(handle, ctypes.c_void_p(0x100))
done = False
def launch():
    while not done:
        library.cudaFuncGetAttributes((ctypes.c_int * 64)(), ctypes.c_void_p(0x100))
threads = [threading.Thread(target=launch) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(60):
    child = os.fork()
    if child == 0:
        library.cudaLaunchKernel(ctypes.c_void_p(0x100))
        library.__cudaUnregisterFatBinary(handle)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
done = True
"""
    assert run(program).returncode == 0


# --- What torch's kernels do ---------------------------------------------------------


@needs_torch
@pytest.mark.nightly
def test_sorting_and_counting_run_on_every_gpu():
    """One GPU of each capability, and in the long tests all: they differ in processors."""
    gpus = gpus_of_torch()
    if not amount("GPUS", 0):
        gpus = one_of_each_capability(gpus)
    listing = (PROGRAMS / "cub_operations.py").read_text()
    operations = re.findall(r"^@operation\ndef (\w+)", listing, re.M)
    assert len(operations) > 10
    done = run(PROGRAMS / "cub_operations.py", arguments=gpus)
    assert done.returncode == 0, done.stderr
    told = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    assert told == [(gpu, name, None) for gpu in gpus for name in operations]


@needs_torch
@pytest.mark.nightly
def test_training_programs_run_on_every_gpu():
    """They may run out of a small GPU's memory, which they say; nothing else ends them."""
    count = amount("GPUS", 0)
    if not count:
        pytest.skip("some minutes for each GPU: in make test-nightly")
    pytest.importorskip("transformers")
    bench = [sys.executable, str(ROOT / "bench" / "fit_programs.py")]
    for gpu in gpus_of_torch()[:count]:
        done = subprocess.run(
            [*bench, "--all"],
            env={
                **os.environ,
                **phantom.environment(gpu),
                "MEMLAB_PHANTOM_QUIET": "1",
                "CUDA_VISIBLE_DEVICES": "0",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        print(gpu, len(lines), [line["name"] for line in lines if line["error"]])
        assert done.returncode == 0, f"{gpu}\n{done.stderr}"
        assert len(lines) > 40


# --- A GPU that torch has no code for ------------------------------------------------


def refused():
    """A GPU for which the installed torch has no code."""
    gpus = [gpu for gpu in GPUS if not runs_on(gpu, torchs_list())]
    if not gpus:
        pytest.skip(f"this torch has code for every GPU of the table: {torchs_list()}")
    return gpus[0]


def assert_refuses(text, gpu):
    """One line: which GPU, for which capabilities torch was built, what to do."""
    lines = [line for line in text.splitlines() if "has no code for" in line]
    assert len(lines) == 1, text
    assert f"for {phantom.gpus()[gpu].full_name} (sm_{capability(gpu)}): " in lines[0]
    assert f"it was built for {', '.join(torchs_list())}; " in lines[0]
    assert "name another GPU of memlab phantom --list" in lines[0]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("print('started')\nimport torch\ntorch.ones(1, device='cuda')\n")
    return path


def memlab_command(*arguments, cwd, **variables):
    return subprocess.run(
        [sys.executable, "-m", "memlab", *map(str, arguments)],
        env={**os.environ, **variables},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


@needs_torch
@pytest.mark.parametrize("named", ["option", "variable"])
@pytest.mark.parametrize("verb", ["run", "fit"])
def test_it_is_refused_before_the_program_starts(verb, named, script):
    gpu = refused()
    words, variables = [verb, script], {}
    if named == "variable":
        variables = {"MEMLAB_PHANTOM_GPU": gpu}
        words[1:1] = ["--phantom"] if verb == "run" else []
    else:
        words[1:1] = [f"--phantom={gpu}"] if verb == "run" else ["--gpu", gpu]
    done = memlab_command(*words, cwd=script.parent, **variables)
    assert done.returncode == 1
    assert_refuses(done.stderr, gpu)
    assert "started" not in done.stdout + done.stderr
    assert list(script.parent.iterdir()) == [script]


@needs_torch
def test_it_is_refused_by_memlab_fit(script):
    gpu = refused()
    with pytest.raises(memlab.Error, match="has no code for") as caught:
        memlab.fit(script, gpu=gpu, vary="N=1..4")
    assert_refuses(str(caught.value), gpu)


@needs_torch
def test_without_memlab_it_is_refused_at_the_first_use_of_a_gpu(script):
    gpu = refused()
    done = command("--gpu", gpu, sys.executable, str(script))
    assert done.returncode == 2
    assert done.stdout == "started\n"
    assert_refuses(done.stderr, gpu)


@needs_torch
def test_the_memory_of_the_cpu_needs_no_code(script):
    gpu = refused()
    script.write_text("import torch; torch.ones(1)")
    done = memlab_command(
        "run", "--device", "cpu", f"--phantom={gpu}", script, cwd=script.parent
    )
    assert done.returncode == 0, done.stderr


# --- What the phantom cannot answer --------------------------------------------------


@needs_library
def test_errors_have_the_names_and_texts_that_cuda_gives_them():
    program = """
import ctypes
library = ctypes.CDLL(None)
library.cudaGetErrorName.restype = library.cudaGetErrorString.restype = ctypes.c_char_p
text = ctypes.c_char_p()
for error in (98, 209, 12345):
    library.cuGetErrorString(error, ctypes.byref(text))
    print(library.cudaGetErrorName(error).decode(), text.value.decode(), sep=": ")
    assert library.cudaGetErrorString(error) == text.value
"""
    invalid, image, unknown = output(program).splitlines()
    assert invalid == "cudaErrorInvalidDeviceFunction: invalid device function"
    assert image == f"{NONE}: no kernel image is available for execution on the device"
    assert unknown.startswith(
        "unrecognized error code: error 12345, which memlab's phantom"
    )


@needs_library
@pytest.mark.parametrize(
    "name", ["cudaIpcGetMemHandle", "cuMemExportToShareableHandle"]
)
def test_what_fails_on_the_phantom_alone_says_so_once(name):
    done = run(f"import ctypes\nfor _ in range(2): ctypes.CDLL(None).{name}()")
    assert done.returncode == 0
    assert done.stderr.startswith(f"memlab phantom: {name} fails on the phantom device: ")
    assert "tensor.cpu()" in done.stderr
    assert done.stderr.count("\n") == 1


@needs_library
def test_kernels_of_a_library_that_is_loaded_at_run_time_are_launched():
    program = """
import ctypes
runtime, none = ctypes.CDLL(None), ctypes.c_void_p
library, kernel, size = none(), none(), ctypes.c_size_t(7)
class dim3(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]
print(runtime.cudaLibraryLoadData(ctypes.byref(library), b"code", *[none()] * 2, 0, *[none()] * 2, 0))
print(runtime.cudaLibraryGetKernel(ctypes.byref(kernel), library, b"name"), bool(kernel))
one = dim3(1, 1, 1)
print(runtime.cudaLaunchKernel(kernel, one, one, none(), none(0), none()))
for name in ("Global", "Managed", "UnifiedFunction"):
    call = getattr(runtime, f"cudaLibraryGet{name}")
    print(call(ctypes.byref(none()), ctypes.byref(size), library, b"name"))
print(size.value, runtime.cudaLibraryUnload(library))
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == "0 0 True 0 500 500 500 7 0".split()
    said = "cudaLibraryGetManaged fails on the phantom device: what a library of kernels holds"
    assert said in done.stderr
