"""The nets of fit_programs.py that are not those of a library."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class UNet(nn.Module):
    """Predicts the noise in images, with attention in the middle."""

    def __init__(self, width):
        super().__init__()

        def block(inner, outer):
            return nn.Sequential(
                nn.Conv2d(inner, outer, 3, padding=1),
                nn.GroupNorm(8, outer),
                nn.SiLU(),
                nn.Conv2d(outer, outer, 3, padding=1),
                nn.GroupNorm(8, outer),
                nn.SiLU(),
            )

        self.down = nn.ModuleList(
            [block(3, width), block(width, 2 * width), block(2 * width, 4 * width)]
        )
        self.middle = block(4 * width, 4 * width)
        self.attention = nn.MultiheadAttention(4 * width, 8, batch_first=True)
        self.up = nn.ModuleList(
            [block(8 * width, 2 * width), block(4 * width, width), block(2 * width, width)]
        )
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        count, channels, height, width = x.shape
        y = x.flatten(2).transpose(1, 2)
        x = x + self.attention(y, y, y, need_weights=False)[0].transpose(1, 2).reshape(
            count, channels, height, width
        )
        for up in self.up:
            x = up(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.last(x)


class LowRank(nn.Module):
    """A frozen linear layer with a trained part of low rank beside it."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        weight = base.weight
        self.a = nn.Parameter(weight.new_zeros(rank, weight.shape[1]))
        self.b = nn.Parameter(weight.new_zeros(weight.shape[0], rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b)


class GPTBlocks(nn.Module):
    """A decoder of torch's own layers, each recomputed in the backward pass."""

    def __init__(self, layers, width, heads, vocabulary, length):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places
        mask = nn.Transformer.generate_square_subsequent_mask(
            tokens.shape[1], device=tokens.device
        )
        for layer in self.layers:
            x = checkpoint(layer, x, mask, use_reentrant=False)
        return self.head(x)


class _Residual(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.short = nn.Identity()
        if stride > 1 or inner != outer:
            self.short = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x):
        return F.relu(self.main(x) + self.short(x), inplace=True)


def resnet(*depths):
    """A residual net of basic blocks, for images."""
    parts = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inner = 64
    for stage, depth in enumerate(depths):
        for place in range(depth):
            stride = 2 if stage and not place else 1
            parts.append(_Residual(inner, 64 << stage, stride))
            inner = 64 << stage
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), _head(inner))


def vgg(*widths):
    """Plain convolutions; "M" is a pooling."""
    parts, inner = [], 3
    for width in widths:
        if width == "M":
            parts.append(nn.MaxPool2d(2))
            continue
        parts += [nn.Conv2d(inner, width, 3, padding=1), nn.ReLU(inplace=True)]
        inner = width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), _head(inner))


def mobilenet():
    """Convolutions of each channel alone, between those of all at one point."""
    parts, inner = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)], 32
    widths = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
    for outer, stride in widths:
        parts += [
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(),
            nn.Conv2d(inner, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU6(),
        ]
        inner = outer
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), _head(inner))


def waveform_net(labels):
    """Convolutions along time."""
    parts, inner = [nn.Conv1d(1, 64, 80, 4)], 64
    for outer in (64, 128, 256):
        parts += [nn.BatchNorm1d(inner), nn.ReLU(), nn.MaxPool1d(4)]
        parts.append(nn.Conv1d(inner, outer, 3, padding=1))
        inner = outer
    return nn.Sequential(
        *parts, nn.AdaptiveAvgPool1d(1), nn.Flatten(), _head(inner, labels)
    )


def _head(inner, labels=1000):
    return nn.Linear(inner, labels)
