"""What the code of a training loop says of what one pass leaves for the next."""

import pytest

torch = pytest.importorskip("torch")

from memlab._files.words import without_secrets  # noqa: E402
from memlab._record import training_loop  # noqa: E402

NO, YES, UNKNOWN = training_loop.NO, training_loop.YES, training_loop.UNKNOWN


class Watched(torch.nn.Module):
    """Asks in its forward."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.told = []

    def forward(self, x):
        self.told.append(training_loop.facts())
        return self.layer(x)


net = Watched()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.zeros(2, 2)
y = torch.zeros(2, dtype=torch.long)


def zeroed_before():
    for _ in range(2):
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()


def zeroed_after():
    for _ in range(2):
        out = net(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def zeroed_between():
    for _ in range(2):
        out = net(x)
        optimizer.zero_grad()
        out.mean().backward()
        optimizer.step()
        del out


def accumulated():
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(2):
            net(x).mean().backward()
        optimizer.step()


def zeroed_at_times():
    for i in range(2):
        net(x).mean().backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()


def not_zeroed_at_first():
    for i in range(2):
        if i < 1:
            pass
        else:
            optimizer.zero_grad()
        net(x).mean().backward()


def skipped_at_times():
    for i in range(2):
        net(x).mean().backward()
        if i < 1:
            continue
        optimizer.step()
        optimizer.zero_grad()


def set_to_zero():
    for _ in range(2):
        optimizer.zero_grad(set_to_none=False)
        net(x).mean().backward()


def in_a_function():
    def step():
        out = net(x)
        out.mean().backward()

    for _ in range(2):
        optimizer.zero_grad()
        step()


def returned():
    def step():
        out = net(x)
        out.mean().backward()
        return out

    for _ in range(2):
        optimizer.zero_grad()
        kept = step()
    return kept


def in_a_library():
    def compute(model):
        out = model(x)
        return out.mean()

    for _ in range(2):
        optimizer.zero_grad()
        compute(net).backward()


@pytest.mark.parametrize(
    ("program", "gradients", "output", "classes"),
    [
        (zeroed_before, NO, NO, UNKNOWN),
        (zeroed_after, NO, YES, YES),
        (zeroed_between, YES, NO, UNKNOWN),
        (accumulated, YES, NO, UNKNOWN),
        (zeroed_at_times, UNKNOWN, NO, UNKNOWN),
        (not_zeroed_at_first, UNKNOWN, NO, UNKNOWN),
        (skipped_at_times, UNKNOWN, NO, UNKNOWN),
        (set_to_zero, UNKNOWN, NO, UNKNOWN),
        (in_a_function, NO, NO, UNKNOWN),
        (returned, NO, UNKNOWN, UNKNOWN),
        (in_a_library, NO, UNKNOWN, UNKNOWN),
    ],
)
def test_what_lives_on(program, gradients, output, classes):
    net.told.clear()
    program()
    assert set(net.told) == {(gradients, output, 0, classes)}


def test_a_criterion_is_known_by_its_class():
    told = []
    criterion = torch.nn.CrossEntropyLoss()

    class Asking(torch.nn.Module):
        def forward(self, value):
            told.append(training_loop.facts())
            return value

    asking = Asking()
    for _ in range(1):
        out = asking(net.layer(x))
        criterion(out, y).backward()
    assert told == [(YES, YES, 0, YES)]


def test_outside_a_loop_nothing_is_known():
    net.told.clear()
    net(x)
    assert net.told == [(UNKNOWN, UNKNOWN, 0, UNKNOWN)]


def test_no_variable_of_a_frame_is_kept():
    """A tensor that a function gives up is gone, though its frame was looked at."""
    import weakref

    def train():
        optimizer.zero_grad()
        out = net(x)
        seen = weakref.ref(out)
        training_loop.facts()
        out.mean().backward()
        del out
        return seen()

    assert train() is None


def test_keys_and_passwords_are_left_out():
    words = ["--lr", "1", "--hf-token", "abc", "--api_key=xyz", "--tokens", "8", "--password"]
    assert without_secrets(words) == [
        "--lr", "1", "--hf-token", "...", "--api_key=...", "--tokens", "8", "--password"
    ]  # fmt: skip
    assert without_secrets(["--use-auth", "--batch", "4"]) == ["--use-auth", "--batch", "4"]
