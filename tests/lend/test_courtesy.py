"""memlab.Courtesy on the phantom's backed memory, where copies carry data and kernels do
nothing: contents, aliasing and what tensors are, before, meanwhile and after."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_here import has_gpu

# One environment, so that all programs are forked of one process.
BACKED = {"MEMLAB_PHANTOM_BACKED": "1", "MEMLAB_PHANTOM_DEVICES": "2"}
BENCH = Path(__file__).resolve().parents[2] / "bench"

HEAD = """\
import gc, warnings, weakref
import memlab, torch
warnings.simplefilter("ignore")
cuda = torch.device("cuda", 0)
allocated = torch.cuda.memory_allocated

def on_gpu(tensor):
    return tensor.to(cuda)  # kernels do nothing: contents come by copies alone

def refused(call):
    try:
        call()
    except memlab.Error as error:
        return str(error)
    raise AssertionError("not refused")
"""


@pytest.fixture
def backed_run(phantom_run):
    """As phantom_run, with device memory that keeps what is copied to it."""

    def run(program):
        return phantom_run(HEAD + program, env=BACKED, warm=True)

    return run


@pytest.mark.cuda
def test_every_kind_of_tensor_goes_and_comes_back_equal(backed_run):
    backed_run("""
def values(t):
    # The bytes of its storages.
    if t.layout == torch.sparse_coo:
        return values(t._indices()) + values(t._values())
    if t.layout == torch.sparse_csr:
        return values(t.crow_indices()) + values(t.col_indices()) + values(t.values())
    data = torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage().cpu())
    return [data.numpy().tobytes()]

torch.manual_seed(1)
a = on_gpu(torch.randn(64, 32))
complexes = on_gpu(torch.randn(7, dtype=torch.complex64))
leaf = on_gpu(torch.randn(3, 4)).requires_grad_()
leaf.grad = on_gpu(torch.randn(3, 4))
parameter = torch.nn.Parameter(on_gpu(torch.randn(1000, 77)))
parameter.grad = on_gpu(torch.randn(77, 1000)).t()
unwrapped = on_gpu(torch.randn(9)).requires_grad_()
unwrapped.grad = on_gpu(torch.randn(9))  # only C++ holds it
with torch.inference_mode():
    inference = on_gpu(torch.randn(5))
kinds = {
    "plain": a,
    "view": a[3:7, ::2],
    "transposed": a.t(),
    "bool": on_gpu(torch.tensor([True, False, True])),
    "half": on_gpu(torch.randn(6).half()),
    "complex": complexes,
    "conj": complexes.conj(),
    "neg": complexes.conj().imag,
    "scalar": on_gpu(torch.tensor(3.5)),
    "empty": torch.empty(0, 3, device=cuda),
    "coo": on_gpu(torch.sparse_coo_tensor([[0, 1], [1, 2]], [3.0, 4.0], (4, 4))),
    "csr": on_gpu(torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, 2))),
    "nested": on_gpu(torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])),
    "expanded": on_gpu(torch.randn(3, 1)).expand(3, 500),
    "leaf": leaf,
    "gradient": leaf.grad,
    "parameter": parameter,
    "its gradient": parameter.grad,
    "inference": inference,
    "buffer": torch.nn.Buffer(on_gpu(torch.randn(2))),
}
if hasattr(torch.Tensor, "refine_names"):  # until torch 2.14
    kinds["named"] = on_gpu(torch.randn(2, 3)).refine_names("N", "C")
kinds["quantized"] = on_gpu(torch.quantize_per_tensor(torch.randn(8), 0.1, 2, torch.qint8))
scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([3, 4])
kinds["quantized by channel"] = on_gpu(
    torch.quantize_per_channel(torch.randn(2, 3), scales, zeros, 0, torch.qint8))

def facts(t):
    strided = t.layout == torch.strided and not t.is_nested
    return (
        type(t), t.dtype, t.layout, t.requires_grad, t.is_leaf, t.is_inference(),
        None if t.is_nested else t.shape, strided and (t.stride(), t.storage_offset()),
        t.is_conj(), t.is_neg(), None if t.is_inference() else t._version,
        getattr(t, "names", None),
    )

