"""The build: what it exports, what it compiles again, and what it says on trouble."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import ROOT, copy_checkout, run_python

import memlab
from memlab import _core

PACKAGE = Path(memlab.__file__).parent
BUILD = ("-W", "ignore", "setup.py", "build_ext", "--inplace")


def defined_symbols(library):
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {line.split()[0] for line in listing.splitlines()}


def test_core_exports_its_init_function_alone():
    assert defined_symbols(_core.__file__) == {"PyInit__core"}


@pytest.mark.parametrize(
    "program", ["import memlab", "import runpy; runpy.run_path('setup.py')"]
)
def test_a_free_threaded_interpreter_is_refused(program):
    """At import and at build, and with what to do."""
    # Python finds its settings by the flags: before these change.
    before = "import sys, sysconfig; sysconfig.get_config_vars(); sys.abiflags += 't'"
    program = f"{before}; {program}"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    said = ran.stderr.strip().splitlines()[-1]
    assert f"{sys.executable} is a free-threaded CPython" in said
    assert said.endswith("as in: uv venv --python 3.14")


def test_bridge_exports_nothing_of_ours_but_its_init_function():
    bridges = list(PACKAGE.glob("_torch.*.so"))
    if not bridges:
        pytest.skip("memlab._torch is not built in this checkout")
    for bridge in bridges:
        ours = {s for s in defined_symbols(bridge) if re.search("ml_|memlab|PyInit", s)}
        assert ours == {"PyInit__torch"}


SMALL_MODULE = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/base.h"

PyMODINIT_FUNC PyInit__core(void);

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_core"};

PyMODINIT_FUNC
PyInit__core(void)
{
    ml_free(NULL);
    PyObject *module = PyModule_Create(&definition);
    PyModule_AddIntConstant(module, "debug", ML_DEBUG);
    return module;
}
"""


@pytest.fixture
def built(tmp_path):
    """A checkout of its own in which memlab._core was built.

    Of its C files only one of the core and a small module are left: what the tests ask
    is how the build goes, and so it goes fast.
    """
    checkout = copy_checkout(tmp_path / "memlab")
    for source in checkout.glob("csrc/**/*.c"):
        if source.name != "base.c":
            source.unlink()
    (checkout / "csrc/py/module.c").write_text(SMALL_MODULE)
    run_python(*BUILD, cwd=checkout, MEMLAB_TORCH=0)
    return checkout


def objects(checkout):
    """{source: modification time} of everything compiled."""
    (sources,) = (checkout / "build").glob("native-*/memlab._core/csrc")
    return {
        str(made.relative_to(sources).with_suffix(".c")): made.stat().st_mtime_ns
        for made in sources.rglob("*.o")
    }


def debug_of(folder):
    """The ML_DEBUG that the core in FOLDER was compiled with."""
    return int(run_python("-c", "import _core; print(_core.debug)", cwd=folder).stdout)


def test_only_what_changed_is_compiled_again(built):
    before = objects(built)
    assert set(before) == {"core/base/base.c", "py/module.c"}

    run_python(*BUILD, cwd=built, MEMLAB_TORCH=0)
    assert objects(built) == before

    with open(built / "csrc/core/base/base.c", "a") as source:
        source.write("\n/* changed */\n")
    run_python(*BUILD, cwd=built, MEMLAB_TORCH=0)
    after = objects(built)
    assert {s for s in after if after[s] != before[s]} == {"core/base/base.c"}


def test_other_flags_compile_everything_again(built):
    before = objects(built)
    run_python(*BUILD, cwd=built, MEMLAB_TORCH=0, MEMLAB_DEBUG=1)
    after = objects(built)
    assert before.keys() == after.keys()
    assert all(after[s] != before[s] for s in after)


@pytest.mark.parametrize("made", ["build/native-*/memlab._core", "memlab"])
def test_other_flags_give_another_core_whatever_the_clock_says(built, made):
    (core,) = built.glob(f"{made}/_core*.so")
    later = time.time() + 1000
    os.utime(core, (later, later))
    run_python(*BUILD, cwd=built, MEMLAB_TORCH=0, MEMLAB_DEBUG=1)
    assert debug_of(built / "memlab") == 3


