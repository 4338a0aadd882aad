"""A discriminator's loss retains the generator's graph for the generator's own pass."""

import sys

import torch
from torch import nn


def layers(count):
    return nn.Sequential(*(m for _ in range(count) for m in (nn.Linear(512, 512), nn.Tanh())))


def main(mended):
    generator, discriminator = layers(6).cuda(), layers(6).cuda()
    of_generator = torch.optim.SGD(generator.parameters(), 0.1)
    of_discriminator = torch.optim.SGD(discriminator.parameters(), 0.1)
    noise = torch.zeros(2048, 512, device="cuda")
    for _ in range(4):
        fake = generator(noise)
        of_discriminator.zero_grad()
        loss = discriminator(fake.detach() if mended else fake).mean()
        loss.backward(retain_graph=not mended)  # waste
        of_discriminator.step()
        of_generator.zero_grad()
        discriminator(fake).mean().backward()
        of_generator.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
