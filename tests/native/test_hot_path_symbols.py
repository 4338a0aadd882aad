"""The allocator's callback can reach nothing but plain memory: proved from the symbols
that its object file leaves undefined."""

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.cuda

# What each object of the callback may call of torch, and what the compiler itself needs.
# The functions of torch read variables of the thread; bound_api leads to memlab.
CALLED = {
    "tracker.cpp": {"ml_autograd_fill"},
    "autograd.cpp": {
        "torch::autograd::get_current_node()",
        "at::sequence_number::peek()",
        "at::RecordFunction::currentThreadId()",
        "c10::GradMode::is_enabled()",
        "strcmp",
    },
}
# Compiled in, but not reached: what counts a node whose count goes from one to two, or back,
# and that has a Python object.  The engine counts a running node once, its object once more.
NOT_REACHED = {"tracker.cpp": set(), "autograd.cpp": {"c10::impl::getGlobalPyInterpreter()"}}
COMPILER = {
    "_GLOBAL_OFFSET_TABLE_",
    "__gxx_personality_v0",  # unwinding through a noexcept function ends the process
    "__libc_single_threaded",  # whether reference counts need atomic instructions
    "__stack_chk_fail",  # ends the process; of a compiler that guards stacks, as Ubuntu's
}
# Run when the library is loaded, never by the callback: <iostream>, by way of c10.
AT_LOAD = {
    "std::ios_base::Init::Init()",
    "std::ios_base::Init::~Init()",
    "std::ios_base_library_init()",  # the same from GCC 13 on
    "__cxa_atexit",
    "__dso_handle",
}


def undefined_symbols(path):
    lines = subprocess.run(
        ["nm", "-uC", str(path)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return {line.split(maxsplit=1)[1] for line in lines}


def compile_bridge_object(source, output, torch, *flags):
    from memlab._native import bridge

    command = bridge.compile_command([source], output, bridge.find_torch())
    subprocess.run([*command, *flags], check=True)
    return output


@pytest.mark.parametrize("name", CALLED)
def test_the_callback_calls_only_what_is_allowed(name, tmp_path, torch):
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed (Debian: apt-get install binutils)")
    from memlab._native import bridge

    (source,) = [
        path for path in bridge.sources(bridge.find_torch()) if path.name == name
    ]
    found = undefined_symbols(
        compile_bridge_object(source, tmp_path / "object.o", torch)
    )
    assert found - COMPILER - AT_LOAD - NOT_REACHED[name] == CALLED[name]


def test_the_check_sees_a_lock_memory_and_output(tmp_path, torch):
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed (Debian: apt-get install binutils)")
    source = tmp_path / "bad.cpp"
    source.write_text(
        "#include <cstdio>\n#include <mutex>\n#include <string>\n"
        "std::mutex lock;\nstd::string *kept;\n"
        "void bad(const char *text)\n{\n"
        "    std::lock_guard<std::mutex> held(lock);\n"
        "    kept = new std::string(text);\n    std::puts(text);\n}\n"
    )
    bad = compile_bridge_object(source, tmp_path / "bad.o", torch)
    found = undefined_symbols(bad) - COMPILER - AT_LOAD
    assert {"pthread_mutex_lock", "operator new(unsigned long)", "puts"} <= found
