"""MemProfiler without a trainer: which calls it collects, the figures, and the files; all that a
module has of it is gone afterwards."""

import json
import pickle
import warnings
from pathlib import Path

import pytest
from modes import NEW

from memlab.callbacks import npp_hooks
from memlab.callbacks._memprofiler import profiler as _memprofiler
from memlab.callbacks._memprofiler import profiler_hooks
from memlab.callbacks._memprofiler.config import MemProfilerCfg

PROGRAM = Path(__file__).parents[1] / "programs" / "memprofiler.py"
CALL = ["0.training_step.2.end", "0.training_step.2.start"]
ATTRIBUTES = [
    "rss_pre_forward",
    "rss_post_forward",
    "rss_diff",
    "npp_pre_forward",
    "npp_post_forward",
    "npp_diff",
]

# A batch of 8 x 16 floats, and the hidden 8 x 32 that two modules save: once.
INPUT, HIDDEN = 8 * 16 * 4, 8 * 32 * 4


@pytest.fixture(scope="module")
def outcomes():
    return {}


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.cuda), "cpu"])
def found(request, outcomes, phantom_run, torch):
    if request.param not in outcomes:
        # Once, also where it fails.
        outcomes[request.param] = None
        done = phantom_run(PROGRAM, request.param)
        outcomes[request.param] = json.loads(done.stdout)
    if outcomes[request.param] is None:
        pytest.fail("the program failed, as the first of these tests shows")
    return outcomes[request.param]


def test_of_four_calls_the_second_is_collected(found):
    seen = found["defaults"]
    assert seen["keys"] == CALL
    assert seen["done"] == ["training_step"]
    assert seen["name"] == ["training_step", "What it does."]
    # Counted until it is done, each call once.
    assert seen["indices"] == [3, 3]


def test_hooks_are_there_in_the_collected_call_only(found):
    seen = found["defaults"]
    # Five modules, before and after the forward pass of each.
    assert seen["handles"] == [0, 10, 0, 0]
    assert seen["clean"] and not seen["enabled"]
    # Between the calls the attributes are there, and reset.
    assert seen["reset"] == [None, *ATTRIBUTES, None, None]


def test_saved_bytes_are_those_of_storages_that_are_no_parameters(found):
    start, end = (
        found["defaults"]["stats"][f"0.training_step.2.{c}"] for c in ("start", "end")
    )
    assert [start[name] for name in ATTRIBUTES] == [0] * 6
    assert [end[name] for name in ATTRIBUTES[3:]] == [0, INPUT + HIDDEN, INPUT + HIDDEN]
    assert end["rss_diff"] == end["rss_post_forward"] - end["rss_pre_forward"]
    by_module = {
        name.split(".npp_diff")[0]: size
        for name, size in end.items()
        if ".npp_diff" in name
    }
    # The last module saves what the one before it has saved, and a view of its weight.
    assert by_module == {
        "modules.net": INPUT + HIDDEN,
        "modules.net.0": INPUT,
        "modules.net.1": HIDDEN,
    }
    assert end["modules.net.2.npp_pre_forward"] == INPUT + HIDDEN


def test_host_memory_and_cuda_statistics(found, outcomes):
    for figures in found["defaults"]["stats"].values():
        assert 0 < figures["rss"] < figures["vms"]
        cuda = figures.get("allocated_bytes.all.current")
        assert (cuda is None) == (found is not outcomes.get("cuda"))


def test_files(found, tmp_path):
    seen = found["defaults"]
    # Also before the training ends, once nothing more will come.
    assert seen["early_files"] == seen["files"] == ["rank_0_memory_stats.yaml"]
    assert seen["mode"] == oct(NEW)
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(seen["yaml"]) == seen["stats"]


def test_a_model_can_be_copied_while_it_is_profiled(found):
    assert found["copies"] == {"equal": [True, True], "profiles": [True, True]}


def test_functions_that_take_turns(found):
    assert found["turns"] == sorted(
        f"0.{name}.2.{context}"
        for name in ("training_step", "validation_step")
        for context in ("start", "end")
    )


def test_a_call_within_a_call_has_figures_of_its_own(found):
    assert found["recursion"] == ["0.recurses.2.end", "0.recurses.2.start"]
    # The same batch four times, of which two are in the inner call.
    assert found["nested"] == {
        "0.recurses.1.start": 0,
        "0.recurses.2.start": 0,
        "0.recurses.2.end": INPUT + 2 * HIDDEN,
        "0.recurses.1.end": INPUT + 4 * HIDDEN,
    }
    assert found["under_way"] == [0]


