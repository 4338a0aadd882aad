"""Advice for a program in whose place Lightning runs the loop."""

import json

import pytest
from cuda_here import KEEPS_WORKSPACES

TRAINS = """
import json, sys
import lightning
import torch
import memlab

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(6)))
        self.automatic_optimization = sys.argv[1] != "manual"

    def forward(self, x):
        return self.net(x).relu().sum()

    def training_step(self, batch, index):
        loss = self(batch[0])
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, foreach=False)

data = torch.utils.data.TensorDataset(torch.zeros(3 * 4096, 2048))
trainer = lightning.Trainer(
    max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
with memlab.MemorySnapshot() as snapshot:
    trainer.fit(Net(), torch.utils.data.DataLoader(data, 4096))
recording = snapshot.data()
changes = recording.verdict(0, trials=True)["changes"]
print(json.dumps([torch.cuda.max_memory_allocated(), changes, str(memlab.explain(recording))]))
"""


def trained(phantom_run, how, method=""):
    """The peak of TRAINS with METHOD, the change of its gradients, and the text of explain."""
    before = "    def configure_optimizers"
    program = TRAINS.replace(before, f"    {method}\n\n{before}")
    done = phantom_run(program, how, env=KEEPS_WORKSPACES)
    peak, changes, text = json.loads(done.stdout.splitlines()[-1])
    found = [item for item in changes if item["kind"] == "gradients_late"]
    return peak, found, " ".join(text.split())


@pytest.mark.cuda
def test_lightning_frees_gradients_late(phantom_run):
    """What is said is to be pasted into the module, and saves what it promises."""
    pytest.importorskip("lightning")
    before, [change], text = trained(phantom_run, "automatic")
    assert "optimizer_step" in change["library_switch"] and change["line"] == 0
    assert "optimizer.zero_grad()" not in text
    assert "Write: in the LightningModule " + change["code"] in text
    after, none, _ = trained(phantom_run, "automatic", change["code"])
    assert none == []
    assert change["allocated_saving_bytes"] == pytest.approx(before - after, rel=0.05)


@pytest.mark.cuda
def test_a_module_that_frees_them_itself_is_told_its_line(phantom_run):
    pytest.importorskip("lightning")
    _, [change], text = trained(phantom_run, "manual")
    line = 1 + TRAINS.splitlines().index("            optimizer.zero_grad()")
    assert not change["library_switch"] and change["line"] == line
    assert "optimizer.zero_grad()" in text
