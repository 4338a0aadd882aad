"""MemProfiler tells what it did not collect and which hooks it leaves out, and takes hooks
that were written for finetuning-scheduler."""

import gc
import subprocess
import sys
import warnings

import pytest

from memlab.callbacks.memprofiler import (
    MemProfiler,
    MemProfilerCfg,
    MemProfInternalState,
    ProfilerHooksMixin,
    memprofilable,
)


def loop(torch, folder, **options):
    class Loop(ProfilerHooksMixin, torch.nn.Module):
        def __init__(self, cfg):
            super().__init__(cfg)
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

        @memprofilable
        def training_step(self, batch):
            return self.net(batch).sum()

    return Loop(MemProfilerCfg(enabled=True, save_dir=folder, **options))


def trained(module, torch, steps=2):
    """What is told by a training of STEPS, whose result is as without a profiler."""
    module.setup("fit")
    batch = torch.ones(2, 4, requires_grad=True)
    expected = module.net(batch).sum()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            found = module.training_step(batch)
            found.backward()
            assert torch.equal(found, expected)
        module.on_train_end()
        module.teardown("fit")
        module.teardown("fit")
    return [str(warning.message) for warning in caught]


def test_a_function_that_never_ran_is_told_once(torch, tmp_path):
    module = loop(torch, tmp_path, collect_funcs={"default": {"train_step"}})
    (text,) = trained(module, torch)
    assert "no profiled function named train_step ran" in text
    assert "that ran: training_step" in text and "@memprofilable" in text


def test_too_few_calls_are_told(torch, tmp_path):
    module = loop(torch, tmp_path, schedule={"warmup_iters": 3})
    (text,) = trained(module, torch)
    assert "training_step ran 2x, and the first 3 calls are not collected" in text


def test_a_schedule_without_a_call_is_told(torch, tmp_path):
    schedule = {"warmup_iters": 1, "max_iter": 1}
    (text,) = trained(loop(torch, tmp_path, schedule=schedule), torch)
    assert "schedule.max_iter=1 is not above warmup_iters=1" in text


def test_what_was_collected_is_not_told(torch, tmp_path):
    assert trained(loop(torch, tmp_path), torch) == []
    # Nor what only another stage would collect.
    module = loop(torch, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.teardown("validate")


def test_the_end_of_a_program_tells_it_too(tmp_path):
    program = f"""
import sys
sys.modules.update(dict.fromkeys(("lightning", "lightning.pytorch", "pytorch_lightning")))
from memlab.callbacks.memprofiler import MemProfiler, MemProfilerCfg, memprofilable

class Loop:
    memprofiler_cfg = MemProfilerCfg(enabled=True, save_dir={str(tmp_path)!r})

    @memprofilable
    def training_step(self):
        return 1

loop = Loop()
loop.memprofiler = MemProfiler()
loop.memprofiler.connect(loop)
print(loop.training_step())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "1\n", done.stderr
    assert done.stderr.count("training_step ran 1x, and the first 1 calls") == 1


def reads_memory(module, args):
    module.rss_pre_forward = module.mem_info_handle().rss


def test_hooks_of_finetuning_scheduler_find_the_processs_memory(torch, tmp_path):
    hooks = {
        "pre_forward_hooks": reads_memory,
        "post_forward_hooks": [],
        "reset_state_hooks": [],
    }
    module = loop(torch, tmp_path, memory_hooks=hooks, save_hook_attrs=["rss_pre_forward"])
    assert trained(module, torch) == []
    figures = module.memprofiler.memory_stats["0.training_step.2.end"]
    assert 0 < figures["modules.net.0.rss_pre_forward"] < figures["vms"]
    assert not any("mem_info_handle" in vars(m) for m in module.modules())


def test_a_hook_of_the_programs_own_that_raises_is_left_out(torch, tmp_path):
    def broken(module, args, output):
        raise KeyError("mine")

    hooks = {"post_forward_hooks": broken}
    (text,) = trained(loop(torch, tmp_path, memory_hooks=hooks), torch, steps=3)
    assert "leaves out the hook" in text and "broken, which raised KeyError: 'mine'" in text


def test_a_reset_that_raises_is_left_out_alone(torch, tmp_path):
    def reset(module, attributes):
        raise KeyError("mine")

    module = loop(torch, tmp_path, memory_hooks={"reset_state_hooks": reset})
    (text,) = trained(module, torch, steps=3)
    assert "leaves out the hook" in text and "reset, which raised KeyError: 'mine'" in text
    # The others' figures are there.
    assert module.memprofiler.memory_stats["0.training_step.2.end"]["npp_diff"] > 0


def test_a_function_for_saved_tensors_that_raises_is_left_out(torch, tmp_path):
    packed = []

    def pack(tensor):
        if packed:
            raise OSError("full")
        packed.append(tensor)
        return 0

    functions = [pack, lambda index: packed[index]]
    module = loop(torch, tmp_path, saved_tensors_funcs=functions)
    (text,) = trained(module, torch)
    assert "pack, which raised OSError: full" in text and len(packed) == 1


def test_the_state_has_a_public_name():
    assert type(MemProfiler()._state) is MemProfInternalState


def test_configurations_are_safe_yaml(tmp_path):
    yaml = pytest.importorskip("yaml")
    cfg = MemProfilerCfg(
        save_dir=tmp_path,
        collect_funcs={"default": {"b", "a"}},
        memory_hooks={"pre_forward_hooks": reads_memory},
    )
    for text in (yaml.safe_dump({"cfg": cfg}), yaml.dump({"cfg": cfg})):
        plain = yaml.safe_load(text)["cfg"]
        assert plain["collect_funcs"]["default"] == ["a", "b"]
        assert plain["save_dir"] == str(tmp_path)
        assert plain["memory_hooks"]["pre_forward_hooks"] == [f"{__name__}.reads_memory"]
        again = MemProfilerCfg(**plain)
        assert again.collect_funcs == cfg.collect_funcs and again.schedule == cfg.schedule


@pytest.mark.parametrize("name", ["nosuch", "os.", ".path", "."])
def test_a_name_without_a_part_says_what_to_give(name):
    from memlab.callbacks._memprofiler.config import resolve

    with pytest.raises(ValueError, match=f"'{name}': give a function, or its dotted path"):
        resolve(name)


@pytest.fixture(autouse=True)
def no_profiler_is_left():
    """One that lives on would tell, at the end of the tests, what it did not collect."""
    yield
    gc.collect()
