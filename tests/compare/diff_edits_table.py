"""Edits of the programs diff_*.py in programs/, and what `memlab diff` must name of each.

Worked out by hand from what torch keeps for a backward pass.  Each Edit replaces texts, of
which each is in the program once; `names` has, for the instant of the peak and for phases,
all rows by line that differ: the text of the line in the edited program, or where it is
gone in the one before, how it changed, and MiB before and after.  A phase that is not
there is not looked at, unless `names` is NOTHING: then nothing may differ in any.

Of diff_mlp.py each tensor of a batch is 2 MiB, each weight 4 MiB.  Of diff_loop.py each
tensor of a batch is 2 MiB, the weight 4 MiB.  Of diff_attention.py, for each of the two
layers, x is 2 MiB, what wide makes 8 MiB, the scores 8 MiB, the logits 8 MiB; the weights
are 3, 1, 4 and 4 MiB a layer and 4 and 4 MiB for words and head: 32 MiB.
"""

from __future__ import annotations

from typing import NamedTuple

NOTHING = "nothing in any phase"

# MiB that a loss takes.
S = 512 / (1 << 20)

# Lines of the programs.
UP, TANH, DOWN = "h = self.up(x)", "h = torch.tanh(h)", "h = self.down(h)"
ADD, HEAD = "return x + h", "return self.head(x)"
MSE, STEP = "loss = F.mse_loss(out, y)", "optimizer.step()"
X = 'x = torch.randn(BATCH, WIDTH, device="cuda")\n        y'
Y = 'y = torch.randn(BATCH, WIDTH, device="cuda")'
CUDA, MAKE = "net = Net().cuda()", "x = x + noise"
MATMUL = "a = x @ weight"
SCORES, SOFTMAX = "scores = q @ k.transpose(-1, -2)", "weights = scores.softmax(dim=-1)"
MIXED = "mixed = weights @ v"
MERGE = "mixed = mixed.transpose(1, 2)"
WIDE = "h = F.gelu(self.wide(x))"
ENTROPY = "loss = F.cross_entropy"
MODEL = "model = Model().cuda()"


class Row(NamedTuple):
    """What a row by line says: MiB, and whether of the backward pass."""

    line: str
    change: str
    before: float
    after: float
    backward: bool = False


class Edit(NamedTuple):
    """Texts that are replaced, and what is named by phase; "" is the peak."""

    program: str
    texts: tuple[tuple[str, str], ...]
    names: dict[str, list[Row]] | str
    file: str = ""  # that the edited program is in, of that name


def _clone(more=()):
    return (TANH, TANH + ".clone()"), *more


_CLONED = Row(TANH + ".clone()", "grew", 4, 8)
_MOMENTUM = ("lr=0.1)", "lr=0.1, momentum=0.9)")
# A buffer for each weight.
_WITH_MOMENTUM = Row(STEP, "appeared", 0, 20)

