"""The CUDA context given back and taken again, on the phantom device or a real GPU.

Figures are those of another process's NVML: on the phantom, processes for which
MEMLAB_PHANTOM_SHARED names one file see each other.
"""

import json

import pytest

pytestmark = pytest.mark.cuda

MIB = 1 << 20
CONTEXT = 610 * MIB  # docs/PHANTOM.md
# Whatever CUDA torch is built for.
DRIVER = {"MEMLAB_PHANTOM_DRIVER": "580.65.06"}


@pytest.fixture
def run(phantom_run, device_environment, tmp_path):
    """Runs a program that prints JSON; the devices are shared with what it starts."""
    if "LD_PRELOAD" not in device_environment:
        pytest.skip("its figures are the phantom's")

    def start(source, **env):
        # The phantom reads it at the first call of CUDA, so that one parent serves all.
        shared = {"MEMLAB_PHANTOM_SHARED": str(tmp_path / "shared"), **DRIVER, **env}
        first = f"import os\nos.environ.update({shared!r})\n"
        done = phantom_run(first + PRELUDE + source, timeout=300)
        return json.loads(done.stdout.splitlines()[-1])

    return start


PRELUDE = """
import ctypes, json, os, subprocess, sys, threading
import torch, memlab
from memlab._lend.context import Context

driver = ctypes.CDLL("libcuda.so.1")

def state():
    found = ctypes.c_int()
    answer = driver.cuCheckpointProcessGetState(os.getpid(), ctypes.byref(found))
    return found.value if answer == 0 else -answer

def refusal(call):
    try:
        call()
    except memlab.Error as error:
        return str(error)

context, said = Context(), {}
"""


def test_there_and_back(run):
    said = run("""
said["nothing"] = context.check(), context.reason
x = torch.zeros(3 << 20, device="cuda")
address = x.data_ptr()
said["there"] = context.check()
context.give()
said["during"] = context.away, state()

# Nobody in memlab asks the driver, and so nobody waits.
said["ledger"] = refusal(memlab.ledger)
with memlab.MemorySnapshot() as snapshot:
    memlab.step()
said["sampled"] = [n["kind"] for n in snapshot.data().notes() if n["kind"] == "gpu"]
said["torch"] = torch.cuda.memory_allocated()

# A thread that uses CUDA waits, and goes on afterwards.
done = []
thread = threading.Thread(
    target=lambda: done.append(torch.zeros(20 << 20, device="cuda").shape)
)
thread.start()
while not os.path.exists("/proc/self/task/%d" % thread.native_id):
    pass
context.take()
thread.join()
context.settle()
said["after"] = context.away, state(), done[0], x.data_ptr() == address
said["memory"], said["reason"] = context.memory, context.memory_reason
said["lines"] = memlab.ledger()["used_bytes"]
said["again"] = context.check()
context.give()
context.take()
said["twice"] = state()
print(json.dumps(said))
""")
    assert said["nothing"] == [
        False,
        "CUDA is not initialised in this process: there is no context to give",
    ]
    assert said["there"] is True and said["during"] == [True, 2]
    assert "the driver is not asked until it is taken again" in said["ledger"]
    assert said["sampled"] == []
    assert said["torch"] == 12 * MIB
    assert said["after"] == [False, 0, [20 * MIB], True]
    # 12 MiB in a segment of their own; 80 MiB that are cached after the thread.
    own = {"before": CONTEXT + 12 * MIB, "during": 0, "after": CONTEXT + 92 * MIB}
    for when, bytes_ in own.items():
        [figures] = said["memory"][when].values()
        assert figures["own_bytes"] == figures["used_bytes"] == bytes_, when
        assert figures["others_bytes"] == 0
    assert said["reason"] is None
    assert said["lines"] == own["after"]
    assert (said["again"], said["twice"]) == (True, 0)


