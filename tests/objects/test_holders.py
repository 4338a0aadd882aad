"""memlab.holders(): who keeps a tensor's memory alive, on torch's real tensors and graphs.

Each test plants one kind of leak and states its sentence, worked out by hand.
tests/objects/test_holders_objects.py has what does not depend on torch.
"""

import functools
import gc
import os
import queue
import sys
import threading
import types
import weakref

import pytest

import memlab

torch = pytest.importorskip("torch")

HERE = os.path.basename(__file__)
MODULE = f"of module `{__name__}`"

planted = None


class Box:
    def __init__(self, **attributes):
        vars(self).update(attributes)


@pytest.fixture(autouse=True)
def pull_up():
    yield
    globals()["planted"] = None


def plant(value):
    globals()["planted"] = value


def by(path=""):
    return f"global `planted{path}` {MODULE}"


def told(get):
    """(kind, sentence) of each holder of what get() returns; the call holds nothing."""
    return [(holder.kind, str(holder)) for holder in memlab.holders(get())]


def tensor():
    return torch.arange(6.0)


def leaf():
    return torch.ones(2, 2, requires_grad=True)


# ---- Plain references ----


def test_history_of_a_trainer():
    plant(Box(history=[1, 2, 3, tensor()]))
    assert told(lambda: planted.history[3]) == [("global", by(".history[3]"))]


def test_local_of_a_running_function():
    def train():
        loss = tensor()
        seen = memlab.holders(loss)
        return seen

    name = "train" if sys.version_info < (3, 11) else train.__qualname__
    place = f"{HERE}:{train.__code__.co_firstlineno + 2}"
    (holder,) = train()
    assert holder == (f"local `loss` of {name}() at {place}", "local")
    assert str(holder) == holder.path


def test_a_temporary_is_held_by_nobody():
    said = memlab.holders(torch.ones(3))
    assert said == []


def test_closure_default_argument_partial_and_method():
    def make():
        cache = {"k": tensor()}

        def step():
            return cache

        return step

    plant(make())
    name = f"{make.__qualname__}.<locals>.step"
    del make
    assert told(lambda: planted()["k"]) == [
        (
            "closure",
            f"closure variable `cache['k']` of `{name}`, reached from {by()}",
        )
    ]
    plant(functools.partial(print, tensor()))
    assert told(lambda: planted.args[0]) == [("global", by(".args[0]"))]
    plant(Box(value=tensor(), call=None))
    planted.call = types.MethodType(lambda self: self, Box(weight=tensor()))
    assert told(lambda: planted.call.__self__.weight) == [
        ("global", by(".call.__self__.weight"))
    ]


def forward():
    x = tensor()
    raise ValueError(weakref.ref(x))


def test_exception_that_is_kept():
    try:
        forward()
    except ValueError as error:
        plant(error)
    place = f"{HERE}:{forward.__code__.co_firstlineno + 2}"
    local = f"local `x` of forward() at {place}, in the traceback of "
    assert told(lambda: planted.args[0]()) == [("exception", local + by())]
    reference = planted.args[0]
    sys.last_value = planted
    plant(None)
    try:
        assert told(reference) == [
            ("exception", local + "global `last_value` of module `sys`")
        ]
    finally:
        del sys.last_value


def test_cache_generator_and_thread():
    @functools.lru_cache
    def mask(n):
        return torch.ones(n)

    plant(mask)
    name = mask.__qualname__
    del mask
    assert told(lambda: planted(3)) == [
        ("cache", f"a cached result of `{name}`, reached from {by()}")
    ]
    plant(threading.local())
    planted.scratch = tensor()
    assert told(lambda: planted.scratch) == [
        ("thread-local", f"thread-local `planted.scratch` {MODULE}")
    ]


def test_queue_of_a_loader():
    plant(Box(loader=queue.Queue()))
    planted.loader.put({"input": tensor()})
    assert told(lambda: planted.loader.queue[0]["input"]) == [
        ("global", by(".loader.queue[0]['input']"))
    ]


def test_loader_in_the_middle_of_a_loop():
    data = torch.utils.data.DataLoader([tensor(), tensor()], batch_size=None)
    seen = []

    def epoch():
        for batch in data:
            seen.extend(memlab.holders(batch))
            break

    epoch()
    name = "epoch" if sys.version_info < (3, 11) else epoch.__qualname__
    place = f"{name}() at {HERE}:{epoch.__code__.co_firstlineno + 2}"
    assert [h.path for h in seen][0] == f"local `batch` of {place}"
    # batch_size=None hands the data set's own tensors on.
    assert "dataset[0]" in seen[1].path