MLP = {
    # tanh keeps its result, and the next layer the copy.
    "clone added to a line": Edit("mlp", _clone(), {"": [_CLONED]}),
    "clone on a line of its own": Edit(
        "mlp",
        ((DOWN, "h = h.clone()\n        " + DOWN),),
        {"": [Row("h = h.clone()", "appeared", 0, 4)], "evaluate": []},
    ),
    # The last y is there when the evaluation comes; x is written over.
    "del dropped": Edit(
        "mlp", (("        del x, y\n", ""),),
        {"": [], "evaluate": [Row(Y, "grew", 0, 2)]},
    ),
    "batch doubled": Edit(
        "mlp",
        (("BATCH = 512", "BATCH = 1024"),),
        {
            "": [
                Row(MSE, "grew", 8 + 2 * S, 16 + 2 * S), Row(TANH, "grew", 4, 8), Row(ADD, "grew", 4, 8),
                Row(HEAD, "grew", 2, 4), Row(X, "grew", 2, 4), Row(Y, "grew", 2, 4),
            ]
        },
    ),
    # backward() has freed what a loss would keep.
    "detach dropped in a list of losses": Edit(
        "mlp", (("loss.detach()", "loss"),), NOTHING
    ),
    # Both blocks keep tanh's result and their own, and the last linear layer is reached.
    "no_grad removed in the evaluation": Edit(
        "mlp",
        (("    with torch.no_grad():\n        return net(x).sum()",
          "    return net(x).sum()"),),
        {
            "": [],
            "evaluate": [
                Row(UP, "moved", 2, 0), Row(TANH, "moved", 2, 4), Row(ADD, "moved", 2, 4),
                Row(HEAD, "moved", 0, 2),
                Row("return net(x).sum()", "moved", 0, 3 * S),
            ],
        },
    ),
    # Two states of 20 MiB and as much while it steps, where the peak is now.
    "SGD to Adam": Edit(
        "mlp",
        (("torch.optim.SGD", "torch.optim.Adam"),),
        {
            "": [
                Row(STEP, "appeared", 0, 60), Row(TANH, "moved", 4, 0),
                Row(ADD, "moved", 4, 0), Row(MSE, "moved", 8 + 2 * S, 6),
            ],
            "forward": [Row(STEP, "appeared", 0, 40)],
        },
    ),
    "momentum": Edit("mlp", (_MOMENTUM,), {"": [_WITH_MOMENTUM]}),
    "a layer wider": Edit(
        "mlp",
        (("self.up = nn.Linear(width, width,", "self.up = nn.Linear(width, 2 * width,"),
         ("self.down = nn.Linear(width, width,",
          "self.down = nn.Linear(2 * width, width,")),
        {
            "": [
                Row(CUDA, "grew", 20, 36), Row(UP, "grew", 8, 16, True),
                Row(DOWN, "grew", 8, 16, True), Row(TANH, "grew", 4, 8),
            ]
        },
    ),
    "a layer added": Edit(
        "mlp",
        (("        self.second = Block(WIDTH)\n",
          "        self.second = Block(WIDTH)\n        self.third = Block(WIDTH)\n"),
         ("        x = self.second(x)\n",
          "        x = self.second(x)\n        x = self.third(x)\n")),
        {
            "": [
                Row(CUDA, "grew", 20, 28), Row(UP, "grew", 8, 12, True),
                Row(DOWN, "grew", 8, 12, True), Row(TANH, "grew", 4, 6),
                Row(ADD, "grew", 4, 6),
            ]
        },
    ),
    "a layer removed": Edit(
        "mlp",
        (("        self.second = Block(WIDTH)\n", ""), ("        x = self.second(x)\n", "")),
        {
            "": [
                Row(CUDA, "shrank", 20, 12), Row(UP, "shrank", 8, 4, True),
                Row(DOWN, "shrank", 8, 4, True), Row(TANH, "shrank", 4, 2),
                Row(ADD, "shrank", 4, 2),
            ]
        },
    ),
    "a buffer kept in self": Edit(
        "mlp",
        ((TANH, TANH + "\n        self.kept = h + 1"),),
        {
            "": [Row("self.kept = h + 1", "appeared", 0, 4)],
            "backward": [Row("self.kept = h + 1", "appeared", 0, 4)],
            "evaluate": [Row("self.kept = h + 1", "appeared", 0, 4)],
        },
    ),
    "lines inserted above": Edit(
        "mlp",
        (("import memlab\n", "import memlab\n\n# One.\n# Two.\n"),
         ("def train_step", "# Three.\ndef train_step")),
        NOTHING,
    ),
    "a function renamed": Edit(
        "mlp",
        (("def train_step", "def one_step"),
         ("losses.append(train_step", "losses.append(one_step")),
        NOTHING,
    ),
    "a file renamed": Edit("mlp", (), NOTHING, "main.py"),
    "a file renamed, and lines inserted": Edit(
        "mlp", (("import memlab\n", "import memlab\n\n# One.\n"),), NOTHING, "main.py"
    ),
    "a file renamed, and a clone": Edit("mlp", _clone(), {"": [_CLONED]}, "main.py"),
    "a variable renamed": Edit(
        "mlp",
        ((UP, "v = self.up(x)"), (TANH, "v = torch.tanh(v)"), (DOWN, "v = self.down(v)"),
         (ADD, "return x + v")),
        NOTHING,
    ),
    "a module renamed": Edit(
        "mlp", (("self.up = ", "self.rise = "), ("self.up(x)", "self.rise(x)")), NOTHING
    ),
    # With two models each module's name begins with its model's.
    "a copy of the model": Edit(
        "mlp",
        ((CUDA, CUDA + "\n    import copy\n    teacher = copy.deepcopy(net)"),),
        {"": [Row("teacher = copy.deepcopy(net)", "appeared", 0, 20)]},
    ),
    # A tensor of a batch is 1 MiB in bfloat16, a weight's copy 2 MiB.  The copy of x is kept
    # by up, and of second.up the weight's, as its x needs a gradient; down keeps that of
    # its weight, head both; x + h is no more kept, what tanh keeps is half as large.
    "autocast": Edit(
        "mlp",
        (("    out = net(x)\n",
          "    with torch.autocast('cuda', dtype=torch.bfloat16):\n"
          "        out = net(x)\n    out = out.float()\n"),),
        {
            "": [
                Row(UP, "grew", 0, 4), Row(DOWN, "grew", 0, 4), Row(ADD, "moved", 4, 0),
                Row(TANH, "shrank", 4, 2), Row("out = out.float()", "appeared", 0, 2),
                Row(HEAD, "grew", 2, 3),
            ]
        },
    ),
    # What backward() would have freed is there to its end, the peak of the step before it.
    "retain_graph": Edit(
        "mlp",
        (("loss.backward()", "loss.backward(retain_graph=True)"),),
        {
            "": [],
            "backward": [
                Row(DOWN, "moved", 4, 8, True), Row(UP, "moved", 6, 8, True),
                Row(TANH, "moved", 2, 4), Row(ADD, "moved", 2, 4),
                Row(HEAD, "moved", 6, 4, True),
            ],
        },
    ),
    "an operation made to work in place": Edit(
        "mlp",
        (("torch.tanh(h)", "h.tanh_()"),),
        {"": [Row(UP, "moved", 0, 4), Row(TANH, "gone", 4, 0)]},
    ),
    "two changes at once": Edit(
        "mlp", _clone((_MOMENTUM,)), {"": [_CLONED, _WITH_MOMENTUM]}
    ),
    "two changes, and lines inserted": Edit(
        "mlp",
        _clone((_MOMENTUM, ("import memlab\n", "import memlab\n\n# One.\n"))),
        {"": [_CLONED, _WITH_MOMENTUM]},
    ),
    "host memory pinned": Edit(
        "mlp",
        (("    losses = []\n",
          "    losses = []\n    host = torch.zeros(1 << 20).pin_memory()\n"),),
        NOTHING,
    ),
    "outputs kept": Edit(
        "mlp",
        (("        del x, y\n", "        losses.append(net(x).detach())\n        del x, y\n"),),
        {
            "": [Row(HEAD, "grew", 2, 6)],
            "evaluate": [Row(HEAD, "grew", 0, 6)],
        },
    ),
}

