"""Which rank of a machine tells what concerns all of them."""

import types

from memlab._run import ranks


def _become(rank, monkeypatch):
    for name, number in (("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", 8)):
        monkeypatch.setenv(name, str(number))


def test_one_rank_of_a_machine_tells(tmp_path, monkeypatch):
    """Again in the next run with the same folder, whichever rank comes first."""
    outputs = types.SimpleNamespace(folder=str(tmp_path))
    for order in ([5, 0, 3], [0, 1]):
        for rank in range(8):
            _become(rank, monkeypatch)
            ranks.begin(outputs)
        told = []
        for rank in order:
            _become(rank, monkeypatch)
            told.append(ranks.is_first_to_tell(outputs))
        assert told == [rank == order[0] for rank in order]


def test_a_rank_tells_where_no_file_can_be_written(tmp_path, monkeypatch):
    _become(3, monkeypatch)
    outputs = types.SimpleNamespace(folder=str(tmp_path / "gone"))
    ranks.begin(outputs)
    assert ranks.is_first_to_tell(outputs)


def test_a_program_of_one_process_tells(tmp_path, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    outputs = types.SimpleNamespace(folder=str(tmp_path))
    assert ranks.is_first_to_tell(outputs) and ranks.is_first_to_tell(outputs)
    assert not list(tmp_path.iterdir())