@pytest.mark.cuda
def test_cells_of_a_notebook(phantom_run):
    pytest.importorskip("IPython", reason="IPython is not installed")
    done = phantom_run(
        """
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell.instance()
        shell.run_line_magic("colors", "NoColor")

        def cell(text):
            shell.run_cell(text, store_history=True)

        def ask(name):
            cell(f"for h in memlab.holders({name}): print('said:', h.kind, h)")

        cell("import torch, memlab, weakref")
        cell("torch.ones(4, device='cuda')")
        cell("out = weakref.ref(_)")
        cell(
            "def train():\\n"
            "    act = torch.ones(8, device='cuda')\\n"
            "    raise RuntimeError(weakref.ref(act))\\n"
            "train()"
        )
        cell("import sys; act = sys.last_value.args[0]")
        ask("act()")
        for number in range(4):
            cell(f"{number}")
        ask("out()")
        cell("net = torch.nn.Linear(2, 2).cuda()")
        cell("net")
        ask("net.weight")
        """.replace("\n        ", "\n")
    )
    said = [line[6:] for line in done.stdout.splitlines() if line.startswith("said: ")]
    assert len(said) == 5, done.stdout
    assert said[0].startswith("exception local `act` of train() at <ipython-input-4-")
    assert said[0].endswith(
        ":3, in the traceback kept by global `last_traceback` of module `sys`"
    )
    assert said[1] == "global global `_2` of module `__main__`"
    assert said[2] == "global global `Out[2]` of module `__main__`"
    # IPython itself keeps a second namespace.
    assert said[3].startswith("local `self.user_ns_hidden['_2']` in ")
    assert said[4] == "global global `net.weight` of module `__main__`"


# ---- Storages ----


def test_a_view_holds_the_storage_of_its_base():
    plant(Box(view=tensor()[2:4]))
    assert told(lambda: planted.view) == [("global", by(".view"))]
    plant(tensor()[1:])
    assert told(lambda: planted[:1]) == [("global", by())]


def test_parts_of_sparse_tensors():
    plant(torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0]))
    assert told(lambda: planted._values()) == [("global", by("._values()"))]
    assert told(lambda: planted._indices()) == [("global", by("._indices()"))]
    plant(torch.eye(3).to_sparse_csr())
    for part in ("crow_indices", "col_indices", "values"):
        assert told(getattr(planted, part)) == [("global", by(f".{part}()"))]
    plant(torch.eye(3).to_sparse_csc())
    for part in ("ccol_indices", "row_indices", "values"):
        assert told(getattr(planted, part)) == [("global", by(f".{part}()"))]


def test_storage_objects_detached_and_numpy():
    plant(tensor().untyped_storage())
    view = planted  # a second name of the same object
    said = told(lambda: torch.empty(0).set_(planted, 0, (1,)))
    assert ("global", by()) in said
    assert len(said) == 2 and "`view`" in said[0][1] + said[1][1]
    del view

    pytest.importorskip("numpy")
    plant([tensor(), None])
    planted[1] = planted[0].numpy()
    # numpy's arrays are no objects of the collector, which could show what they refer to.
    assert told(lambda: planted[0]) == [
        ("global", by("[0]")),
        ("outside", "held outside Python: 1 reference"),
    ]


# ---- Autograd ----


def test_what_a_node_saved():
    def loss(weight):
        activation = (weight * weight).relu()
        return activation.sum(), activation.detach()

    total, view = loss(leaf())
    plant(Box(losses=[total], view=view))
    del total, view
    assert told(lambda: planted.view) == [
        ("global", by(".view")),
        (
            "autograd",
            "autograd node `ReluBackward0` saved `result`, reached from "
            + by(".losses[0].grad_fn"),
        ),
    ]
    planted.losses[0].backward()
    assert told(lambda: planted.view) == [("global", by(".view"))]


