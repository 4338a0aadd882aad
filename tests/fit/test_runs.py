"""What is told of the runs of memlab fit while they go on."""

import types

from memlab._fit import run


def test_a_run_after_a_long_one_says_how_long_it_may_take(tmp_path, monkeypatch):
    script, told = tmp_path / "a.py", []
    script.write_text("")
    times = iter((0.0, 6.8))
    monkeypatch.setattr(run, "time", types.SimpleNamespace(monotonic=lambda: next(times)))
    with run.Runs("l4", 1, 60, None, 3) as runs:
        runs.tell = told.append
        runs.tell_run("trying N=1")
        runs.run(run.Command([str(script)]), 1 << 30)
        runs.tell_run("trying N=2")
    assert told == ["trying N=1", "trying N=2, about 7 s"]
