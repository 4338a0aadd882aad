"""Tries features of torch on a CUDA device, each in a forked process of its own.

Prints a line of JSON for each: its name and the error, or null where it ran.  The
process itself does not touch CUDA, so that its children can.
"""

import copy
import io
import json
import os
import traceback

import torch
import torch._dynamo  # the first optimizer would, in each process
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda"
FEATURES = []


def feature(function):
    FEATURES.append(function)
    return function


def randn(*size, **options):
    return torch.randn(*size, device=DEVICE, **options)


def integers(high, *size):
    return torch.randint(0, high, size, device=DEVICE)


def train(model, *inputs, optimizer=torch.optim.AdamW, **options):
    model = model.to(DEVICE)
    optimizer = optimizer(model.parameters(), lr=1e-3, **options)
    for _ in range(2):
        output = model(*inputs)
        output = output[0] if isinstance(output, tuple) else output
        before = torch.cuda.memory_allocated()
        output.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    assert before > 0
    torch.cuda.synchronize()


@feature
def lstm():
    train(nn.LSTM(32, 64, 2, batch_first=True, dropout=0.1), randn(4, 10, 32))
    train(nn.LSTM(32, 64, 2, bidirectional=True, proj_size=16), randn(10, 4, 32))


@feature
def gru_and_rnn():
    train(nn.GRU(32, 64, 2, bidirectional=True), randn(10, 4, 32))
    train(nn.RNN(32, 64), randn(10, 4, 32))


@feature
def lstm_weights_lie_in_one_chunk():
    layer = nn.LSTM(32, 64, 2, bidirectional=True).to(DEVICE)
    layer.flatten_parameters()
    chunk = layer.weight_ih_l0.untyped_storage()
    expected = sum(parameter.numel() for parameter in layer.parameters()) * 4
    assert chunk.nbytes() == expected, (chunk.nbytes(), expected)
    for name, parameter in layer.named_parameters():
        assert parameter.untyped_storage().data_ptr() == chunk.data_ptr(), name


@feature
def packed_sequence():
    layer = nn.LSTM(8, 8).to(DEVICE)
    packed = nn.utils.rnn.pack_padded_sequence(randn(5, 3, 8), [5, 4, 2])
    output, _ = layer(packed)
    nn.utils.rnn.pad_packed_sequence(output)[0].sum().backward()


@feature
def convolution_and_norms():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, groups=2),
        nn.GroupNorm(4, 32),
        nn.ConvTranspose2d(32, 8, 2, 2),
    )
    train(model, randn(4, 3, 32, 32))
    train(nn.Conv1d(4, 8, 3), randn(2, 4, 50))
    train(nn.Sequential(nn.Conv3d(1, 4, 3), nn.BatchNorm3d(4)), randn(2, 1, 8, 8, 8))


@feature
def channels_last():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3))
    with torch.autocast(DEVICE, dtype=torch.float16):
        train(
            model.to(memory_format=torch.channels_last),
            randn(4, 3, 32, 32).contiguous(memory_format=torch.channels_last),
        )


@feature
def convolution_workspace():
    """16 images of 64 channels in float32: both tensors and the filter are turned."""
    x, w = randn(16, 64, 32, 32), randn(64, 64, 3, 3)
    F.conv2d(x, w, padding=1)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    F.conv2d(x, w, padding=1)
    grown = torch.cuda.max_memory_allocated() - before
    size = 16 * 64 * 32 * 32 * 4
    expected = size + (size + size + 64 * 64 * 9 * 4 + 512)
    assert grown == expected, (grown, expected)