def test_threads_have_figures_of_their_own(found):
    assert found["threads"] == {
        f"0.training_step.{number}.{context}": size
        for number in range(1, 5)
        for context, size in (("start", 0), ("end", INPUT + HIDDEN))
    }


def test_an_exception_passes_and_leaves_its_figures(found):
    assert found["fails"] == {
        "raised": ["'of the program'"] * 2,
        "keys": ["0.fails.2.end", "0.fails.2.start"],
        "files": ["rank_0_memory_stats.yaml"],
    }


def test_contexts_alone_and_within_one_another(found):
    assert found["contexts"] == ["0.training_step.1.end", "0.training_step.1.start"]
    assert found["key"] == [1, [0, "training_step", 1, "end"]]
    assert found["alone"] == found["direct"] == CALL


def test_checkpoints_and_compiled_modules(found):
    # A checkpoint saves its input; what it computes again is not kept.
    assert found["checkpoint"] == INPUT
    assert found["compiled"] == INPUT + HIDDEN


def test_what_is_compiled_in_a_collected_call(found):
    # In place, with a hook that no graph takes; no module within has hooks.
    assert found["compiled_in_place"] == [INPUT + HIDDEN, 0]


def test_a_function_compiled_in_one_graph_is_left_out(found):
    keys, told = found["one_graph"]
    assert keys == [] and len(told) == 1
    assert "leaves out a function that is compiled with fullgraph=True" in told[0]


def test_what_super_calls_is_part_of_the_call(found):
    assert found["super"] == {
        f"0.training_step.{number}.end": INPUT + HIDDEN for number in (1, 2)
    }


def test_hooks_that_fail_raise_nothing_into_the_model(found):
    keys, told = found["hooks_fail"]
    assert keys == CALL and len(told) == 1
    assert "without memory hooks: OSError: too many open files" in told[0]


def test_children_can_still_be_forked_for_cuda(found):
    assert found["bad_fork"] is False


def test_what_fails_is_told_once_and_never_raised(found):
    seen = found["broken"]
    assert len(seen["keys"]) == 6
    hooks, files = seen["warnings"]
    assert "leaves out the hook broken, which raised OSError: no reset" in hooks
    assert "its files" in files and "look at save_dir" in files


def test_hooks_of_the_users_own(found):
    assert found["own"]["0.training_step.2.end"] == {
        "calls": None,
        "modules.net.calls": 1,
        "modules.net.0.calls": 1,
        "modules.net.1.calls": 1,
        "modules.net.2.calls": 1,
    }
    assert found["own_left"] == []


def test_recordings_are_written_and_none_goes_on(found, outcomes):
    if found is not outcomes.get("cuda"):
        assert "history" not in found
        return
    seen = found["history"]
    assert seen["recording"] == [True, True, False]
    assert seen["files"] == [
        "cuda_alloc_rank_0.later.7.end.pickle",
        "cuda_alloc_rank_0.training_step.2.end.pickle",
        "cuda_alloc_rank_0.training_step.2.start.pickle",
        "rank_0_memory_stats.yaml",
    ]
    assert {"segments", "device_traces"} <= set(seen["snapshot"])
    assert seen["events"] and seen["frames"] and not seen["torch"]


# Without a call.


def test_a_new_profiler():
    profiler = _memprofiler.MemProfiler(1, a=2)
    assert (profiler.memory_stats, profiler.fsdp_memory_stats) == ({}, {})
    assert (profiler.rank, profiler.module, profiler.memprof_log_dir) == (0, None, None)
    assert profiler.fsdp_mem_tracker is None and profiler.saved_tensors_funcs == []
    profiler.memory_stats["new"]["figure"] = 1


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1"}, 3),
        ({"LOCAL_RANK": "1"}, 1),
        ({"SLURM_PROCID": "5"}, 5),
        ({"JSM_NAMESPACE_RANK": "6"}, 6),
        ({"RANK": "0", "SLURM_PROCID": "5"}, 0),
    ],
)
def test_rank(monkeypatch, environment, rank):
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _memprofiler.MemProfiler().rank == rank


def connected(torch, **options):
    module = torch.nn.Linear(2, 2)
    module.memprofiler_cfg = MemProfilerCfg(enabled=True, **options)
    profiler = _memprofiler.MemProfiler()
    profiler.connect(module)
    return profiler


