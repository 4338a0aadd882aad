"""A queue that a thread does not empty.

held by: `waiting
since step: 0
"""

import queue
import threading

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


waiting = queue.Queue()
done = threading.Event()
worker = threading.Thread(target=done.wait, daemon=True)
worker.start()
for _ in range(8):
    x = torch.randn(16, 64)
    waiting.put(x.clone())  # leaks
    step(x)
done.set()