@feature
def attention():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        q = randn(2, 8, 128, 64, dtype=dtype, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    backends = torch.nn.attention.SDPBackend
    for backend in (
        backends.FLASH_ATTENTION,
        backends.EFFICIENT_ATTENTION,
        backends.CUDNN_ATTENTION,
        backends.MATH,
    ):
        with torch.nn.attention.sdpa_kernel(backend):
            q = randn(2, 8, 128, 64, dtype=torch.bfloat16, requires_grad=True)
            F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    train(nn.TransformerEncoderLayer(64, 4, batch_first=True), randn(2, 16, 64))


@feature
def fourier_transforms():
    x = randn(8, 64, requires_grad=True)
    torch.fft.rfft(x).abs().sum().backward()
    torch.fft.fft2(randn(4, 16, 16))
    torch.stft(randn(2, 400), 64, window=torch.ones(64, device=DEVICE), return_complex=True)


@feature
def linear_algebra():
    for shape in ((8, 8), (3, 8, 8)):
        a = randn(*shape, requires_grad=True)
        torch.linalg.solve(a, randn(*shape)).sum().backward()
        for function in ("cholesky", "svd", "qr", "eigh", "inv", "det"):
            getattr(torch.linalg, function)(a)
    nn.init.orthogonal_(torch.empty(8, 8, device=DEVICE))


@feature
def random_numbers():
    torch.rand(10, device=DEVICE)
    integers(5, 10)
    torch.randperm(100000, device=DEVICE)
    torch.bernoulli(torch.rand(5, device=DEVICE))
    torch.multinomial(torch.rand(4, 10, device=DEVICE), 3)
    F.dropout(randn(100), 0.5)
    state = torch.cuda.get_rng_state()
    torch.cuda.set_rng_state(state)


@feature
def sorting_and_selecting():
    x = randn(100000)
    x.sort(), x.topk(10), x.cumsum(0), x.median(), x.nonzero(), x[x > 0], x.unique()
    rows = torch.tensor([0, 1, 1], device=DEVICE)
    table = randn(10, 5, requires_grad=True)
    table[rows].sum().backward()
    sums = torch.zeros(10, 5, device=DEVICE)
    sums.index_put_((rows,), randn(3, 5), accumulate=True)
    sums.index_add_(0, rows, randn(3, 5))


@feature
def embedding_and_losses():
    train(nn.Embedding(100, 16, padding_idx=0), integers(100, 4, 20))
    train(nn.EmbeddingBag(100, 16), integers(100, 4, 20))
    logits = randn(8, 100, requires_grad=True)
    F.cross_entropy(logits, integers(100, 8), label_smoothing=0.1).backward()
    F.binary_cross_entropy_with_logits(logits, torch.rand_like(logits)).backward()
    log_probabilities = randn(10, 2, 5, requires_grad=True).log_softmax(2)
    targets = torch.ones(2, 3, dtype=torch.long)
    F.ctc_loss(
        log_probabilities, targets, torch.tensor([10, 10]), torch.tensor([3, 3])
    ).backward()


@feature
def optimizers():
    for options in ({"fused": True}, {"foreach": True}, {"foreach": False}):
        train(nn.Linear(8, 8), randn(2, 8), **options)
    train(nn.Linear(8, 8), randn(2, 8), optimizer=torch.optim.SGD, momentum=0.9)


@feature
def gradient_scaler():
    scaler = torch.amp.GradScaler(DEVICE)
    model = nn.Linear(8, 8).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = model(randn(2, 8)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@feature
def cuda_graph():
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1)).to(DEVICE)
    x = randn(8, 64)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model(x).sum().backward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert torch.cuda.is_current_stream_capturing()
            model(x).sum().backward()
        torch.cuda.current_stream().wait_stream(side)
    assert not torch.cuda.is_current_stream_capturing()
    graph.replay()
    torch.cuda.synchronize()


@feature
def pinned_memory_and_loader():
    pinned = torch.randn(10).pin_memory()
    assert pinned.is_pinned() and not torch.randn(10).is_pinned()
    pinned.to(DEVICE, non_blocking=True)
    data = torch.utils.data.TensorDataset(torch.randn(8, 3))
    loader = torch.utils.data.DataLoader(data, 4, num_workers=1, pin_memory=True)
    for (batch,) in loader:
        assert batch.is_pinned()


@feature
def questions():
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    properties = torch.cuda.get_device_properties(0)
    assert properties.total_memory == total
    assert torch.backends.cudnn.version() // 10000 == 9
    torch.cuda.memory_summary()
    torch.cuda.memory_snapshot()


@feature
def memory_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = randn(1000, 1000)
    assert inside.data_ptr() and len(pool.snapshot()) == 1


@feature
def streams_and_events():
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    stream = torch.cuda.Stream(priority=-1)
    stream.wait_event(first)
    second.record(stream)
    second.synchronize()
    assert first.elapsed_time(second) >= 0
    randn(5).record_stream(stream)


@feature
def kernels_compiled_at_run_time():
    torch.special.bessel_j0(randn(10))
    torch.gcd(integers(9, 10), integers(9, 10))


@feature
def sparse():
    torch.eye(8).to_sparse_csr().to(DEVICE) @ randn(8, 8)
    layer = nn.Embedding(100, 8, sparse=True).to(DEVICE)
    layer(integers(100, 5000)).sum().backward()
    torch.optim.SparseAdam(layer.parameters()).step()


@feature
def profiler():
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU, activity.CUDA]) as profile:
        randn(10, 10) @ randn(10, 10)
    assert profile.key_averages()


@feature
def saving_and_printing():
    buffer = io.BytesIO()
    torch.save({"a": randn(5)}, buffer)
    buffer.seek(0)
    assert torch.load(buffer)["a"].is_cuda
    copy.deepcopy(nn.Linear(3, 3).to(DEVICE))
    assert str(randn(3)).count("0.") == 3


def attempt(function):
    """The error that FUNCTION ends with in a process of its own, or None."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        error = ""
        try:
            function()
        except BaseException:
            error = traceback.format_exc()
        os.write(writing, error[-3000:].encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        error = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return error or (f"wait status {status}" if status else None)


def main():
    for function in FEATURES:
        print(json.dumps([function.__name__, attempt(function)]), flush=True)


if __name__ == "__main__":
    main()
