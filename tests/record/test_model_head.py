"""The head of the model whose call is under way, without a GPU."""

import types

import pytest

torch = pytest.importorskip("torch")

from memlab._record import model_head, training_loop  # noqa: E402

NO, YES = training_loop.NO, training_loop.YES


class Net(torch.nn.Module):
    """Asks in its forward, by a function of another module's perhaps."""

    def __init__(self, tied=False, ask=model_head.facts):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 8)
        self.first = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 100)
        self.ask = ask
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self):
        return self.ask()


class Around(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self):
        return self.inner()


def test_the_last_linear_layer_is_the_head():
    assert Net()() == Around(Net())() == (8, 100, 3200, NO)


def test_an_embeddings_weight_is_shared():
    assert Net(tied=True)() == Around(Net(tied=True))() == (8, 100, 3200, YES)


def test_a_forward_of_trl_makes_no_logits_at_once():
    trl = types.ModuleType("trl.trainer.utils")
    vars(trl)["facts"] = model_head.facts
    exec("def fused():\n    return facts()", vars(trl))
    assert Net(ask=trl.fused)() == (8, 0, 3200, NO)
    # Its trainer calls the model.
    exec("def step(model):\n    return model()", vars(trl))
    assert trl.step(Net()) == (8, 100, 3200, NO)


def test_without_a_model_there_is_none():
    class Bare(torch.nn.Module):
        def forward(self):
            return model_head.facts()

    assert model_head.facts() is None
    assert Bare()() is None
