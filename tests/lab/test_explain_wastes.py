"""Programs that waste memory in known ways: explain names each waste, and promises what the
mended program then saves on the real caching allocator."""

import json
from pathlib import Path

import pytest
from cuda_here import KEEPS_WORKSPACES

PROGRAMS = Path(__file__).parents[1] / "programs"

# Of each program the kind of advice, and the peak that it lowers.
WASTES = {
    "activations": ("checkpoint", "allocated"),
    "batch_twice": ("late_frees", "allocated"),
    "cache_grown": ("grown_by_copies", "allocated"),
    "data_on_gpu": ("data_kept", "allocated"),
    "error_kept": ("late_frees", "allocated"),
    "eval_graph": ("graph_unused", "allocated"),
    "eval_locals": ("graph_unused", "allocated"),
    "foreach_temporaries": ("optimizer_temporaries", "allocated"),
    "foreach_unfused": ("optimizer_temporaries", "allocated"),
    "fragmented": ("fragmentation", "reserved"),
    "frozen_gradients": ("frozen_gradients", "allocated"),
    "gradients_kept": ("gradients_kept", "allocated"),
    "gradients_late": ("gradients_late", "allocated"),
    "gradients_late_by_hand": ("gradients_late", "allocated"),
    "graph_retained": ("graph_retained", "allocated"),
    "history_kept": ("steps_kept", "allocated"),
    "graph_shared": ("graph_shared", "allocated"),
    "hooks_keep": ("steps_kept", "allocated"),
    "logits_float32": ("logits_float32", "allocated"),
    "loss_evaluated": ("loss_whole", "allocated"),
    "loss_history": ("graph_unused", "allocated"),
    "losses_kept": ("graph_unused", "allocated"),
    "losses_of_slices": ("losses_summed", "allocated"),
    "losses_summed": ("losses_summed", "allocated"),
    "loss_whole": ("loss_whole", "allocated"),
    "model_copied": ("model_copied", "allocated"),
    "outputs_held": ("late_frees", "allocated"),
    "predictions_kept": ("results_kept", "allocated"),
    "previous_batch": ("late_frees", "allocated"),
    "state_cloned": ("model_copied", "allocated"),
    "teacher_trained": ("frozen_gradients", "allocated"),
    "validation_losses": ("graph_unused", "allocated"),
    "varying_lengths": ("settings", "reserved"),
}
# What is told without last uses, too, and as which kind.
WITHOUT_USES = {
    "error_kept": "late_frees",
    "eval_graph": "graph_unused",
    "eval_locals": "graph_unused",
    "graph_retained": "graph_retained",
    "graph_shared": "graph_shared",
    "history_kept": "steps_kept",
    "hooks_keep": "steps_kept",
    "validation_losses": "graph_unused",
}
# Of these an input goes with the graph; last uses tell it by itself.
INPUT_GOES = {"error_kept", "validation_losses"}
# What is said of the mended program, too, where something else is wasted.
ANY_PROGRAM = {"late_frees", "settings"}
TOLERANCE = 0.05
# Whose reserved peak is further off, as it hangs on what the mended program makes besides.
ONLY_ALLOCATED = {
    "activations", "error_kept", "frozen_gradients", "graph_shared", "losses_kept",
}  # fmt: skip


def source(name):
    return (PROGRAMS / "wastes" / f"{name}.py").read_text()


def waste_line(name):
    """Number of the line that says that it is the waste; 0: none does."""
    lines = source(name).splitlines()
    return next((i for i, line in enumerate(lines, 1) if line.endswith("# waste")), 0)


@pytest.fixture(scope="module")
def answers():
    return {}


@pytest.fixture
def told(answers, phantom_run):
    """What wastes_told.py prints of all programs, run once."""
    if not answers:
        # The programs are small: a workspace that each product makes would be their peak.
        names = [*WASTES, *(f"{name} without uses" for name in WITHOUT_USES)]
        said = phantom_run(PROGRAMS / "wastes_told.py", *names, env=KEEPS_WORKSPACES).stdout
        answers.update(json.loads(said))
    return answers


def saved(ran, peak):
    return ran["before"][peak] - ran["after"][peak]


def find(name, explained, kind=None):
    """The first advice of KIND, or of the waste's kind, that names its line."""
    kind = kind or WASTES[name][0]
    line = waste_line(name)
    for place, item in enumerate(explained["advice"]):
        if item["kind"] == kind and item["line"] == line:
            assert not line or item["file"].endswith(f"wastes/{name}.py")
            return place, item
    return None, None


def test_every_program_is_told():
    assert {path.stem for path in (PROGRAMS / "wastes").glob("*.py")} == set(WASTES)


@pytest.mark.cuda
@pytest.mark.parametrize("name", WASTES)
def test_is_named(told, name):
    _, peak = WASTES[name]
    place, item = find(name, told[name]["explained"])
    assert place in (0, 1, 2)
    # The program does waste something, or this would show nothing.
    assert saved(told[name], peak) > told[name]["before"][peak] / 20
    for which in {peak} if name in ONLY_ALLOCATED else {peak, "reserved"}:
        real = saved(told[name], which)
        if item["at_most"]:
            assert real <= item[f"{which}_saving_bytes"] * (1 + TOLERANCE)
            assert item["saves"].startswith("at most ")
            continue
        assert item[f"{which}_saving_bytes"] == pytest.approx(real, rel=TOLERANCE)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("name", "called", "conf"),
    [("foreach_temporaries", "Adam", "fused=True"), ("foreach_unfused", "RMSprop", "foreach=False")],
)
def test_an_optimizer_is_given_what_its_class_has(told, name, called, conf):
    _, item = find(name, told[name]["explained"])
    assert (item["optimizer"], item["conf"]) == (called, conf)


