"""A trainer that stands in for Composer's: it does what that does, in its order, as far as
callbacks see it.  PRELUDE is source for programs on a CUDA device, run() runs them."""

import json
import types

import pytest
from warm import run as run_warm

PRELUDE = """
import dataclasses, datetime, json, logging, os, sys, types, warnings
import torch

@dataclasses.dataclass(frozen=True)
class Timestamp:
    epoch: int = 0
    batch: int = 0
    batch_in_epoch: int = 0
    sample: int = 0
    sample_in_epoch: int = 0
    token: int = 0
    token_in_epoch: int = 0
    iteration: int = 0
    total_wct: datetime.timedelta = datetime.timedelta()
    epoch_wct: datetime.timedelta = datetime.timedelta()
    batch_wct: datetime.timedelta = datetime.timedelta()

    def to_next_batch(self):
        return dataclasses.replace(
            self, batch=self.batch + 1, batch_in_epoch=self.batch_in_epoch + 1,
            sample=self.sample + 8, sample_in_epoch=self.sample_in_epoch + 8)

    def to_next_epoch(self):
        return dataclasses.replace(
            self, epoch=self.epoch + 1, batch_in_epoch=0, sample_in_epoch=0)

class Logger:
    refuses = None

    def __init__(self):
        self.uploads, self.metrics, self.traces = [], [], []

    def upload_file(self, remote_file_name, file_path, *, overwrite=False):
        if self.refuses:
            raise self.refuses
        size = os.path.getsize(file_path)
        self.uploads.append([remote_file_name, file_path, overwrite, size])

    def log_metrics(self, metrics, step=None):
        self.metrics.append(metrics)

    def log_traces(self, traces):
        self.traces.append(traces["profiler/state"])

class Trainer:
    def __init__(self, *callbacks, profiler=None, device="cuda", epochs=1, batches=10,
                 run_name="r", model=None, timestamp=Timestamp()):
        self.model = model or torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).to(device)
        parameters = list(self.model.parameters()) or [torch.zeros(1)]
        self.optimizer = torch.optim.Adam(parameters)
        self.device, self.epochs, self.batches = device, epochs, batches
        self.logger = Logger()
        self.state = types.SimpleNamespace(
            run_name=run_name, model=self.model, timestamp=timestamp, profiler=profiler,
            callbacks=list(callbacks), dataloader_len=batches)
        if profiler is not None:
            profiler.bind_to_state(self.state)
        self.event("init")

    def event(self, name):
        event = types.SimpleNamespace(value=name)
        for callback in self.state.callbacks:
            callback.run_event(event, self.state, self.logger)

    def fit(self, at_batch_end=lambda trainer: None):
        self.event("fit_start")
        for _ in range(self.epochs):
            self.event("epoch_start")
            for _ in range(self.batches):
                self.event("batch_start")
                inputs = torch.ones(8, 64, device=self.device)
                self.model(inputs).sum().backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.event("after_train_batch")
                self.state.timestamp = self.state.timestamp.to_next_batch()
                self.event("batch_end")
                at_batch_end(self)
            self.state.timestamp = self.state.timestamp.to_next_epoch()
            self.event("epoch_end")
        self.event("fit_end")
        return self

    def close(self):
        for callback in self.state.callbacks:
            callback.close(self.state, self.logger)
        for callback in self.state.callbacks:
            callback.post_close()
        return self

def files(folder="."):
    return sorted(os.path.relpath(os.path.join(root, name), folder)
                  for root, _, names in os.walk(folder) for name in names)

from memlab.callbacks.composer import *

NOTHING = dict(torch_prof_profile_memory=False, torch_prof_with_flops=False)
"""


def run(source, environment, folder):
    """Runs SOURCE after PRELUDE in FOLDER; returns what it gave tell(NAME=VALUE, ...), its
    stderr as err, and the folder."""
    tell = "\ntell = lambda **what: print('TOLD', json.dumps(what, default=str))\n"
    done = run_warm(PRELUDE + tell + source, env=environment, cwd=folder)
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    told = {}
    for line in done.stdout.splitlines():
        if line.startswith("TOLD "):
            told.update(json.loads(line[5:]))
    return types.SimpleNamespace(**told, err=done.stderr, folder=folder)
