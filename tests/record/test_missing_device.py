"""A recording of a device that does not exist: an error where that is known."""

import pytest

import memlab

PROGRAM = """
import os, torch, memlab

def begin(device):
    try:
        with memlab.MemorySnapshot(device=device):
            pass
    except ValueError as error:
        print(error)
    else:
        print("recorded")

begin(2)
begin(1)
print(torch.cuda.is_initialized())
if (child := os.fork()) == 0:
    torch.empty(8, device="cuda")
    os._exit(0)
print(os.waitpid(child, 0)[1])
torch.empty(8, device="cuda")
begin("cuda:2")
# torch's function accepts any index, and so does its stand-in.
memlab._record_memory_history(device=7)
memlab._record_memory_history(None)
"""


@pytest.mark.cuda
def test_a_gpu_that_is_not_there(phantom_run):
    """Told also before CUDA is initialised, which the question does not do."""
    from cuda_here import has_gpu

    if has_gpu():
        pytest.skip("counts the GPUs of the phantom device")
    said = "there is no cuda:2, torch sees 2"
    done = phantom_run(PROGRAM, env={"MEMLAB_PHANTOM_DEVICES": "2"})
    assert done.stdout.splitlines() == [said, "recorded", "False", "0", said]


def test_the_host_is_one_device(torch):
    snapshot = memlab.MemorySnapshot(source="cpu", device=1)
    with pytest.raises(ValueError, match="no device 1, the host's memory .* device 0 alone"):
        snapshot.start()
    assert not snapshot.recording