def look():
    return {kind: (facts(t), values(t)) for kind, t in kinds.items()}

before = look()
gradient = values(unwrapped.grad)
gc.collect()
bytes_before = allocated()
distance = kinds["view"].data_ptr() - a.data_ptr()
courtesy = memlab.Courtesy()
courtesy.yield_memory()
assert allocated() == torch.cuda.memory_reserved() == 0, courtesy.left
assert (courtesy.yielded_bytes, courtesy.left) == (bytes_before, {})

def check(device):
    for kind, (was, contents) in look().items():
        assert kinds[kind].device == device, kind
        assert was == before[kind][0], (kind, was, before[kind][0])
        assert contents == before[kind][1], kind
    assert kinds["view"].data_ptr() - a.data_ptr() == distance
    assert kinds["transposed"].data_ptr() == a.data_ptr() != 0
    assert leaf.grad is kinds["gradient"] and unwrapped.grad.device == device
    assert values(unwrapped.grad) == gradient

check(torch.device("cpu"))
# They work as CPU tensors, and share memory as before.
kinds["view"].fill_(7.0)
assert (a == 7).sum() == kinds["view"].numel()
assert torch.equal(kinds["conj"], complexes.conj())
assert kinds["coo"].to_dense()[1, 2] == 4
# What C++ alone holds of them came too.
assert torch.equal(kinds["quantized by channel"].q_per_channel_scales(), scales.double())
kinds["quantized by channel"].dequantize()
before = look()
courtesy.restore()
assert allocated() == bytes_before
check(cuda)
""")


@pytest.mark.cuda
def test_tensors_die_are_made_and_replaced_meanwhile(backed_run):
    backed_run("""
cpu = torch.randn(5)
was = cpu.clone(), cpu.data_ptr(), cpu._version
dying = on_gpu(torch.randn(4 << 20))
kept = on_gpu(torch.randn(3))
moved = torch.nn.Parameter(on_gpu(torch.zeros(2)))
twin = moved.data  # shares its memory
replaced = torch.nn.Parameter(on_gpu(torch.zeros(2)))
grown = on_gpu(torch.arange(3))
flat = on_gpu(torch.arange(4.0))
flat.untyped_storage().resize_(0)  # as FSDP leaves what it gathers again
courtesy = memlab.Courtesy()
courtesy.restore()  # nothing is yielded
courtesy.yield_memory()
assert courtesy.yielded and allocated() == 0
courtesy.yield_memory()  # the second does nothing
gone = weakref.ref(dying)
del dying
assert gone() is None
new = torch.tensor([5.0, 6.0])
replaced.data = new
moved.data.fill_(9.0)
moved.grad = torch.tensor([1.0, 2.0])
grown.resize_(1000)
view = kept[1:]
array = twin.numpy()
detached = kept.detach().numpy()
during = torch.zeros(10, device=cuda)  # the GPU can be used meanwhile
courtesy.restore()
assert not courtesy.yielded
assert torch.equal(cpu, was[0]) and (cpu.data_ptr(), cpu._version) == was[1:]
assert replaced.device == cuda and replaced.data.cpu().tolist() == [5, 6]
assert new.device.type == "cpu" and new.tolist() == [5, 6]
assert moved.grad.device == cuda and moved.grad.cpu().tolist() == [1, 2]
assert moved.data_ptr() == twin.data_ptr() and twin.cpu().tolist() == [9, 9]
assert array.tolist() == [9, 9] and len(detached) == 3  # numpy's memory is there still
assert grown.device == cuda and grown.cpu()[:3].tolist() == [0, 1, 2]
assert grown.untyped_storage().nbytes() == 8000
assert flat.device == cuda and flat.untyped_storage().nbytes() == 0
flat.untyped_storage().resize_(16)
assert view.device.type == "cpu" and len(view) == 2
assert during.device == cuda