def test_what_a_function_of_the_user_saved_and_keeps():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            doubled = x * 2
            ctx.save_for_backward(doubled)
            ctx.extra = torch.ones(3)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    plant(Twice.apply(leaf()))
    assert told(lambda: planted.grad_fn.saved_tensors[0]) == [
        (
            "autograd",
            "autograd node `TwiceBackward` saved `saved_tensors[0]`, reached from "
            + by(".grad_fn"),
        )
    ]
    assert told(lambda: planted.grad_fn.extra) == [("global", by(".grad_fn.extra"))]


def test_a_leaf_whose_graph_is_kept():
    weight = leaf()
    plant((weight * 2).sum())
    assert told(
        lambda: planted.grad_fn.next_functions[0][0].next_functions[0][0].variable
    )[1:] == [
        (
            "autograd",
            "autograd node `AccumulateGrad` holds `variable`, reached from "
            + by(".grad_fn"),
        )
    ]


def test_gradient_hook_and_parameter():
    plant(leaf())
    planted.sum().backward()
    assert told(lambda: planted.grad) == [("global", by(".grad"))]

    def hook(gradient, saved=tensor()):  # noqa: B008
        return gradient

    reference = weakref.ref(hook.__defaults__[0])
    plant(leaf() * 1)
    planted.register_hook(hook)
    name = hook.__qualname__
    del hook
    (holder,) = told(reference)
    assert holder[0] == "default"
    assert holder[1].startswith(f"default argument `saved` of `{name}`, reached from ")
    assert holder[1].endswith(MODULE)


def test_an_unpack_hook_does_not_run():
    ran = []

    def unpack(packed):
        ran.append(packed)
        return packed[0]

    with torch.autograd.graph.saved_tensors_hooks(lambda t: [t], unpack):
        plant((leaf() * 2).exp())
    probe = tensor()
    plant([planted, probe])
    del probe
    assert told(lambda: planted[1]) == [("global", by("[1]"))]
    assert ran == []


# ---- Modules and optimizers ----


def test_parameters_and_the_state_of_optimizers():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    plant(Box(model=model, opt=optimizer))
    del model, optimizer
    assert told(lambda: planted.opt.state[planted.model[0].weight]["exp_avg"]) == [
        ("optimizer", by(".opt.state[planted.model[0].weight]['exp_avg']"))
    ]
    said = told(lambda: planted.model[0].weight)
    assert ("global", by(".model[0].weight")) in said
    assert ("optimizer", by(".opt.param_groups[0]['params'][0]")) in said
    assert ("global", "a key of " + by(".opt.state")) in said


def watched_model():
    outputs = []
    model = torch.nn.Linear(2, 2)
    model.register_forward_hook(lambda module, args, output: outputs.append(output))
    model(torch.ones(1, 2))
    return model, weakref.ref(outputs[0])


def test_closure_of_a_module_hook():
    model, reference = watched_model()
    plant(model)
    (key,) = model._forward_hooks
    del model
    assert told(reference) == [
        (
            "closure",
            "closure variable `outputs[0]` of `watched_model.<locals>.<lambda>`, "
            "reached from " + by(f"._forward_hooks[{key}]"),
        )
    ]


# ---- Nothing else ----


def test_only_a_cycle():
    gc.disable()
    try:
        knot = Box(value=tensor())
        knot.self = knot
        reference = weakref.ref(knot.value)
        del knot
        assert told(reference) == [
            ("cycle", "only a reference cycle holds it: gc.collect() frees it")
        ]
    finally:
        gc.enable()
    gc.collect()
    assert reference() is None


def test_nothing_is_changed():
    weight = leaf()
    plant(Box(total=(weight * weight).exp().sum(), weight=weight))
    del weight
    reference = weakref.ref(planted.weight)
    told(reference)
    gc.collect()
    before = sys.getrefcount(planted.weight), sys.getrefcount(planted.total)
    said = told(reference)
    assert all(told(reference) == said for _ in range(2))
    assert (sys.getrefcount(planted.weight), sys.getrefcount(planted.total)) == before
    planted.total.backward()
    expected = 2 * torch.exp(torch.ones(2, 2))
    assert torch.equal(planted.weight.grad, expected)
    plant(None)
    assert reference() is None


def test_what_is_no_tensor():
    for thing in (3, None, [tensor()], torch.nn.Linear(1, 1), torch.Tensor):
        with pytest.raises(TypeError, match="expected a torch.Tensor, not"):
            memlab.holders(thing)
