"""Programs for `memlab lines`, and what it prints of them."""

MEMLAB = """\
import os, sys
from memlab._cli.main import main
os.environ.update({variables!r})
sys.exit(main(sys.argv[1:]))
"""

TRAIN = """\
import sys
import torch
from layers import Block, widen

device = sys.argv[1]

def train():
    a = torch.empty(1024, device=device)
    b = Block()(a)
    return widen(b)

if __name__ == "__main__":
    def epilogue():
        return torch.empty(256, device=device)
    train()
    epilogue()
    print("END OF THE PROGRAM")
"""
LAYERS = """\
import torch

class Block(torch.nn.Module):
    def forward(self, x):
        wide = torch.empty(2048, device=x.device)
        del wide
        return torch.empty(512, device=x.device)

def widen(x):
    def inner(count):
        return torch.empty(count, device=x.device)
    return inner(4096)
"""
# A program whose one function has a table of two lines: 0 and 1 KiB.
SMALL = """\
import os, signal, sys, torch
def work(device="cpu"):
    return torch.empty(256, device=device)
"""
SMALL_TABLE = {
    'def work(device="cpu"):': ["0.00B"],
    "return torch.empty(256, device=device)": ["1.00K"],
}


def tables(text, columns=1):
    """{name: {code of a line that ran: its cells, the number of the line apart}}"""
    found = {}
    for part in text.split("## ")[1:]:
        name, _, first, *rest = part.split("\n")
        end, code = first.index("line") + 4, first.index("code")
        rows = found[name] = {}
        for row in rest[2:]:
            cells = row[:end].split()
            if len(cells) == columns + 1:
                rows[row[code:].strip()] = cells[:-1]
    return found


def told(done):
    """What memlab said on stderr, after the line with which it begins."""
    said = [line for line in done.stderr.splitlines() if line.startswith("memlab:")]
    assert said[0].startswith("memlab: profiling lines by "), done.stderr
    return said[1:]


ONE = ("--device", "cpu", "-D", "-c", "active_bytes.all.peak")
