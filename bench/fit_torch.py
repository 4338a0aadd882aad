"""Programs of fit_programs.py with attention, recurrence or graphs of torch itself."""

import torch
import torch.nn.functional as F
from fit_nets import GPTBlocks
from fit_training import GPU, adamw, normal, programs, steps, train, whole
from fit_transformers import gpt2, next_token
from torch import nn

PROGRAMS, program = programs()


@program
def seq2seq():
    def loss_of(model):
        return model(normal(16, 128, 512), normal(16, 96, 512)).square().mean()

    train(nn.Transformer(512, 8, 4, 4, batch_first=True).to(GPU), loss_of)


@program
def gpt_blocks_checkpointed():
    model = GPTBlocks(layers=12, width=768, heads=12, vocabulary=32000, length=1024)

    def loss_of(model):
        tokens = whole(32000, 8, 1024)
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    train(model.to(GPU), loss_of, amp=torch.bfloat16)


@program
def distilled():
    """A student that learns from a teacher that is not trained."""
    teacher, student = gpt2().eval().requires_grad_(False), gpt2(n_layer=4)

    def loss_of(model):
        tokens = whole(50257, 4, 512)
        with torch.no_grad():
            aim = teacher(input_ids=tokens).logits.softmax(-1)
        return F.cross_entropy(
            model(input_ids=tokens).logits.flatten(0, 1), aim.flatten(0, 1)
        )

    train(student, loss_of)


@program
def averaged_weights():
    model = gpt2(n_layer=6)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    optimizer = adamw(model)
    for _ in steps():
        next_token(50257, 4, 512)(model).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update_parameters(model)


@program
def mlp_cuda_graph():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(GPU)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = normal(256, 1024)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in steps():
            optimizer.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    for _ in steps():
        graph.replay()
    torch.cuda.synchronize()


@program
def recommender():
    """Large tables, of which a step needs few rows."""
    tables = nn.ModuleList(nn.EmbeddingBag(200_000, 64, mode="sum") for _ in range(8))
    model = nn.ModuleDict(
        {
            "tables": tables,
            "top": nn.Sequential(nn.Linear(8 * 64, 512), nn.ReLU(), nn.Linear(512, 1)),
        }
    ).to(GPU)

    def loss_of(model):
        rows = [table(whole(200_000, 4096, 4)) for table in model["tables"]]
        clicks = model["top"](torch.cat(rows, 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(clicks, torch.zeros_like(clicks))

    train(model, loss_of, torch.optim.Adagrad(model.parameters(), lr=0.01))


@program
def loader_workers():
    """Batches from worker processes, through pinned memory."""
    data = torch.utils.data.TensorDataset(torch.zeros(256, 784), torch.zeros(256).long())
    loader = torch.utils.data.DataLoader(data, 64, num_workers=2, pin_memory=True)
    model = nn.Sequential(nn.Linear(784, 4096), nn.GELU(), nn.Linear(4096, 10)).to(GPU)
    optimizer = adamw(model)
    for x, y in loader:
        x, y = x.to(GPU, non_blocking=True), y.to(GPU, non_blocking=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program
def lstm():
    model = nn.ModuleDict(
        {
            "words": nn.Embedding(20000, 512),
            "cell": nn.LSTM(512, 1024, num_layers=2, batch_first=True),
            "head": nn.Linear(1024, 20000),
        }
    ).to(GPU)

    def loss_of(model):
        tokens = whole(20000, 32, 128)
        hidden, _ = model["cell"](model["words"](tokens))
        return F.cross_entropy(model["head"](hidden).flatten(0, 1), tokens.flatten())

    train(model, loss_of)
