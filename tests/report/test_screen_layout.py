"""How the first screen divides its 24 lines, for a device put together by hand."""

from memlab._report import first_screen

GIB = 1 << 30


class Device:
    """A device whose parts of 1 GiB have names, and changes that save the bytes SAVED."""

    name, start, source = "cuda:0", None, "cuda"
    failed = grows = too_long = False
    workspaces = ""
    urgency = (False, 1)

    def __init__(self, *saved):
        peak = {
            "allocated_bytes": 10 * GIB,
            "reserved_bytes": 10 * GIB,
            "moment": {"step": 3, "phase": None},
            "stage": "forward",
            "file": "",
        }
        self.verdict = {
            "peak": peak,
            "total_bytes": None,
            "findings": [{"kind": "fits", "text": f"{kind}: 1 of 2."} for kind in ("Fits", "Cached")],
            "changes": [
                {
                    "kind": "checkpoint",
                    "allocated_saving_bytes": bytes_,
                    "reserved_saving_bytes": 0,
                    "text": f"Change {bytes_}: saves much of what the program has, so that it takes two lines",
                    "code": "x = y",
                }
                for bytes_ in saved
            ],
            "make_fit": None,
        }
        self.answer = {
            "peak": peak,
            "by_category": {"activation": 10 * GIB, "unknown": 0},
            "unknown_because": {},
            "inexact_category_bytes": 0,
            "by_line": [],
            "peak_before_window": False,
        }

    def modules(self, most):
        row = {"bytes": GIB, "reason": "", "share": "all", "modules": 1}
        return [{**row, "module": f"layers.{i}"} for i in range(most)]


def shown(monkeypatch, *saved):
    """The numbers of modules and of changes."""
    monkeypatch.setattr(first_screen, "Device", lambda *_: Device(*saved))
    made = first_screen.parts(None, [0], last=lambda explain: ["Files"] * 3 + ["Next"])
    lines = first_screen.text([], made).splitlines()
    assert len(lines) <= first_screen.LINES
    return sum("layers." in line for line in lines), sum("Change" in line for line in lines)


def test_a_third_change_that_saves_little_leaves_room_for_the_parts(monkeypatch):
    monkeypatch.setattr(first_screen, "_of_ranks", lambda _: iter(()))
    rows, changes = shown(monkeypatch, 4 * GIB, 3 * GIB, GIB // 4)
    assert rows >= 4 and changes == 2
    rows, changes = shown(monkeypatch, 4 * GIB, 3 * GIB, 2 * GIB)
    assert rows < 4 and changes == 3
    rows, changes = shown(monkeypatch, 4 * GIB, 3 * GIB)
    assert rows >= 4 and changes == 2
