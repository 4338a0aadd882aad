"""What is said of profiled functions without a line, where torch.compile has compiled code."""

import pytest


@pytest.mark.cuda
def test_compiled_functions_say_why_there_is_nothing(phantom_run):
    """A function that was not called is not blamed on compilation."""
    program = """
import memlab, torch

def within(x):
    return x + 1

@memlab.profile
def f(x):
    return within(x * 2)

@memlab.profile
def never():
    pass

before = memlab.LineProfiler(f).display()
compiled = torch.compile(f, backend="eager")
with memlab.LineProfiler(f, within, never) as profiler:
    compiled(torch.ones(3, device="cuda"))
print(before, profiler.display("f"), profiler.display(["within", "never"]), sep="", end="")
print(profiler.display(), end="")
assert "TORCH_COMPILE_DISABLE" in profiler.display()._repr_html_()
f(torch.ones(3, device="cuda"))
"""
    compiled = (
        "torch.compile has compiled it, and what is compiled has no lines; "
        "TORCH_COMPILE_DISABLE=1 runs it line by line"
    )
    other = (
        "not called, or only within code that torch.compile has compiled; "
        "TORCH_COMPILE_DISABLE=1 runs that line by line"
    )
    nothing, *told, at_exit = [
        line for line in phantom_run(program).stdout.splitlines() if "ran: " in line or "No " in line
    ]
    assert nothing == "No data collected"
    start = "No data collected: no line of"
    assert told[:2] == [f"{start} f ran: {compiled}", f"{start} within, never ran: {other}"]
    assert told[2:] == [f"{start} f ran: {compiled}; no line of within, never ran: {other}"]
    assert at_exit == f"memlab: profiled, but no line ran: never: {other}"