def test_the_driver_refuses(run):
    said = run("""
x = torch.zeros(3 << 20, device="cuda")

# Managed memory, which torch does not take but other libraries do.
managed = ctypes.c_void_p()
driver.cudaMallocManaged(ctypes.byref(managed), ctypes.c_size_t(1 << 20))
said["ready"] = context.check()
said["managed"] = refusal(context.give), context.away, state()
driver.cudaFree(managed)
context.give()
context.take()

# A thread inside CUDA: a function that CUDA runs.
inside, leave = threading.Event(), threading.Event()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def function(data):
    inside.set()
    leave.wait()
thread = threading.Thread(target=driver.cudaLaunchHostFunc, args=(None, function, None))
thread.start()
inside.wait()
import memlab._lend.context
memlab._lend.context.PATIENCE_MS = 20
said["busy"] = refusal(context.give), context.away, state()
leave.set()
thread.join()
memlab._lend.context.PATIENCE_MS = 10000
context.give()

# Somebody else takes the memory meanwhile.
other = subprocess.Popen(
    [sys.executable, "-c", '''
import ctypes, sys
driver, taken = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
answer = driver.cudaMalloc(ctypes.byref(taken), ctypes.c_size_t(139 << 30))
print(answer, flush=True)
sys.stdin.read()
'''],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
said["other"] = other.stdout.readline()
said["taken"] = refusal(context.take), context.away, state()
other.communicate()
context.take()
context.settle()
said["after"] = context.away, state()

# An unlock that fails, once.
context.give()
driver.memlab_phantom_answer(b"cuCheckpointProcessUnlock", 999)
said["unlock"] = refusal(context.take), context.away, state()
context.take()
said["end"] = context.away, state()

# Somebody else has locked it.
driver.cuCheckpointProcessLock(os.getpid(), None)
said["locked"] = refusal(context.check)
driver.cuCheckpointProcessUnlock(os.getpid(), None)
print(json.dumps(said))
""")
    assert said["ready"] is True
    text, *where = said["managed"]
    assert text.startswith(
        "cuCheckpointProcessCheckpoint failed with CUDA_ERROR_NOT_SUPPORTED, not "
        "supported (801): the driver cannot checkpoint what this process holds: managed "
    )
    assert where == [False, 0]
    text, *where = said["busy"]
    assert "CUDA_ERROR_NOT_READY" in text and "another thread stayed inside" in text
    assert where == [False, 0]
    assert said["other"] == "0\n"
    text, *where = said["taken"]
    assert "CUDA_ERROR_OUT_OF_MEMORY" in text and "try again when it is free" in text
    assert "cuda-checkpoint" in text and "--action restore" in text
    assert where == [True, 2]
    assert said["after"] == [False, 0]
    text, *where = said["unlock"]
    assert "cuCheckpointProcessUnlock failed with CUDA_ERROR_UNKNOWN" in text
    assert where == [True, 1]
    assert said["end"] == [False, 0]
    assert "locked or checkpointed already" in said["locked"]


TRAINING = """
def state_of(model, optimizer):
    tensors = [*model.state_dict().values()]
    for parameter in model.parameters():
        tensors += [parameter.grad, *optimizer.state[parameter].values()]
    return tensors

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

# Kernels do nothing on the phantom: contents come by copies alone.
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.Linear(1024, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(64, 512).cuda()
train(2)
for tensor in state_of(model, optimizer):
    if tensor.is_cuda:
        tensor.data.copy_(torch.randn(tensor.shape))
def contents():
    return [t.detach().cpu().numpy().tobytes() for t in state_of(model, optimizer)]
"""