@pytest.mark.cuda
@pytest.mark.parametrize("name", WITHOUT_USES)
def test_is_named_without_last_uses(told, name):
    """Each block then ends later than with them: less may be saved, never more."""
    with_uses, without = told[name], told[f"{name} without uses"]
    assert not without["explained"]["uses_known"]
    place, item = find(name, without["explained"], WITHOUT_USES[name])
    assert place in (0, 1, 2) and not item["exact"]
    real = saved(without, "allocated")
    _, exact = find(name, with_uses["explained"])
    assert exact["exact"] == (not exact["at_most"])
    least, most = item["allocated_saving_bytes"], exact["allocated_saving_bytes"]
    assert least <= (most * (1 + TOLERANCE) if name in INPUT_GOES else most)
    # Where steps end with the backward pass, what comes after it is of the next.
    assert real - item["bytes"] // item["blocks"] - real * TOLERANCE <= least
    assert item["at_most"] or least <= real * (1 + TOLERANCE)
    assert find(name, without["clean"], WITHOUT_USES[name]) == (None, None)


@pytest.mark.cuda
@pytest.mark.parametrize("name", WASTES)
def test_is_not_named_where_it_is_mended(told, name):
    kind, peak = WASTES[name]
    explained = told[name]["clean"]
    if kind not in ANY_PROGRAM:
        assert kind not in {item["kind"] for item in explained["advice"]}
    _, item = find(name, explained)
    # Of the same line other blocks may be freed late.
    least = told[name]["after"][peak] / 20
    assert item is None or kind == "late_frees" and item[f"{peak}_saving_bytes"] < least


@pytest.mark.cuda
def test_the_model_has_the_peaks_that_torch_counted(told):
    for name, ran in told.items():
        assert ran["explained"]["exact"], name
        assert ran["explained"]["recorded"]["allocated_bytes"] == ran["before"]["allocated"]
        assert ran["explained"]["recorded"]["reserved_bytes"] == ran["before"]["reserved"]


BY_HAND = """
import json, torch, memlab
from torch import nn

def looks(model, part):
    "A block of each gradient's size is made, and nothing else done."
    for weight in model.parameters():
        weight.grad.abs().max()

def halves(model, part):
    "An update that makes a block of each gradient's size."
    for weight in model.parameters():
        weight -= 0.1 * weight.grad

def in_place(model, part):
    for weight in model.parameters():
        weight.sub_(weight.grad, alpha=0.1)

def run(update, parts, clear, inputs=False):
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
    with memlab.MemorySnapshot(uses=True) as snapshot:
        for step in range(3):
            clear(model)
            for part in range(parts):
                x = torch.zeros(1024, 1024, device="cuda", requires_grad=inputs)
                model(x).relu().sum().backward()
            with torch.no_grad():
                update(model, part)
    (device,) = memlab.explain(snapshot.data())["devices"]
    return sorted({item["kind"] for item in device["advice"] if "gradients" in item["kind"]})

def none(model):
    model.zero_grad()

def zeros(model):
    model.zero_grad(set_to_none=False)

print(json.dumps([
    run(halves, 1, none), run(in_place, 1, none), run(halves, 3, none),
    run(in_place, 3, none), run(in_place, 3, none, True), run(halves, 3, none, True),
    run(halves, 1, zeros), run(halves, 3, zeros), run(looks, 1, zeros), run(looks, 3, none)]))
"""


@pytest.mark.cuda
def test_gradients_that_several_passes_add_to_are_no_waste(phantom_run):
    assert json.loads(phantom_run(BY_HAND).stdout) == [[]] * 10


TOGETHER = """
import json, torch, memlab
from torch import nn

body = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(256, 512), nn.ReLU(),
                                                    nn.Linear(512, 256)))).cuda()

def kinds(losses):
    with memlab.MemorySnapshot(uses=True) as snapshot:
        for step in range(3):
            losses().backward()
            body.zero_grad()
    (device,) = memlab.explain(snapshot.data())["devices"]
    return "losses_summed" in {item["kind"] for item in device["advice"]}

def batches(count):
    return (torch.zeros(2048, 256).cuda() for _ in range(count))

def unrolled(detach=False):
    state, total = torch.zeros(2048, 256, device="cuda"), 0
    for x in batches(3):
        state = body(x + (state.detach() if detach else state))
        total = total + state.square().mean()
    return total

def values():
    return [body(x).square().mean() for x in batches(2)]

def compared():
    made = []
    for x in batches(2):
        made.append(body(x))
        made[-1].detach().mean()
    return nn.functional.cosine_similarity(*made).mean()

def squared():
    real, fake = values()
    return (real - fake).square()

def divided():
    real, fake = values()
    return real / fake

apart = [lambda: sum(values()), lambda: unrolled(detach=True)]
print(json.dumps([[kinds(one) for one in apart],
                  [kinds(one) for one in (unrolled, compared, squared, divided)]]))
"""


@pytest.mark.cuda
def test_calls_that_need_one_pass_are_no_micro_batches(phantom_run):
    said = phantom_run(TOGETHER, env=KEEPS_WORKSPACES).stdout
    assert json.loads(said) == [[True, True], [False] * 4]
