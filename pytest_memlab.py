"""The pytest plugin of memlab: the fixture `memory`.

Its own module, for pytest loads it in every run: all else, memlab and torch, comes with the
first test that takes the fixture.
"""

import sys

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("memlab")
    group.addoption(
        "--memory-update",
        action="store_true",
        help="write what tests with memory(baseline=...) use as their baselines",
    )


@pytest.fixture
def memory(request):
    """Checks what a block allocates: `with memory(max="1GiB", leaks=0, baseline="train"):`.

    max: bytes that it may have beyond what was there, at its peak; leaks: bytes that it may
    leave behind; both an int or a size such as "1.5 GiB", None for no check.  baseline: a
    name, under which the peak is compared with that in memory_baselines.json beside the
    test; tolerance: by which it may be above that, bytes, a size, or a share of it such as
    "2%".  device: "cuda", "cuda:1", "cpu"; None for the GPU where there is one.
    """
    from memlab._testing import plugin

    return plugin.Memory(request)


def _found(config):
    """What tests of this process left to write or to say; None: none took the fixture."""
    module = sys.modules.get("memlab._testing.plugin")
    return None if module is None else module.found(config)


def pytest_sessionfinish(session):
    found = _found(session.config)
    if found is None:
        return
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["memlab"] = found
    else:
        from memlab._testing import plugin

        if not plugin.write(found) and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """What a worker of pytest-xdist has found is written by one process, this one."""
    found = getattr(node, "workeroutput", {}).get("memlab")
    if found is not None:
        from memlab._testing import plugin

        plugin.add(node.config, found)


def pytest_terminal_summary(terminalreporter):
    found = _found(terminalreporter.config)
    if found is not None:
        from memlab._testing import plugin

        for line in plugin.summary(found):
            terminalreporter.write_line(line)