def test_builds_side_by_side_do_not_mix(built):
    command = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext"]
    builds = []
    for i in range(4):
        flags = {"MEMLAB_TORCH": "0", "MEMLAB_DEBUG": str(i % 2)}
        place = ["--build-lib", str(built / f"made{i}")]
        builds.append(
            subprocess.Popen([*command, *place], cwd=built, env={**os.environ, **flags})
        )
    assert [build.wait() for build in builds] == [0] * 4
    for i in range(4):
        assert debug_of(built / f"made{i}" / "memlab") == (3 if i % 2 else 0)


def test_warnings_are_errors_when_asked(built):
    with open(built / "csrc/core/base/base.c", "a") as source:
        source.write("\nstatic int\nnever_called(void)\n{\n    return 0;\n}\n")
    lenient = run_python(*BUILD, cwd=built, MEMLAB_TORCH=0)
    assert "never_called" in lenient.stdout
    strict = run_python(*BUILD, cwd=built, check=False, MEMLAB_TORCH=0, MEMLAB_WERROR=1)
    assert strict.returncode != 0
    assert "never_called" in strict.stdout


def test_core_files_take_warnings_that_the_binding_is_spared(built):
    cast = "\nvoid *ml_cast(const void *p);\nvoid *\nml_cast(const void *p)\n{\n"
    cast += "    return (void *)p;\n}\n"
    for file, warned in (("core/base/base.c", True), ("py/module.c", False)):
        with open(built / "csrc" / file, "a") as source:
            source.write(cast.replace("ml_cast", "ml_cast_" + Path(file).stem))
        done = run_python(*BUILD, cwd=built, MEMLAB_TORCH=0)
        assert ("-Wcast-qual" in done.stdout) == warned, done.stdout


def test_header_change_compiles_everything_again(built):
    before = objects(built)
    with open(built / "csrc/core/base/base.h", "a") as header:
        header.write("\n/* changed */\n")
    run_python(*BUILD, cwd=built, MEMLAB_TORCH=0)
    after = objects(built)
    assert before.keys() == after.keys()
    assert all(after[s] != before[s] for s in after)


@pytest.fixture
def without_torch(tmp_path):
    """A PYTHONPATH under which torch cannot be found."""
    hidden = "import sys\nsys.modules['torch'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    return tmp_path


def last_line(done):
    return done.stdout.strip().splitlines()[-1]


def test_torch_asked_for_and_missing_is_an_error(without_torch):
    done = run_python(
        "setup.py",
        "--version",
        cwd=ROOT,
        check=False,
        MEMLAB_TORCH=1,
        PYTHONPATH=without_torch,
    )
    assert done.returncode != 0
    assert "MEMLAB_TORCH=1, but torch cannot be imported" in last_line(done)
    assert "--no-build-isolation" in last_line(done)


def test_torch_missing_is_said_and_no_error(without_torch):
    done = run_python(
        "-W", "ignore", "setup.py", "--version", cwd=ROOT, PYTHONPATH=without_torch
    )
    assert "no torch here" in done.stdout
    assert last_line(done) == memlab.__version__


def test_unknown_value_of_memlab_torch_is_an_error():
    done = run_python(
        "setup.py", "--version", cwd=ROOT, check=False, MEMLAB_TORCH="maybe"
    )
    assert done.returncode != 0
    assert last_line(done) == "memlab: MEMLAB_TORCH=maybe: expected auto, 0 or 1"


def test_no_compiler_is_one_line_that_names_the_remedy():
    done = run_python(
        *BUILD, cwd=ROOT, check=False, MEMLAB_TORCH=0, CC="no-such-compiler"
    )
    assert done.returncode != 0
    assert "no C compiler: 'no-such-compiler' not found" in last_line(done)
    assert "Traceback" not in done.stdout


def test_make_help_lists_every_target():
    listing = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    listed = set(re.findall(r"^  make ([a-z-]+) +\S", listing, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    phony = re.search(r"^\.PHONY: (help .*)$", makefile, re.MULTILINE).group(1)
    assert listed == set(phony.split())
    promised = (
        "setup demo build debug test test-c asan tsan valgrind cov format lint bench "
        "wheel"
    )
    assert listed >= set(promised.split())


def test_test_extra_is_part_of_the_test_requirements():
    project = (ROOT / "pyproject.toml").read_text()
    extra = re.search(r"^test = \[(.*)\]$", project, re.MULTILINE).group(1)
    lines = (ROOT / "requirements-test.txt").read_text().split("\n")
    names = {re.split("[<>=]", line)[0] for line in lines if not line.startswith("#")}
    assert set(re.findall('"(.*?)"', extra)) <= names
