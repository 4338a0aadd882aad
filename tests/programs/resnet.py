"""Trains a ResNet for three steps and prints the allocator's peaks."""

import peaks
import torch
import transformers


def main():
    torch.manual_seed(0)
    config = transformers.ResNetConfig(num_labels=1000)
    model = transformers.ResNetForImageClassification(config).to("cuda")
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    for _ in range(3):
        images = torch.randn(32, 3, 224, 224, device="cuda")
        labels = torch.randint(0, 1000, (32,), device="cuda")
        outputs = model(pixel_values=images, labels=labels)
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
    peaks.show()


main()
