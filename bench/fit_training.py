"""How the programs of fit_programs.py train: tensors, optimizers, steps."""

import torch

GPU = "cuda"

# Of a program that does not say it.
STEPS = 3


def programs():
    """An empty dict, and a decorator that adds a function to it under its name."""
    found = {}

    def program(function):
        found[function.__name__] = function
        return function

    return found, program


def steps():
    """The steps of a loop of a program's own."""
    return range(STEPS)


def normal(*shape):
    return torch.randn(*shape, device=GPU)


def whole(below, *shape):
    return torch.randint(0, below, shape, device=GPU)


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **options)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, **options)


def train(model, loss_of, optimizer=None, steps=None, amp=None, accumulate=1, scaler=False):
    """STEPS steps with gradients of ACCUMULATE batches each; AMP: the type of autocast."""
    optimizer = optimizer or adamw(model)
    if scaler:
        # A step is left out where a gradient overflows, as those of unset weights do.
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
    scaler = torch.amp.GradScaler("cuda", enabled=scaler)
    for step in range((steps or STEPS) * accumulate):
        with torch.autocast("cuda", dtype=amp, enabled=amp is not None):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        if (step + 1) % accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
    loss.item()


def train_and_keep(model, optimizer, batch_of):
    """STEPS steps as many loops are written: a step's outputs live until the next one's."""
    for _ in steps():
        outputs = model(**batch_of())
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
