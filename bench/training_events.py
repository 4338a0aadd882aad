"""A recording of training that nobody ran, of any length: training_events.py FILE EVENTS

Memory events of a transformer of 48 blocks, step after step, are told to the scripted
source, from functions that stand for its modules, and recorded in FILE (.mlab).  Sizes
vary with the length of each batch, and a tenth of what is freed waits for another stream.
"""

import random
import sys

import memlab
from memlab import _core

BLOCKS = 48
WIDTH = 1600
BATCH = 8
MIB = 1 << 20
START_NS = 1_790_000_000 * 10**9


class Allocator:
    """Each block has a segment of its own, and is found again by its size."""

    def __init__(self):
        self.emit = _core.Script().emit
        self.free = {}
        self.next = 0x7F00_0000_0000
        self.time = START_NS
        self.events = 0
        self.waiting = []
        self.random = random.Random(8)

    def tell(self, action, address, size, backward=False):
        self.time += 2_000
        self.emit(action, address, size, time=self.time, backward=backward)
        self.events += 1

    def segment(self, size):
        address = self.next
        self.next += -(-size // (2 * MIB)) * 4 * MIB
        self.tell("segment_alloc", address, size)
        return address

    def alloc(self, size, backward=False):
        size = -(-size // 512) * 512
        found = self.free.get(size)
        address = found.pop() if found else self.segment(size)
        self.tell("alloc", address, size, backward)
        return address, size

    def give(self, block, backward=False):
        self.tell("free_requested", *block, backward)
        if self.random.random() < 0.1:
            self.waiting.append(block)
        else:
            self.complete(block)
        if len(self.waiting) > 20:
            self.complete(self.waiting.pop(0))

    def complete(self, block):
        self.tell("free_completed", *block)
        self.free.setdefault(block[1], []).append(block[0])


# The allocator is torch's in a recording: lines are those of who asks it.
for method in ("tell", "segment", "alloc", "give", "complete"):
    function = getattr(Allocator, method)
    function.__code__ = function.__code__.replace(co_filename="torch/allocator.py")


def attention(memory, tokens):
    kept = [memory.alloc(tokens * 3 * WIDTH * 2)]
    scores = memory.alloc(tokens * 512 * 2)
    kept.append(memory.alloc(tokens * WIDTH * 2))
    memory.give(scores)
    kept.append(memory.alloc(tokens * WIDTH * 2))
    return kept


def feed_forward(memory, tokens):
    kept = [memory.alloc(tokens * 4 * WIDTH * 2)]
    work = memory.alloc(MIB)
    kept.append(memory.alloc(tokens * 4 * WIDTH * 2))
    memory.give(work)
    kept.append(memory.alloc(tokens * WIDTH * 2))
    return kept


def block(memory, tokens):
    norm = memory.alloc(tokens * 8)
    return [norm, *attention(memory, tokens), *feed_forward(memory, tokens)]


def head(memory, tokens):
    logits = memory.alloc(tokens * 50_257)
    loss = memory.alloc(4)
    return [logits, loss]


def forward(memory, tokens):
    kept = [memory.alloc(tokens * WIDTH * 2)]
    for _ in range(BLOCKS):
        kept += block(memory, tokens)
    return kept + head(memory, tokens)


def backward(memory, kept, sizes):
    gradients = []
    for i, activation in enumerate(reversed(kept)):
        work = memory.alloc(activation[1], backward=True)
        if i % 3 == 0 and len(gradients) < len(sizes):
            gradients.append(memory.alloc(sizes[len(gradients)], backward=True))
        memory.give(activation, backward=True)
        memory.give(work, backward=True)
    return gradients


def optimizer_step(memory, gradients):
    for gradient in gradients:
        work = memory.alloc(gradient[1])
        memory.give(work)
    for gradient in gradients:
        memory.give(gradient)


def parameters(memory):
    sizes = [50_257 * WIDTH * 2]
    for _ in range(BLOCKS):
        sizes += [3 * WIDTH * WIDTH * 2, WIDTH * WIDTH * 2, 8 * WIDTH * WIDTH * 2]
    return [memory.alloc(size) for size in sizes for _ in range(3)], sizes


def train(memory, events):
    _, sizes = parameters(memory)
    while memory.events < events:
        tokens = BATCH * 64 * memory.random.randint(4, 16)
        with memlab.phase("forward"):
            kept = forward(memory, tokens)
        with memlab.phase("backward"):
            gradients = backward(memory, kept, sizes)
        with memlab.phase("optimizer"):
            optimizer_step(memory, gradients)
        memory.time += 3_000_000
        memlab.step()


def main(path, events):
    memory = Allocator()
    _core.Script().reset()
    with memlab.MemorySnapshot(source="script", file=path):
        train(memory, int(events))


if __name__ == "__main__":
    main(*sys.argv[1:])