def test_connect_leaves_the_configuration_as_it_is(torch):
    profiler = connected(torch, retain_hooks_for_funcs={"other"})
    assert profiler.memprofiler_cfg.retain_hooks_for_funcs == {"other"}
    assert profiler.saved_tensors_funcs[0] is npp_hooks._npp_hook
    assert profiler._state.base_collect_func_set == {"training_step"}
    with pytest.raises(ValueError, match="must be two functions"):
        connected(torch, saved_tensors_funcs=["identity_lambda"])
    with pytest.raises(ValueError, match="Unable to import and resolve"):
        connected(torch, memory_hooks={"pre_forward_hooks": ["no_module_here.f"]})


def test_done_and_keys(torch):
    profiler = connected(torch)
    assert [profiler.done(i) for i in (2, 3)] == [False, True]
    profiler.schedule.max_iter = 0
    assert profiler.done(1) is True
    profiler.schedule.max_iter = None
    assert profiler.done(1) is False
    key = (7, (0, "training_step", 7, "end"))
    assert profiler.gen_snap_keys("training_step", "end", 7) == key


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, [2, 2, 0]),
        # What a command line gives where nothing is chosen.
        ({"retain_hooks_for_funcs": {"training_step"}}, [2, 2, 0]),
        ({"retain_hooks_for_funcs": {"training_step", "never"}}, [0, 0, 0]),
        ({"retain_hooks_for_funcs": {"b", "never"}}, [2, 2, 0]),
        ({"retain_hooks_for_funcs": {"never"}}, [2, 2, 0]),
    ],
)
def test_hooks_stay_for_the_functions_that_are_to_keep_them(torch, given, left):
    funcs = {"default": {"training_step", "b"}}
    profiler = connected(torch, collect_funcs=funcs, **given)
    profiler.memprof_log_dir = Path("unused")
    profiler.add_memprofiler_hooks()
    for name, left in zip(("training_step", "training_step", "b"), left):
        for context in ("start", "end"):
            profiler.teardown_prof(name, context)
        assert sum(map(len, profiler._state.hook_handles.values())) == left
    assert profiler._state.done_prof_funcs == ["training_step", "b"]
    assert profiler.memprofiler_cfg.enable_memory_hooks is False


def test_a_method_of_an_object_without_profiler_is_called():
    class Plain:
        @_memprofiler.memprofilable
        def f(self, x, *, y):
            return x + y

    assert Plain().f(1, y=2) == 3
    other = Plain()
    other.memprofiler = None
    assert other.f(1, y=2) == 3


def test_any_object_can_be_profiled(torch, tmp_path):
    class Loop(profiler_hooks.ProfilerHooksMixin):
        @_memprofiler.memprofilable
        def training_step(self):
            return 1

    assert Loop().cuda_allocator_history is False
    loop = Loop(
        MemProfilerCfg(enabled=True, save_dir=tmp_path, dump_memorystats_pickle=True)
    )
    loop.setup("fit")
    loop.on_train_start()
    assert [loop.training_step() for _ in range(2)] == [1, 1]
    loop.on_train_end()
    loop.teardown("fit")
    with open(tmp_path / "rank_0_memory_stats.pickle", "rb") as file:
        stats = pickle.load(file)
    assert type(stats) is dict and sorted(stats) == CALL


def test_the_trainers_folder_is_asked_of_all_ranks_or_none(torch, tmp_path):
    class Trainer:
        world_size = 2
        default_root_dir = tmp_path / "root"
        asked = 0

        @property
        def log_dir(self):
            self.asked += 1
            return tmp_path / "log"

    class Loop(profiler_hooks.ProfilerHooksMixin):
        _trainer = Trainer()

        def setup(self, stage):
            """Does not call super()'s."""

        @_memprofiler.memprofilable
        def training_step(self):
            raise ArithmeticError

    for begins, folder in ((True, "log"), (False, "root")):
        loop = Loop(MemProfilerCfg(enabled=True, schedule={"warmup_iters": 0}))
        loop.setup("fit")
        if begins:
            loop.on_train_start()
        # As in one of the ranks: others would not answer.
        with pytest.raises(ArithmeticError):
            loop.training_step()
        assert loop.memprofiler.memprof_log_dir == tmp_path / folder / "memprofiler"
    assert Loop._trainer.asked == 1