_GRADIENT = Row(MATMUL, "moved", 0, 4, True)

LOOP = {
    # Both are freed when the function returns.
    "in place made out of place": Edit(
        "loop", (("noise.mul_(0.1)", "noise = noise.mul(0.1)"),), NOTHING
    ),
    "a del dropped before the return": Edit("loop", (("    del noise\n", ""),), NOTHING),
    "a del dropped at the end of the loop": Edit(
        "loop", (("        del loss\n", ""),), NOTHING
    ),
    "a list of batches that grows": Edit(
        "loop",
        (("x = make_batch()\n", "x = make_batch()\n        losses.append(x)\n"),),
        {"": [Row(MAKE, "grew", 2, 6)], "report": []},
    ),
    # At the third peak there are two.
    "a list of copies that grows": Edit(
        "loop",
        (("loss.backward()\n", "loss.backward()\n        losses.append(x.clone())\n"),),
        {"": [Row("losses.append(x.clone())", "appeared", 0, 4)], "report": []},
    ),
    # b and its copy are there when c is made; the sum is as before when d was.
    "clone in an expression": Edit(
        "loop",
        (("c = b * x", "c = b.clone() * x"),),
        {
            "": [],
            "forward": [
                Row("c = b.clone() * x", "grew", 2, 4),
                Row("d = torch.exp(c)", "moved", 2, 0),
            ],
        },
    ),
    # What exp kept was its result; its operand is kept in its place.
    "an operation removed": Edit(
        "loop",
        (("    d = torch.exp(c)\n    return d", "    return c"),),
        {"": [Row("c = b * x", "moved", 0, 2), Row("d = torch.exp(c)", "gone", 2, 0)]},
    ),
    "zero_grad() dropped": Edit(
        "loop", (("        optimizer.zero_grad()\n", ""),), {"": [_GRADIENT]}
    ),
    "zero_grad(set_to_none=False)": Edit(
        "loop",
        (("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)"),),
        {"": [_GRADIENT]},
    ),
    # The peak comes an iteration earlier, so that there is one loss less.
    "gradients accumulated over two steps": Edit(
        "loop",
        (("        optimizer.step()\n        optimizer.zero_grad()\n",
          "        if _ % 2:\n            optimizer.step()\n"
          "            optimizer.zero_grad()\n"),),
        {"": [_GRADIENT, Row("return squares.mean()", "shrank", 3 * S, 2 * S)]},
    ),
    # Its results are locals until the function returns.
    "no_grad removed where all is kept anyway": Edit(
        "loop",
        (("    with torch.no_grad():\n        scores = mixed(weight, x)\n"
          "        best = scores.max()",
          "    scores = mixed(weight, x)\n    best = scores.max()"),),
        NOTHING,
    ),
    "a tensor that nobody uses": Edit(
        "loop",
        (("    optimizer = torch",
          '    spare = torch.ones(COLUMNS, COLUMNS, device="cuda")\n    optimizer = torch'),),
        {"": [Row("spare = torch.ones", "appeared", 0, 4)]},
    ),
    "a function moved below": Edit("loop", (), NOTHING),
}

