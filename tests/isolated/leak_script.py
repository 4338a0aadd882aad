"""memlab._core.Script: instances, events and errors."""

import leaks

from memlab import _core

script = _core.Script()


def refused():
    for arguments in (("nonsense", 0, 0), ("alloc", 0, 0)):
        try:
            script.emit(*arguments, device=99)
        except ValueError:
            continue
        raise AssertionError("not refused")


leaks.check(_core.Script, _core.Script)
leaks.check(_core.Script, lambda: script.emit("segment_alloc", 1 << 30, 1 << 21))
leaks.check(_core.Script, refused, (10_000,))
leaks.check(_core.Script, script.reset, (1_000,))