def test_each_storage_is_counted_once_and_no_parameter(torch):
    module = torch.nn.Linear(50, 10)
    count = npp_hooks.Count(module)

    def add(tensor):
        before = count.bytes
        count.add(tensor)
        return count.bytes - before

    weight = module.weight
    gathered = torch.nn.Parameter(torch.ones(10, 10))  # as FSDP's, of another storage
    views = [weight, weight.t(), weight.detach()[2:], gathered, gathered.t()]
    assert [add(view) for view in views] == [0] * 5
    whole = torch.ones(100, 10)
    # A slice keeps the whole alive; what is expanded has one row.
    assert [add(whole[:2]), add(whole[50:].t()), add(whole)] == [4000, 0, 0]
    assert add(torch.ones(10).expand(1000, 10)) == 40
    # Each in its turn at the address of the one before.
    assert [add(torch.ones(1000)) for _ in range(5)] == [4000] * 5
    # Two indices of 8 bytes for each value of 4; bounds, indices and values.
    ones = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of beta state
        coo = torch.sparse_coo_tensor([[0, 1, 2], [0, 1, 2]], ones * 1)
        assert add(coo) == 3 * (16 + 4)
        for make in torch.sparse_csr_tensor, torch.sparse_csc_tensor:
            assert add(make([0, 1, 2, 3], [0, 1, 2], ones * 1)) == 4 * 8 + 3 * 8 + 3 * 4
    count.reset()
    assert add(whole) == 4000


class Tracker:
    """Stands for torch's, of which it has what is used."""

    def __init__(self):
        self.windows, self.inputs, self.open = 0, [], 0

    def __enter__(self):
        assert not self.open
        self.open = 1
        self.windows += 1

    def __exit__(self, *exception):
        self.open = 0

    def track_inputs(self, inputs):
        self.inputs.append(inputs)

    def figures(self):
        return {
            "peak": {"cuda:0": {"Inputs": 0, "Total": self.windows * MIB}},
            "modules": {},
        }

    def reset_mod_stats(self):
        pass


def test_fsdp_memory_of_each_call(torch, tmp_path):
    profiler = connected(
        torch,
        collect_funcs={"default": [], "fsdp": ["step", "inner"]},
        schedule={"warmup_iters": 1, "max_iter": 3},
        fsdp_mem_tracker_units="KiB",
        save_dir=tmp_path,
    )
    # Without a tracker nothing is asked of one.
    with profiler.memprofile_fsdp_ctx("other", track_inputs_target=(1,)):
        pass
    tracker = profiler.fsdp_mem_tracker = Tracker()
    for number in range(1, 6):
        with profiler.memprofile_ctx("step", track_inputs_target=(number,)):
            with profiler.memprofile_ctx("inner"):
                pass
    with profiler.memprofile_ctx("inner"):
        pass
    assert profiler.memory_stats == {}
    assert tracker.inputs == [(2,), (3,)]
    # The inner calls were within windows of the outer.
    assert set(profiler.fsdp_memory_stats) == {("step", 2), ("step", 3)}
    assert profiler._state.done_prof_funcs == ["inner", "step"]
    profiler.dump_memory_stats()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "fsdp_mem_rank_0_step_2.log",
        "fsdp_mem_rank_0_step_3.log",
        "rank_0_fsdp_memory_stats.yaml",
    ]
    for number, peak in ((2, "1024.0"), (3, "2048.0")):
        report = (tmp_path / f"fsdp_mem_rank_0_step_{number}.log").read_text()
        assert f"Iteration {number} step Peak FSDP memory stats:\n" in report
        assert f"Device: cuda:0\n\tInputs: 0.0 KiB\n\tTotal: {peak} KiB\n" in report


def test_a_tracker_that_fails_is_left_out(torch):
    class Broken(Tracker):
        def __exit__(self, *exception):
            raise KeyError("no such module")

    profiler = connected(
        torch,
        collect_funcs={"default": [], "fsdp": "step"},
        schedule={"warmup_iters": 0, "max_iter": 2},
    )
    profiler.fsdp_mem_tracker = Broken()
    with pytest.warns(RuntimeWarning, match="without FSDP memory: KeyError") as told:
        for _ in range(2):
            with profiler.memprofile_ctx("step"):
                pass
    assert len(told) == 1
    with pytest.raises(ArithmeticError):
        with profiler.memprofile_ctx("step"):
            raise ArithmeticError


def test_fsdp_root_module(torch):
    profiler = connected(torch)
    assert profiler.fsdp_mem_tracker_root_module is None
    profiler.maybe_init_fsdp_mem_tracker()
    assert profiler.fsdp_mem_tracker is None
    profiler.memprofiler_cfg.track_fsdp_mem = True
    with pytest.raises(AssertionError, match="``fully_shard`` applied"):
        profiler.fsdp_mem_tracker_root_module
    profiler.memprofiler_cfg.fsdp_mem_tracker_root_module = "encoder"
    with pytest.raises(ValueError, match="``fsdp_mem_tracker_root_module``: encoder"):
        profiler.fsdp_mem_tracker_root_module


MIB = 1 << 20