ATTENTION = {
    # The product made a copy of its own, which is not needed any more.
    "contiguous() of a transposed tensor": Edit(
        "attention",
        ((SCORES, "v = v.contiguous()\n        " + SCORES),),
        {"": [Row("v = v.contiguous()", "appeared", 0, 4), Row(MIXED, "shrank", 4, 0)]},
    ),
    # The logits are freed, their copy is 16 MiB.
    "double() on the logits": Edit(
        "attention",
        (("logits = model(tokens)", "logits = model(tokens).double()"),),
        {
            "": [
                Row("logits = model(tokens).double()", "appeared", 0, 16),
                Row(ENTROPY, "grew", 16, 32, True), Row(ENTROPY, "grew", 8 + S, 16 + S),
                Row(HEAD, "shrank", 8, 0),
            ]
        },
    ),
    # 8 MiB and a mask of a quarter of that, in each layer.
    "dropout of the weights": Edit(
        "attention",
        ((MIXED, "weights = F.dropout(weights, 0.1)\n        " + MIXED),),
        {"": [Row("weights = F.dropout(weights, 0.1)", "appeared", 0, 20)]},
    ),
    "a third layer": Edit(
        "attention",
        (("range(2)", "range(3)"),),
        {
            "": [
                Row(STEP, "grew", 64, 88), Row(WIDE, "grew", 32, 48),
                Row(MODEL, "grew", 32, 44), Row(SOFTMAX, "grew", 16, 24),
                Row(SCORES, "grew", 8, 12), Row(MIXED, "grew", 4, 6),
                Row(MERGE, "grew", 4, 6), Row("x = x + self.attention(x)", "grew", 4, 6),
                Row("return x + self.narrow(h)", "grew", 4, 6),
            ]
        },
    ),
    # The peak is where the first layer is computed anew: half the activations at most.
    "checkpoint": Edit(
        "attention",
        (("from torch import nn\n",
          "from torch import nn\nfrom torch.utils.checkpoint import checkpoint\n"),
         ("x = layer(x)", "x = checkpoint(layer, x, use_reentrant=False)")),
        {"optimizer": []},
    ),
    "AdamW to SGD": Edit(
        "attention",
        (("torch.optim.AdamW", "torch.optim.SGD"),),
        {"": [Row(STEP, "gone", 64, 0)]},
    ),
    "bfloat16": Edit(
        "attention",
        ((MODEL, MODEL + ".bfloat16()"),),
        {
            "": [
                Row(STEP, "shrank", 64, 32), Row(WIDE, "shrank", 32, 16),
                Row(MODEL + ".bfloat16()", "shrank", 32, 16),
                Row(SOFTMAX, "shrank", 16, 8), Row(ENTROPY, "shrank", 16, 8, True),
                Row(SCORES, "shrank", 8, 4), Row(HEAD, "shrank", 8, 4),
                Row(ENTROPY, "shrank", 8 + S, 4 + S), Row(MIXED, "shrank", 4, 2),
                Row(MERGE, "shrank", 4, 2),
                Row("x = x + self.attention(x)", "shrank", 4, 2),
                Row("return x + self.narrow(h)", "shrank", 4, 2),
                Row("x = self.words(tokens)", "shrank", 2, 1),
            ]
        },
    ),
    # 4 MiB more for each of words and head, twice that for the optimizer.
    "twice the words": Edit(
        "attention",
        (("WORDS = 2048", "WORDS = 4096"),),
        {
            "": [
                Row(ENTROPY, "grew", 16, 32, True), Row(STEP, "grew", 64, 80),
                Row(HEAD, "grew", 8, 16), Row(MODEL, "grew", 32, 40),
                Row(ENTROPY, "grew", 8 + S, 16 + S),
            ]
        },
    ),
    "a line split": Edit(
        "attention",
        (("        return self.out(mixed)",
          "        mixed = self.out(mixed)\n        return mixed"),),
        NOTHING,
    ),
    "gradients clipped": Edit(
        "attention",
        (("        " + STEP,
          "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        " + STEP),),
        NOTHING,
    ),
    "a module of modules renamed": Edit(
        "attention",
        (("self.attention = ", "self.mixer = "), ("self.attention(x)", "self.mixer(x)")),
        NOTHING,
    ),
}

EDITS = {**MLP, **LOOP, **ATTENTION}