# What was queued meanwhile, on memory that is free again since, has ended before that
# memory is filled: on a real GPU the kernels are slow, on the phantom there are none.
filled = on_gpu(torch.arange(1 << 20))
courtesy.yield_memory()
for stream in torch.cuda.current_stream(), torch.cuda.Stream():
    with torch.cuda.stream(stream):
        short = torch.empty(1 << 20, dtype=torch.int64, device=cuda)
        torch.cuda._sleep(200_000_000)
        short.fill_(7)
        del short
courtesy.restore()
assert filled.cpu().equal(torch.arange(1 << 20))
del filled
sizes = [kept, moved, moved.grad, replaced, grown, flat, during]
assert allocated() == sum(-(-t.untyped_storage().nbytes() // 512) * 512 for t in sizes)
courtesy.restore()
""")


@pytest.mark.cuda
def test_hooks_and_gradient_accumulators_stay(backed_run):
    backed_run("""
p = torch.nn.Parameter(on_gpu(torch.zeros(4)))
fired = []
accumulator = p.view_as(p).grad_fn.next_functions[0][0]  # as DDP takes it
accumulator.register_hook(lambda *_: fired.append("accumulator"))
p.register_hook(lambda g: fired.append(("tensor", g.device.type)))
p.register_post_accumulate_grad_hook(lambda q: fired.append(("after", q is p)))
p.sum().backward()
expected = [("tensor", "cuda"), ("after", True), "accumulator"]
assert sorted(map(str, fired)) == sorted(map(str, expected)), fired
gradient = p.grad
gradient.copy_(torch.zeros(4))
courtesy = memlab.Courtesy()
courtesy.yield_memory()
fired.clear()
(3 * p).sum().backward()  # also on the CPU
assert p.grad is gradient and gradient.tolist() == [3, 3, 3, 3]
assert len(fired) == 3 and ("tensor", "cpu") in fired
late = torch.nn.Parameter(on_gpu(torch.zeros(4)))
courtesy.restore()
assert gradient.device == cuda and gradient.cpu().tolist() == [3, 3, 3, 3]
fired.clear()
p.sum().backward()
assert sorted(map(str, fired)) == sorted(map(str, expected)), fired
assert p.grad is gradient
assert p.view_as(p).grad_fn.next_functions[0][0] is accumulator
""")


@pytest.mark.cuda
def test_what_cpp_holds_is_right_again_afterwards(backed_run):
    backed_run("""
x = on_gpu(torch.randn(6)).requires_grad_()
y = x.exp()  # of which autograd saves a tensor of its own, on the same storage
y.data.copy_(torch.arange(6.0))
storage = on_gpu(torch.arange(3.0)).untyped_storage()  # no tensor has it
base = on_gpu(torch.arange(8.0))
part = base[2:]
del base
pointer = y.untyped_storage()._cdata
node = y.grad_fn
z = x.sin().exp()
z.data.copy_(torch.arange(6.0) + 10)
loss = z.sum()  # only autograd holds z now

class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(on_gpu(torch.arange(9.0)))
        return x + 1

    @staticmethod
    def backward(ctx, gradient):
        assert ctx.saved_tensors[0].cpu().equal(torch.arange(9.0))
        return gradient

own = Own.apply(x)
del z
with memlab.Courtesy() as courtesy:
    assert allocated() == 0 and y.device.type == part._base.device.type == "cpu"
    for use in (lambda: node._saved_result.cpu(), storage.cpu):
        try:
            use()
        except RuntimeError as error:
            assert "call restore() first" in str(error)
        else:
            raise AssertionError("not refused")
    part.add_(1)
    assert part._base.tolist() == [0, 1, 3, 4, 5, 6, 7, 8]
    y.data[0] = 40
saved = node._saved_result
assert saved.data_ptr() == y.data_ptr() and saved.cpu().tolist() == [40, 1, 2, 3, 4, 5]
assert y.untyped_storage()._cdata == pointer
assert bytes(storage.cpu()) == bytes(torch.arange(3.0).untyped_storage())
assert part._base.cpu().tolist() == [0, 1, 3, 4, 5, 6, 7, 8]
below = loss.grad_fn.next_functions[0][0]
assert below._saved_result.cpu().tolist() == [10, 11, 12, 13, 14, 15]
del saved, node, y, below
(loss + own.sum()).backward()
x.exp().sum().backward()
""")


@pytest.mark.cuda
def test_what_stays_is_told(backed_run):
    backed_run("""
mine = on_gpu(torch.zeros(100))
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    pooled = torch.zeros(1000, device=cuda)  # 4,000 bytes in 4,096
lent = on_gpu(torch.arange(200.0))  # 800 bytes in 1,024
borrowed = torch.from_dlpack(torch.utils.dlpack.to_dlpack(lent[100:]))
x = on_gpu(torch.zeros(700)).requires_grad_()
node = x.exp().grad_fn  # holds the result, and no tensor leads there: 2,800 in 3,072
pointers = pooled.data_ptr(), lent.data_ptr(), borrowed.data_ptr()
before = allocated()
with memlab.Courtesy() as courtesy:
    assert courtesy.left == {"private_pool": 4096, "shared": 1024, "unreached": 3072}
    assert courtesy.yielded_bytes == 512 + 3072  # mine and x
    assert allocated() == before - courtesy.yielded_bytes == 4096 + 1024 + 3072
    assert pooled.device == lent.device == borrowed.device == cuda
    assert mine.device.type == x.device.type == "cpu"
assert pointers == (pooled.data_ptr(), lent.data_ptr(), borrowed.data_ptr())
assert borrowed.cpu().tolist() == list(range(100, 200))
node(on_gpu(torch.zeros(700)))
""")


@pytest.mark.cuda
def test_addresses_that_a_cuda_graph_holds_are_not_changed(backed_run):
    backed_run("""
x = on_gpu(torch.arange(5.0))
graph = torch.cuda.CUDAGraph()
during = []
courtesy = memlab.Courtesy()
with torch.cuda.graph(graph):
    y = x + 1
    during.append(refused(courtesy.yield_memory))
assert "while a CUDA graph is being captured" in during[0]
graph.replay()
said = refused(courtesy.__enter__)
assert said.startswith("1 CUDA graphs hold addresses of tensors"), said
assert x.device == y.device == cuda and not courtesy.yielded
graph.reset()
other = torch.cuda.CUDAGraph()  # holds nothing yet
with courtesy:
    assert x.device.type == "cpu"
    with torch.cuda.graph(other):
        z = torch.zeros(5, device=cuda) + 1
        during.append(refused(courtesy.restore))
    courtesy.yield_memory()  # does nothing, whatever was captured
    assert courtesy.yielded and x.tolist() == [0, 1, 2, 3, 4]
assert "while a CUDA graph is being captured" in during[1]
assert x.cpu().tolist() == [0, 1, 2, 3, 4] and z.device == cuda
""")


@pytest.mark.cuda
def test_ctrl_c_during_the_copies_leaves_tensors_where_they_were(backed_run):
    backed_run("""
import os, signal
x = on_gpu(torch.arange(9.0))

class Interrupted(memlab.Courtesy):
    # Ctrl-C while C works is told as it returns.
    def _yield_tensors(self, *types):
        super()._yield_tensors(*types)
        signal.raise_signal(signal.SIGINT)

try:
    with Interrupted():
        raise AssertionError("not interrupted")
except KeyboardInterrupt:
    pass
assert x.device == cuda and x.cpu().tolist() == list(range(9))
""")


@pytest.mark.cuda
def test_a_failure_loses_nothing(backed_run):
    backed_run("""
import resource
a = on_gpu(torch.arange(1 << 20))
b = on_gpu(torch.arange(1 << 20) + 5)
view = b[10:]
before = allocated()
courtesy = memlab.Courtesy()

with courtesy:
    pass  # the bridge is loaded
pages = int(open("/proc/self/statm").read().split()[0])
limit = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20), limit[1]))
said = refused(courtesy.yield_memory)
resource.setrlimit(resource.RLIMIT_AS, limit)
assert said == ("memlab cannot give the GPU's memory back: the host is out of memory; "
                "everything is as before"), said
