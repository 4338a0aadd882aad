"""What waits for the import of a module is called once it is imported."""

import importlib
import importlib.util
import sys

from memlab._native.importing import when_imported


def test_all_who_wait_for_one_module_are_called_once_it_has_run(tmp_path, monkeypatch):
    (tmp_path / "waited_for.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    called = []
    for name in ("first", "second", "third"):
        when_imported("waited_for", lambda module, name=name: called.append((name, module.value)))
    assert importlib.util.find_spec("waited_for") is not None and called == []
    module = importlib.import_module("waited_for")
    assert sorted(called) == [("first", 1), ("second", 1), ("third", 1)]
    assert sys.meta_path == finders
    when_imported("waited_for", called.append)
    assert called[3:] == [module]
    del sys.modules["waited_for"]


def test_a_module_that_is_not_there_is_told_by_python(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    when_imported("never_there", print)
    when_imported("never_there", print)
    assert importlib.util.find_spec("never_there") is None
