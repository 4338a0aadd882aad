"""What explain says of other programs than a plain training loop: policies, evaluations that
keep results, metrics."""

import json

import pytest
from cuda_here import KEEPS_WORKSPACES

START = """
import json, memlab, torch
from torch import nn
from torch.nn import functional as F

def explain(run):
    torch.cuda.empty_cache()
    with memlab.MemorySnapshot() as snapshot:
        run()
    (device,) = memlab.explain(snapshot.data())["devices"]
    return [(item["kind"], item["line"], item["allocated_saving_bytes"])
            for item in device["advice"]]
"""


@pytest.fixture
def told(phantom_run):
    def run(program):
        return json.loads(phantom_run(START + program, env=KEEPS_WORKSPACES).stdout)

    return run


def line_of(program, text):
    """The line of the only one with TEXT."""
    (line,) = (i for i, code in enumerate((START + program).splitlines(), 1) if text in code)
    return line


ROLLOUT = """
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 8))

    def act(self, x):
        return self.actor(x).log_softmax(-1)

def train():
    agent = Agent().cuda()
    optimizer = torch.optim.Adam(agent.parameters())
    for update in range(3):
        seen = [torch.zeros(2048, 64, device="cuda") for _ in range(16)]
        logs = [agent.act(x) for x in seen]  # rollout
        for x, log in zip(seen, logs):
            loss = (agent.act(x) - log.detach()).exp().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

print(json.dumps(explain(train)))
"""


@pytest.mark.cuda
def test_a_graph_in_vain_is_told_by_the_line_that_trains_nothing(told):
    """no_grad() in the function that the training calls, too, would end the training."""
    kinds = {kind: line for kind, line, _ in told(ROLLOUT)}
    assert kinds["graph_unused"] == line_of(ROLLOUT, "# rollout")


KEPT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(256, 512), nn.Linear(512, 512)

    def forward(self, x):
        return self.head(self.body(x))

def train(net, optimizer, kept=None):
    for _ in range(8):
        out = net(torch.zeros(2048, 256, device="cuda"))
        F.cross_entropy(out, torch.zeros(2048, dtype=torch.int64, device="cuda")).backward()
        optimizer.step()
        optimizer.zero_grad()
        if kept is not None:
            kept.append(out.detach().softmax(-1))

@torch.no_grad()
def evaluate(net):
    torch.cat([net(torch.zeros(2048, 256, device="cuda")) for _ in range(30)])

def run(evaluates):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    kept = None if evaluates else []
    for _ in range(3):
        train(net, optimizer, kept)
        if evaluates:
            evaluate(net)

print(json.dumps([explain(lambda: run(evaluates)) for evaluates in (True, False)]))
"""


@pytest.mark.cuda
def test_results_that_are_kept_are_no_loss_in_one_piece(told):
    """Chunks of the loss take away logits of one step, not all that a list has."""
    evaluation, metric = told(KEPT)
    assert not any(kind == "loss_whole" and saving for kind, _, saving in evaluation)
    step = 8 * 2048 * 512 * 4
    assert all(saving < step for kind, _, saving in metric if kind == "loss_whole")


GENERATES = """
net = nn.Sequential(nn.Linear(256, 8000), nn.Linear(8000, 512)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)

def train():
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.zeros(64, 256, device="cuda")).mean().backward()
        optimizer.step()

@torch.no_grad()
def generate():
    "Scores of each token are made between two calls of the model."
    kept = torch.zeros(4096, 256, device="cuda")
    for _ in range(8):
        scores = net(kept).softmax(-1)
        kept = kept + scores[:, :256]

with memlab.MemorySnapshot() as snapshot:
    train()
    trained = torch.cuda.max_memory_allocated()
    generate()
    train()
recording = memlab.Recording(snapshot.data())
(found,) = (one for one in recording.verdict()["findings"] if one["kind"] == "peak_in_evaluation")
print(json.dumps([found["of_bytes"], trained]))
"""


@pytest.mark.cuda
def test_the_peak_of_the_training_has_nothing_between_calls_of_a_generation(told):
    """What is made before the first call is told apart from the training by nothing."""
    training, trained = told(GENERATES)
    assert trained <= training <= trained + 4096 * 256 * 4