def test_courtesy_gives_the_context_too(run):
    said = run(
        TRAINING
        + """
before = contents()
courtesy = memlab.Courtesy(context=True)
with courtesy:
    said["away"] = state(), courtesy.yielded, model[0].weight.device.type
    said["same"] = contents() == before
    courtesy.yield_memory()
    said["still"] = state()
    # One without the context neither moves anything nor waits for ever.
    said["plain"] = refusal(memlab.Courtesy().yield_memory)
    memlab.Courtesy().restore()
    # The program may change what it has on the host.
    model[1].bias.data.fill_(3)
said["back"] = state(), courtesy.yielded, model[0].weight.device.type
after = contents()
said["changed"] = [i for i in range(len(after)) if after[i] != before[i]]
said["bias"] = model[1].bias.tolist()
train(1)
said["context"] = courtesy.context

# Exceptions restore and pass.
try:
    with courtesy:
        raise KeyError("mine")
except KeyError as error:
    said["passed"] = error.args, state()

# What the driver refuses leaves all as before.
managed = ctypes.c_void_p()
driver.cudaMallocManaged(ctypes.byref(managed), ctypes.c_size_t(1 << 20))
before, at = contents(), model[0].weight.data_ptr()
said["refused"] = refusal(courtesy.yield_memory)
said["as before"] = (
    state(), courtesy.yielded, contents() == before, model[0].weight.device.type
)
driver.cudaFree(managed)

# So does a refusal before anything was moved.
import torch.distributed.distributed_c10d as distributed
from multiprocessing.reduction import ForkingPickler
import torch.multiprocessing.reductions as reductions
sent = torch.zeros(5, device="cuda")
reductions.shared_cache[b"handle"] = reductions.StorageWeakRef(sent.untyped_storage())
said["shared"] = refusal(courtesy.yield_memory), courtesy.yielded
del sent
torch.distributed.init_process_group(
    "gloo", init_method="file://" + os.path.abspath("meeting"), rank=0, world_size=1
)
courtesy.yield_memory()
said["alone"] = state()
courtesy.restore()
class Group:
    def size(self):
        return 2
group = Group()
distributed._world.pg_map[group] = ("nccl", None)
distributed._world.pg_backend_config[group] = "cuda:nccl"
said["nccl"] = refusal(courtesy.yield_memory), courtesy.yielded
del distributed._world.pg_map[group]
torch.distributed.destroy_process_group()

# Lost while it was away: another takes the context back.
courtesy.yield_memory()
del courtesy
memlab.Courtesy(context=True).restore()
said["lost"] = state()
print(json.dumps(said))
""",
        MEMLAB_PHANTOM_BACKED="1",
    )
    assert said["away"] == [2, True, "cpu"] and said["same"] and said["still"] == 2
    assert said["plain"] == (
        "the CUDA context is given back, by another Courtesy: restore that one first"
    )
    assert said["back"] == [0, False, "cuda"]
    # Of two layers' weights and biases the last.
    assert said["changed"] == [3] and said["bias"] == [3] * 8
    context = said["context"]
    assert context["reason"] is None and context["memory_reason"] is None
    assert set(context["seconds"]) == {"give", "take"}
    own = {when: f["0"]["own_bytes"] for when, f in context["memory"].items()}
    used = {when: f["0"]["used_bytes"] for when, f in context["memory"].items()}
    assert own["during"] == used["during"] == 0
    assert own["before"] > CONTEXT and own["after"] > CONTEXT
    assert said["passed"] == [["mine"], 0]
    assert "managed (UVM) memory" in said["refused"]
    assert said["as before"] == [0, False, True, "cuda"]
    text, yielded = said["shared"]
    assert "while 1 storages of GPU memory are shared" in text and not yielded
    assert said["alone"] == 2
    text, yielded = said["nccl"]
    assert "while NCCL connects this process with 1 more" in text and not yielded
    assert said["lost"] == 0


def test_an_old_driver_is_refused_before_anything_moves(run):
    said = run(
        """
x = torch.zeros(3 << 20, device="cuda")
courtesy = memlab.Courtesy(context=True)
said["old"] = refusal(courtesy.yield_memory), courtesy.yielded, x.device.type
courtesy.restore()
with memlab.Courtesy():
    said["without"] = x.device.type
print(json.dumps(said))
""",
        MEMLAB_PHANTOM_DRIVER="550.54.15",
    )
    text, *after = said["old"]
    assert text == (
        "NVIDIA's driver cannot give a CUDA context back: driver 570 and CUDA 12.8 are the "
        "first that can, and this one knows CUDA 12.4 (driver 550.54.15)"
    )
    assert after == [False, "cuda"]
    assert said["without"] == "cpu"


def test_a_program_may_end_meanwhile(phantom_run):
    done = phantom_run(
        f"import os, sys, torch, memlab\nos.environ.update({DRIVER!r})\n"
        "model = torch.nn.Linear(512, 512).cuda()\n"
        "model(torch.zeros(1, 512, device='cuda')).sum().backward()\n"
        "courtesy = memlab.Courtesy(context=True)\n"
        "courtesy.yield_memory()\n"
        "print(courtesy.yielded)\n"
        "sys.exit(7)\n",
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (7, "True\n"), done.stderr


def test_without_cuda_there_is_nothing_to_give(phantom_run):
    done = phantom_run(
        "import torch, memlab\n"
        "with memlab.Courtesy(context=True) as courtesy:\n"
        "    pass\n"
        "print(courtesy.context['reason'])\n"
        "print(memlab.Courtesy().context, torch.cuda.is_initialized())\n"
    )
    assert done.stdout.splitlines() == [
        "CUDA is not initialised in this process: there is no context to give",
        "None False",
    ]
