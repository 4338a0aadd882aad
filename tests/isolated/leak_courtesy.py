"""memlab._core.Courtesy: instances, calls with nothing to do, and errors.  With CUDA:
tests/lend/test_courtesy.py."""

import leaks

from memlab import _core


def use():
    courtesy = _core.Courtesy()
    courtesy._yield_tensors(list, dict)
    courtesy._restore_tensors()
    assert (courtesy.yielded, courtesy.yielded_bytes, courtesy.left) == (False, 0, {})


def graphs():
    assert _core.Courtesy._count_graphs(memoryview) == 0
    try:
        _core.Courtesy._count_graphs(1)
    except TypeError:
        return
    raise AssertionError("not refused")


def refused():
    try:
        _core.Courtesy()._yield_tensors(1, 2)
    except TypeError:
        return
    raise AssertionError("not refused")


leaks.check(_core.Courtesy, _core.Courtesy)
leaks.check(_core.Courtesy, use)
leaks.check(_core.Courtesy, refused, (10_000,))
leaks.check(_core.Courtesy, graphs, (10_000,))