assert not courtesy.yielded and a.device == b.device == view.device == cuda
assert allocated() == before and view.cpu()[0] == 15

courtesy.yield_memory()
torch.cuda.set_per_process_memory_fraction(10e6 / torch.cuda.mem_get_info()[1])
said = refused(courtesy.restore)
assert "out of memory" in said and said.endswith("call restore() again"), said
assert courtesy.yielded and a.device.type == b.device.type == view.device.type == "cpu"
assert allocated() == 0 and view[0] == 15 and a[-1] == (1 << 20) - 1
b += 1
torch.cuda.set_per_process_memory_fraction(1.0)
courtesy.restore()
assert a.device == b.device == cuda and allocated() == before
assert view.cpu()[0] == 16 and view.data_ptr() - b.data_ptr() == 80
assert a.cpu().equal(torch.arange(1 << 20))

try:
    with courtesy:
        assert a.device.type == "cpu"
        raise KeyError("the program's")
except KeyError as error:
    assert error.args == ("the program's",)
assert a.device == cuda

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    forgotten = memlab.Courtesy()
    forgotten.yield_memory()
    del forgotten
assert [w.category for w in told] == [ResourceWarning] and "stay on the CPU" in str(
    told[0].message)
assert a.device.type == "cpu" and a[3] == 3
""")


@pytest.mark.cuda
def test_several_devices_and_streams(backed_run, torch):
    if has_gpu() and torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    backed_run("""
