"""The list of the processes of a `memlab run`, and files of theirs that are not as they were
written: what is lost, and that no more is."""

import os

import pytest
from run_folders import names, peaks, results

pytestmark = pytest.mark.cuda


def test_a_file_that_cannot_be_read_takes_nothing_with_it(run, tmp_path):
    done = run("""
def work(mib):
    held = hold(mib)

if __name__ == "__main__":
    for mib in 10, 20:
        child = multiprocessing.get_context("fork").Process(target=work, args=(mib,))
        child.start()
        child.join()
    os.truncate("memlab_out/rank1.mlab", 100)
""")
    assert "memlab: no summary:" in done.stderr and "rank1.mlab" in done.stderr
    assert "for N = 0-1: report.txt, report_rankN.txt" in done.stderr
    assert names(tmp_path / "memlab_out") == results(0, 1)


ONE_CHILD = """
def work():
    hold(48, 1)

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start(); child.join()
"""


@pytest.mark.parametrize("harm", ["gone", "cut", "other"])
def test_without_the_list_this_process_is_told_alone(run, tmp_path, harm):
    """The program takes the list of its processes away, or a line of it found no room."""
    done = run(f"""
import shutil
hold(24)
path = "memlab_out/.rank0.processes"
if {harm!r} == "gone":
    os.unlink(path)
elif {harm!r} == "cut":
    with open(path, "a") as file:
        file.write('\\n{{"key": 1, "pi')
else:
    with open(path, "w") as file:
        file.write("something else")
""")
    assert "Peak on cuda:0: 24.0 MiB" in done.stderr
    assert ("other processes recorded is not told" in done.stderr) == (harm != "cut")
    assert peaks(tmp_path / "memlab_out") == {0: 24}


def test_a_line_that_found_no_room_costs_itself(run, tmp_path):
    done = run("""
if __name__ == "__main__":
    with open("memlab_out/.rank0.processes", "a") as file:
        file.write('\\n{"key": 1, "pi')
""" + ONE_CHILD)
    assert "Peak on cuda:1: 48.0 MiB" in done.stderr
    assert peaks(tmp_path / "memlab_out") == {0: 48}


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_list_that_another_has_made_is_not_written_to(run, tmp_path, kind):
    folder = tmp_path / "memlab_out"
    folder.mkdir()
    victim = tmp_path / "victim.txt"
    victim.write_text("theirs")
    if kind == "fifo":
        os.mkfifo(folder / ".rank0.processes")
    else:
        os.link(victim, folder / ".rank0.processes")
    done = run("hold(24)")
    assert "remove it" in done.stderr and "Peak on cuda:0: 24.0 MiB" in done.stderr
    assert victim.read_text() == "theirs"


def test_files_of_a_run_before_are_not_told_as_this_ones(run, tmp_path):
    """Where a child cannot write its report it is made of its recording."""
    run(ONE_CHILD.replace("48", "24"))
    folder = tmp_path / "memlab_out"
    report = (folder / "report.txt").read_text()
    for name in ("report.txt", "rank0.html"):
        (folder / name).unlink()
        (folder / name).mkdir()
    done = run(ONE_CHILD)
    assert "Peak on cuda:1: 24.0 MiB" in report
    assert "Peak on cuda:1: 48.0 MiB" in done.stderr
    assert "report.txt was not written" in done.stderr
    assert "Files in memlab_out: rank0.pickle, rank0.mlab\n" in done.stderr


def test_a_child_without_its_file_is_recorded_in_memory(run, tmp_path):
    folder = tmp_path / "memlab_out"
    folder.mkdir()
    (folder / "rank1.mlab").mkdir()
    done = run(ONE_CHILD.replace("child.start()", "held = hold(24); child.start()"))
    assert "recording without" in done.stderr
    assert "(the page), rank1.pickle\n" in done.stderr.replace("\n    ", " ")
    assert "Peak on process 1 (cuda:1): 48.0 MiB" in done.stderr


def test_what_memlab_says_never_goes_to_the_programs_output(run, tmp_path):
    """Nor does a full disk below that change the status."""
    with open("/dev/full", "w") as full:
        done = run("hold = lambda *a: torch.empty(48 << 20, device=a[1])" + ONE_CHILD,
                   stdout=full)
    assert "Peak on cuda:1: 192 MiB" in done.stderr
    assert "Peak on cuda:1: 192 MiB" in (tmp_path / "memlab_out/report.txt").read_text()
