"""%memlab free in a real Jupyter kernel: what it drops, and what it leaves."""

import os
import subprocess
import sys
import textwrap

import pytest
from jupyter_kernel import PATIENCE, ran, text, usage_error

pytestmark = pytest.mark.cuda

# Blocks of 4, 2 and 1 MiB; the small ones lie in a segment of 2 MiB, those from 1 MiB on in
# one of 20 MiB.
FAILING = """\
def step():
    four = torch.empty(1 << 20, device="cuda")
    two = torch.empty(1 << 19, device="cuda")
    four.view(3)
step()
"""
ALLOCATED = "torch.cuda.memory_allocated(), torch.cuda.memory_reserved()"


def freed(shown):
    """The one line that %memlab free prints."""
    assert ran(shown).err == "" and shown.result is None
    [line] = shown.out.splitlines()
    return line


def test_free_drops_what_the_last_exception_holds(kernel):
    shown = kernel.run(FAILING)
    assert shown.error[0] == "RuntimeError"
    assert text(kernel.run(ALLOCATED)) == f"({6 << 20}, {20 << 20})"
    assert freed(kernel.run("%memlab free")) == (
        "dropped 1 result and the RuntimeError; cuda:0: freed 6,291,456 bytes of tensors, "
        "0.00B are left, 20.00M of cache given back to the GPU"
    )
    assert text(kernel.run(ALLOCATED)) == "(0, 0)"
    shown = kernel.run(
        "import sys; [n for n in dir(sys) if n.startswith('last_')], "
        "get_ipython().InteractiveTB.tb"
    )
    assert text(shown) == "([], None)"


def test_free_drops_what_led_to_the_last_exception(kernel):
    cell = textwrap.indent(FAILING, "    ")
    kernel.run(
        f"def f():\n{cell}try:\n    f()\nexcept RuntimeError:\n    raise ValueError"
    )
    line = freed(kernel.run("%memlab free"))
    assert line.startswith("dropped the ValueError; cuda:0: freed 6,291,456 bytes")


def test_free_drops_what_the_debugger_stood_at(kernel):
    kernel.run(FAILING)
    ran(
        kernel.run(
            "import sys\nfrom IPython.core.debugger import Pdb\n"
            "formatter = get_ipython().InteractiveTB\nformatter.pdb = Pdb()\n"
            "formatter.pdb.setup(None, sys.last_traceback)\ndel formatter"
        )
    )
    line = freed(kernel.run("%memlab free"))
    assert line.startswith("dropped the RuntimeError; cuda:0: freed 6,291,456 bytes")


def test_free_drops_results_and_keeps_what_is_named(kernel):
    ran(kernel.run("_foo = torch.empty(1 << 20, device='cuda')"))
    ran(kernel.run("torch.empty(1 << 20, device='cuda')"))
    ran(kernel.run("torch.empty(1 << 19, device='cuda')"))
    # Nor is this one of IPython's own, whatever its number.
    ran(kernel.run("_9999 = torch.empty(1 << 18, device='cuda')"))
    assert freed(kernel.run("%memlab free")) == (
        "dropped 2 results; cuda:0: freed 6,291,456 bytes of tensors, 5.00M are left, "
        "0.00B of cache given back to the GPU"
    )
    assert text(kernel.run("Out, _, __, ___")) == "({}, '', '', '')"
    assert text(kernel.run("_foo.shape, _9999.shape")) == (
        "(torch.Size([1048576]), torch.Size([262144]))"
    )
    assert text(kernel.run("In[-6]")) == '"torch.empty(1 << 19, device=\'cuda\')"'
    # Results are kept as before, under a name of the user's too.
    ran(kernel.run("del _foo, _9999\ntorch.empty(1 << 20, device='cuda')"))
    assert text(kernel.run("_.shape, len(Out)")) == "(torch.Size([1048576]), 4)"


def test_free_leaves_underscores_that_the_user_assigned(kernel):
    ran(kernel.run("_ = torch.empty(1 << 20, device='cuda')"))
    ran(kernel.run("torch.empty(1 << 19, device='cuda')"))
    line = freed(kernel.run("%memlab free"))
    assert line.startswith("dropped 1 result; cuda:0: freed 2,097,152 bytes")
    assert text(kernel.run("_.shape")) == "torch.Size([1048576])"


def test_free_leaves_frames_that_run(kernel):
    cell = (
        "import sys\n"
        "def work():\n"
        "    mine = torch.empty(1 << 20, device='cuda')\n"
        "    def fail():\n"
        "        lost = torch.empty(1 << 19, device='cuda')\n"
        "        raise RuntimeError\n"
        "    try:\n"
        "        fail()\n"
        "    except RuntimeError as error:\n"
        "        sys.last_value = error\n"
        "        get_ipython().run_line_magic('memlab', 'free')\n"
        "    return mine.shape\n"
        "shape = work()"
    )
    line = freed(kernel.run(cell))
    assert line.startswith("dropped the RuntimeError; cuda:0: freed 2,097,152 bytes")
    assert text(kernel.run("shape")) == "torch.Size([1048576])"


def test_free_says_what_still_holds_most(kernel):
    ran(
        kernel.run(
            "history = [torch.empty(1 << 18, device='cuda'), "
            "torch.nn.Parameter(torch.empty(1 << 19, device='cuda'))]"
        )
    )
    assert freed(kernel.run("%memlab free")) == (
        "nothing to drop; cuda:0: freed 0 bytes of tensors, 3.00M are left, 0.00B of cache "
        "given back to the GPU; the largest has 2.00M on cuda:0, held by global "
        "`history[1]` of module `__main__`"
    )


def test_free_says_that_there_was_nothing(kernel):
    assert freed(kernel.run("%memlab free")) == (
        "nothing to drop; the GPU holds no tensors"
    )


def test_free_is_all_that_memlab_does(kernel):
    for line in "%memlab", "%memlab everything", "%memlab free x":
        assert "%memlab free drops the results" in usage_error(kernel.run(line))
    [page] = ran(kernel.run("%memlab?")).pages
    assert "%memlab free" in page and "In" in page


WITHOUT_GPU = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in ("%load_ext memlab", "%memlab free", "import torch", "%memlab free"):
    shell.run_cell(cell, store_history=True)
"""


def test_free_without_a_gpu(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_GPU],
        env={**os.environ, "IPYTHONDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout.splitlines() == [
        "nothing to drop; torch has used no GPU",
        "nothing to drop; torch sees no GPU here",
    ], done
