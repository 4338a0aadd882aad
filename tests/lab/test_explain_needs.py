"""What explain does not advise: memory that the program's own method needs."""

import json

import pytest
from cuda_here import KEEPS_WORKSPACES

START = """
import json, memlab, torch
from torch import nn

def layers(count):
    return nn.Sequential(*(m for _ in range(count) for m in (nn.Linear(512, 512), nn.Tanh())))

def explain(run):
    kinds = []
    for uses in (True, False):
        torch.cuda.empty_cache()
        with memlab.MemorySnapshot(uses=uses) as snapshot:
            run()
        (device,) = memlab.explain(snapshot.data())["devices"]
        kinds.append([item["kind"] for item in device["advice"]])
    return kinds
"""


@pytest.fixture
def told(phantom_run):
    def run(program):
        return json.loads(phantom_run(START + program, env=KEEPS_WORKSPACES).stdout)

    return run


TEACHER = """
def train():
    teacher, student = layers(6).cuda(), layers(2).cuda()
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    for _ in range(3):
        batches = [torch.zeros(1024, 512, device="cuda") for _ in range(8)]
        with torch.no_grad():
            lessons = [teacher(batch) for batch in batches]
        optimizer.zero_grad()
        for batch, lesson in zip(batches, lessons):
            (student(batch) - lesson).square().mean().backward()
        optimizer.step()

print(json.dumps(explain(train)))
"""


@pytest.mark.cuda
def test_what_a_teacher_answers_is_no_result_that_an_evaluation_keeps(told):
    """The training takes it from the GPU."""
    assert not any("results_kept" in kinds for kinds in told(TEACHER))


SEPARATE = """
def train(passes):
    trunk, one, other = layers(3).cuda(), layers(3).cuda(), layers(3).cuda()
    parameters = [p for net in (trunk, one, other) for p in net.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.1)
    for _ in range(3):
        shared = trunk(torch.zeros(4096, 512, device="cuda"))
        losses = one(shared).mean(), other(shared).mean()
        for parameter, *of_losses in zip(parameters, *passes(optimizer, parameters, losses)):
            parameter.grad = sum(g for g in of_losses if g is not None)
        optimizer.step()

def backward(optimizer, parameters, losses):
    for loss, last in zip(losses, (False, True)):
        optimizer.zero_grad()
        loss.backward(retain_graph=not last)
        yield [p.grad if p.grad is None else p.grad.clone() for p in parameters]

def grad(optimizer, parameters, losses):
    for loss, last in zip(losses, (False, True)):
        yield torch.autograd.grad(loss, parameters, retain_graph=not last, allow_unused=True)

print(json.dumps([explain(lambda: train(passes)) for passes in (backward, grad)]))
"""


@pytest.mark.cuda
def test_gradients_of_each_loss_need_the_graph_that_the_losses_share(told):
    """A backward pass of their sum has no gradients to project or to weigh."""
    backward, grad = told(SEPARATE)
    assert not any("graph_shared" in kinds for kinds in backward + grad)


SLOWER = """
def train():
    body, head = layers(4).cuda(), layers(1).cuda()
    of_body = torch.optim.SGD(body.parameters(), 0.1)
    of_head = torch.optim.SGD(head.parameters(), 0.1)
    for step in range(1, 13):
        loss = head(body(torch.zeros(1024, 512, device="cuda"))).mean()
        of_head.zero_grad()
        loss.backward()
        of_head.step()
        if step % 4 == 0:
            of_body.step()
            of_body.zero_grad()

print(json.dumps(explain(train)))
"""


@pytest.mark.cuda
def test_gradients_wait_for_their_own_optimizer(told):
    """Another one steps while they accumulate."""
    assert not any("gradients_kept" in kinds for kinds in told(SLOWER))


LOSS = """
def fail(loss):
    blocks = [nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(6)]
    model = nn.Sequential(*blocks).cuda()
    wide = torch.ones(8, device="cuda")
    x = torch.zeros(16384, 512, device="cuda")
    y = loss(model(x), x)
    limit = torch.cuda.memory_reserved() + (64 << 20)
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
    (y[:, :, None] * wide).mean().backward()

def explain_failed(loss):
    torch.cuda.empty_cache()
    with memlab.MemorySnapshot() as snapshot:
        try:
            fail(loss)
        except torch.OutOfMemoryError:
            torch.cuda.set_per_process_memory_fraction(1.0)
    (device,) = memlab.explain(snapshot.data())["devices"]
    return [item["kind"] for item in device["advice"]]

print(json.dumps([
    explain_failed(lambda y, x: y.tanh() - x),
    explain_failed(lambda y, x: y.tanh() - x.abs().sqrt()),
    explain_failed(lambda y, x: (y - x.abs()).square() + x.exp().sqrt()),
]))
"""


@pytest.mark.cuda
def test_a_pass_that_ends_in_the_loss_waits_for_its_backward_pass(told):
    """What the loss makes of the targets, of no phase, comes between."""
    for kinds in told(LOSS):
        assert "checkpoint" in kinds and "graph_unused" not in kinds
