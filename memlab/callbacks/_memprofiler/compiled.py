"""What torch.compile is doing, as far as MemProfiler stays out of its graphs."""

from __future__ import annotations

import sys

from memlab._errors import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def in_one_graph() -> bool:
    """Whether the caller is being compiled with fullgraph=True: a graph has no place
    for this code, and would raise.  The compiler calls this while it compiles.
    """
    convert = sys.modules.get("torch._dynamo.symbolic_convert")
    if convert is None:
        return False
    compiling = getattr(convert.tls, "current_tx", None)
    if compiling is None or not getattr(compiling, "one_graph", True):
        return False
    tell(
        "MemProfiler leaves out a function that is compiled with fullgraph=True; "
        "compile the modules that it calls"
    )
    return True


# As torch._dynamo.assume_constant_result() does, without its import.
in_one_graph._dynamo_marked_constant = True


def outside(module: Any) -> Iterator[Any]:
    """MODULE and its submodules, without those in a compiled graph: those of
    torch.compile(module), and after module.compile() the module itself.
    """
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    compiled = () if dynamo is None else dynamo.OptimizedModule
    seen = set()
    waiting = [module] if hasattr(module, "register_forward_hook") else []
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            if getattr(module, "_compiled_call_impl", None) is not None:
                continue
            yield module
            if not isinstance(module, compiled):
                waiting.extend(module.children())
