"""An evaluation keeps its predictions on the GPU, and concatenates them there."""

import sys

import torch
from torch import nn


def batches(count):
    return (torch.zeros(1024, 512, device="cuda") for _ in range(count))


def train(model, optimizer):
    for x in batches(3):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, mended):
    predictions = []
    for x in batches(20):
        prediction = model(x)  # waste
        predictions.append(prediction.cpu() if mended else prediction)
    return torch.cat(predictions).mean().item()


def main(mended):
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        train(model, optimizer)
        evaluate(model, mended)


if __name__ == "__main__":
    main("--mended" in sys.argv)
