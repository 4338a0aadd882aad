"""torch's own word on where each autograd node was made, and which one is running.

Anomaly mode has every node keep the Python stack of its making.  Before a backward pass
each node of its graph gets a hook that marks, in the recording under way, that the node
begins or ends; memlab itself neither uses anomaly mode nor hooks of nodes.
"""

import json
import re
import threading

import torch

import memlab

_FRAME = re.compile(r'  File "(.*)", line (\d+), in (.*)')

_lock = threading.Lock()
_watched = {}  # node, kept alive -> its number
_nodes = []  # of each number: what torch says of it


def _made_at(node):
    """The frames of the node's making, innermost first."""
    found = [_FRAME.match(text) for text in reversed(node.metadata["traceback_"])]
    return [(m[1], int(m[2]), m[3]) for m in found]


def _watch(node):
    number = _watched[node] = len(_nodes)
    maker = node.metadata.get("parent_")
    _nodes.append({"name": type(node).__name__, "frames": _made_at(node)})
    _nodes[number]["parent"] = _watched.get(maker)
    node.register_prehook(lambda grads: memlab.mark(f"begin {number}"))
    node.register_hook(lambda ins, outs: memlab.mark(f"end {number}"))


def watch(tensors):
    """Marks when the nodes of the graph behind TENSORS run."""
    todo = [t.grad_fn if hasattr(t, "grad_fn") else t.node for t in tensors]
    with _lock:
        while todo:
            node = todo.pop()
            if node is None or node in _watched:
                continue
            _watch(node)
            todo += [after for after, _ in node.next_functions]


# The file's name keeps memlab from taking this frame for a line of the program.
_ENTER = """
def enter(tensors, *args, **kwargs):
    watch(tensors)
    return run(tensors, *args, **kwargs)
"""


def begin():
    """From now on every backward pass is watched."""
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    names = {"watch": watch, "run": torch.autograd._engine_run_backward}
    exec(compile(_ENTER, "torch/autograd/truth.py", "exec"), names)
    torch.autograd._engine_run_backward = names["enter"]


def save(path):
    """Writes what is known of the nodes so far, and forgets them."""
    with open(path, "w") as out:
        json.dump(_nodes, out)
    _watched.clear()
    _nodes.clear()