one = torch.device("cuda", 1)
side = torch.cuda.Stream()
a = on_gpu(torch.arange(10.0))
b = torch.arange(20.0).to(one)
with torch.cuda.stream(side):
    c = on_gpu(torch.arange(30.0))
c.record_stream(torch.cuda.default_stream())
torch.cuda.set_device(1)

def streams():
    return {s["device"]: {t["stream"] for t in torch.cuda.memory_snapshot()
                          if t["device"] == s["device"]}
            for s in torch.cuda.memory_snapshot()}

before = streams()
with memlab.Courtesy() as courtesy:
    assert courtesy.left == {} and courtesy.yielded_bytes == 3 * 512
    assert allocated(0) == allocated(1) == torch.cuda.memory_reserved(0) == 0
    assert torch.cuda.current_device() == 1
assert torch.cuda.current_device() == 1 and streams() == before
assert [t.device for t in (a, b, c)] == [cuda, one, cuda]
for n, t in (10, a), (20, b), (30, c):
    assert t.cpu().equal(torch.arange(float(n)))
""")


@pytest.mark.cuda
def test_the_benchmarks_can_be_rehearsed(phantom_run, tmp_path):
    figures = tmp_path / "figures.json"
    words = ["--bytes", "9000000", "--repeats", "2", "--json", figures]
    phantom_run(BENCH / "courtesy.py", *words, env=BACKED, warm=True)
    [size] = json.loads(figures.read_text())["sizes"]
    assert [one["allocated_bytes"] for one in size["memlab"]] == [0, 0]
    words = ["--steps", "1", "--layers", "1"]
    done = phantom_run(BENCH / "courtesy_training.py", *words, env=BACKED, warm=True)
    said = json.loads(done.stdout)
    assert said["yields"] == 2
    assert said["aliasing_kept"]
    assert said["allocated_while_yielded_bytes"] == 0


def test_without_cuda_nothing_happens_and_nothing_is_said():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import memlab\n"
            "c = memlab.Courtesy()\n"
            "with c: pass\n"
            "c.yield_memory(); c.restore()\n"
            "print(c.yielded, c.yielded_bytes, c.left)\n"
            "import sys; assert 'torch' not in sys.modules\n",
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False 0 {}\n", "")


def test_tensors_of_the_cpu_are_not_looked_at(torch):
    import memlab

    tensor = torch.randn(3)
    was = tensor.clone(), tensor.data_ptr()
    with memlab.Courtesy() as courtesy:
        assert not courtesy.yielded
        assert not torch.cuda.is_initialized()
    assert torch.equal(tensor, was[0])
    assert tensor.data_ptr() == was[1]
