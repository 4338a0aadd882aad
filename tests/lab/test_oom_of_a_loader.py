"""The batch that fits, where no argument of the program names it: its DataLoader's."""

import json

import pytest

# Arguments: the batch, and what else there is: "alone", another loader that is being read, or a
# sampler whose batch_size is the program's own code.  It prints what the verdict says of fitting.
PROGRAM = """
import json
import sys

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

import memlab

batch, beside = int(sys.argv[1]), sys.argv[2]

class Sampler(BatchSampler):
    @property
    def batch_size(self):
        raise RuntimeError("read")

    @batch_size.setter
    def batch_size(self, value):
        self.many = value

    def __iter__(self):
        for start in range(0, len(self.sampler), self.many):
            yield list(range(start, start + self.many))

model = nn.Sequential(nn.Linear(16, 4096), *(nn.Linear(4096, 4096) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.TensorDataset(torch.zeros(3 * batch, 16))
if beside == "sampler":
    sampler = Sampler(SequentialSampler(data), batch, False)
    loader = DataLoader(data, batch_sampler=sampler)
else:
    loader = DataLoader(data, batch_size=batch)
other = iter(DataLoader(data, batch_size=7)) if beside == "another" else None
whole = iter(DataLoader(data, batch_size=None))
finished = list(DataLoader(data, batch_size=5 * batch))
with memlab.MemorySnapshot(on_oom=sys.argv[3]) as snapshot:
    try:
        for (x,) in loader:
            optimizer.zero_grad()
            model(x.cuda()).mean().backward()
            optimizer.step()
        fit = None
    except torch.OutOfMemoryError:
        fit = snapshot.data().verdict(0, trials=True)["make_fit"]
print(json.dumps(fit))
"""


@pytest.fixture
def run(phantom_run, tmp_path):
    def run(batch, beside="alone"):
        memory = {"MEMLAB_PHANTOM_MEMORY": str(8 << 30)}
        done = phantom_run(PROGRAM, str(batch), beside, str(tmp_path), env=memory)
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.cuda
def test_the_batch_of_the_loader_is_told(run):
    fit = run(50_000)
    assert (fit["batch_argument"], fit["batch_recorded"]) == ("", 50_000)
    assert f"The batch that fits: batch_size={fit['batch']} of the DataLoader (" in fit["batch_text"]
    assert run(fit["batch"]) is None
    assert run(fit["batch"] * 115 // 100) is not None


@pytest.mark.cuda
@pytest.mark.parametrize("beside", ["another", "sampler"])
def test_which_loader_is_meant_is_not_guessed(beside, run):
    fit = run(50_000, beside)
    assert (fit["batch_argument"], fit["batch_recorded"]) == ("", 0)
    assert "The batch that fits: 0." in fit["batch_text"]
