"""What the code of a training loop says of what one pass leaves for the next."""

import pytest

torch = pytest.importorskip("torch")

from memlab._files.words import without_secrets  # noqa: E402
from memlab._record import training_loop  # noqa: E402

NO, YES, UNKNOWN = training_loop.NO, training_loop.YES, training_loop.UNKNOWN
REDUCES, CLASSES = training_loop.REDUCES, training_loop.CLASSES
CLASSES_ALONE, REDUCES_ALONE = training_loop.CLASSES_ALONE, training_loop.REDUCES_ALONE
ELEMENTS, SQUARES = training_loop.ELEMENTS, training_loop.SQUARES
CLASSES_FLOAT32 = training_loop.CLASSES_FLOAT32


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


def alone():
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x).view(-1, 2), y)
        loss.backward()


def beside_a_list():
    outputs = []
    for _ in range(2):
        optimizer.zero_grad()
        outputs.append(net(x))
        torch.nn.functional.cross_entropy(outputs[-1], y).backward()


def in_a_library():
    def compute(model):
        out = model(x)
        return out.mean()

    for _ in range(2):
        optimizer.zero_grad()
        compute(net).backward()


@pytest.mark.parametrize(
    ("program", "gradients", "output", "loss"),
    [
        (zeroed_before, NO, NO, REDUCES_ALONE),
        (zeroed_after, NO, YES, CLASSES),
        (zeroed_between, YES, NO, REDUCES),
        (accumulated, YES, NO, REDUCES_ALONE),
        (zeroed_at_times, UNKNOWN, NO, REDUCES_ALONE),
        (not_zeroed_at_first, UNKNOWN, NO, REDUCES_ALONE),
        (skipped_at_times, UNKNOWN, NO, REDUCES_ALONE),
        (set_to_zero, UNKNOWN, NO, REDUCES_ALONE),
        (in_a_function, NO, NO, REDUCES),
        (returned, NO, UNKNOWN, REDUCES),
        (alone, NO, NO, CLASSES_ALONE),
        (beside_a_list, NO, NO, CLASSES),
        (in_a_library, NO, UNKNOWN, UNKNOWN),
    ],
)
def test_what_lives_on(program, gradients, output, loss):
    net.told.clear()
    program()
    assert set(net.told) == {(gradients, output, 0, loss)}


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


def mean_squared():
    out = net(x)
    torch.nn.functional.mse_loss(out, torch.zeros_like(out)).backward()


def squared():
    net(x).square().mean().backward()


def divided():
    loss = net(x).sum() / 4
    loss.backward()


def of_a_row():
    net(x).mean(0).square().sum().backward()


def read_again():
    out = net(x)
    mean = out.mean()
    (out - mean).abs().sum().backward()


def squared_twice():
    net(x).square().square().mean().backward()


def added():
    (net(x) + x.sum()).mean().backward()


@pytest.mark.parametrize(
    ("program", "loss"),
    [
        (mean_squared, ELEMENTS),
        (squared, SQUARES),
        (divided, REDUCES_ALONE),
        (of_a_row, UNKNOWN),
        (read_again, UNKNOWN),
        (added, UNKNOWN),
        (squared_twice, UNKNOWN),
    ],
)
def test_what_loss_follows(program, loss):
    net.told.clear()
    program()
    assert {fact[3] for fact in net.told} == {loss}


def test_a_loss_in_the_models_own_forward():
    class WithLoss(torch.nn.Module):
        def forward(self, x):
            out = net(x)
            return out, torch.nn.functional.cross_entropy(out, y)

    net.told.clear()
    model = WithLoss()
    for _ in range(1):
        out, loss = model(x)
        loss.backward()
    assert net.told[0][3] == CLASSES
    # The earlier `out` is there until this loss is made.
    assert net.told[0][1] == training_loop.YES_AND_LOSS


class Casting(torch.nn.Module):
    def forward(self, x):
        return net(x).float()


def cast_in_the_loop():
    out = net(x)
    torch.nn.functional.cross_entropy(out.to(torch.float32), y).backward()


def cast_in_the_model():
    torch.nn.functional.cross_entropy(casting(x), y).backward()


def summed_in_float32():
    net(x).float().sum().backward()


casting = Casting()


@pytest.mark.parametrize(
    ("program", "loss"),
    [
        (cast_in_the_loop, CLASSES_FLOAT32),
        (cast_in_the_model, CLASSES_FLOAT32),
        (summed_in_float32, UNKNOWN),
    ],
)
def test_a_loss_in_float32(program, loss):
    net.told.clear()
    program()
    assert net.told[0][3] == loss


def test_a_cast_before_the_call_is_none_of_its_result():
    class Masked(torch.nn.Module):
        def forward(self, x):
            mask = x.bool().float()
            return net(x * mask)

    masked = Masked()
    net.told.clear()
    torch.nn.functional.cross_entropy(masked(x), y).backward()
    assert net.told[0][3] == CLASSES_ALONE


class Asks(torch.autograd.Function):
    """Asks in its backward pass."""

    @staticmethod
    def forward(_context, x):
        return x * 1

    @staticmethod
    def backward(_context, gradient):
        net.told.append(training_loop.facts())
        return gradient


class AsksBack(torch.nn.Module):
    def forward(self, x):
        return Asks.apply(net(x))


asks_back = AsksBack()


def reduced_before():
    asks_back(x).mean().backward()


def squared_before():
    asks_back(x).square().mean().backward()


def classes_before():
    torch.nn.functional.cross_entropy(asks_back(x), y).backward()


@pytest.mark.parametrize(
    ("program", "loss"),
    [(reduced_before, REDUCES_ALONE), (squared_before, SQUARES), (classes_before, CLASSES)],
)
def test_what_loss_a_backward_pass_is_of(program, loss):
    net.told.clear()
    program()
    assert net.told[-1][3] == loss


class AsksRows(torch.nn.Module):
    """Asks in its forward whether a model takes ROWS."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.told = None

    def forward(self, x):
        self.told = training_loop.takes(self.rows)
        return x


@pytest.mark.parametrize(
    ("shape", "rows", "taken"),
    [
        ((48, 5), 48, True),
        ((5, 48), 48, True),  # a sequence comes first
        ((48 * 5, 3), 48, True),
        ((16, 5, 48), 48, False),  # a third of them
        ((), 48, True),  # not known
    ],
)
def test_rows_that_a_model_takes(shape, rows, taken):
    asks = AsksRows(rows)
    for argument in torch.zeros(shape), [torch.zeros(shape)], {"x": torch.zeros(shape)}:
        asks(argument)
        assert asks.told == taken


def test_rows_of_a_list_are_its_tensors():
    asks = AsksRows(48)
    for count, taken in (48, True), (16, False):
        asks([torch.zeros(3, 7, 7)] * count)
        assert asks.told == taken


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_rows_of_a_nested_tensor_are_not_known():
    asks = AsksRows(48)
    asks(torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)]))
    assert asks.told


class AsksRowsBack(torch.autograd.Function):
    @staticmethod
    def forward(_context, x):
        return x * 1

    @staticmethod
    def backward(_context, gradient):
        net.told.append((training_loop.takes(12), training_loop.takes(4)))
        return gradient


def test_rows_that_a_backward_pass_is_of():
    net.told.clear()
    whole = torch.zeros(12, 2, requires_grad=True)
    for part in whole.split(4):
        AsksRowsBack.apply(part).sum().backward()
    assert net.told == [(False, True)] * 3
