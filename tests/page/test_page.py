"""How the page is put together, and written piece by piece."""

import base64
import json
import re
import zlib

import pytest
from modes import NEW

from memlab import _core
from memlab._cli import main
from memlab._page import page as _page

SCRIPT = re.compile(rb'<script type="([^"]+)" id="([^"]+)">(.*?)</script>', re.S)


def elements(page):
    return {name.decode(): (kind.decode(), text) for kind, name, text in SCRIPT.findall(page)}


def test_blobs_are_elements_behind_the_script():
    blobs = [b"", b"</script>", bytes(range(256)) * 300]
    page = _page.assemble(b'{"format":5}', blobs, title="a<b", notes=["</script>"])
    found = elements(page)
    assert list(found) == ["memlab-about", "memlab-data", "b0", "b1", "b2"]
    assert json.loads(found["memlab-about"][1]) == {
        "title": "a<b", "notes": ["</script>"]
    }
    assert found["memlab-data"] == ("application/json", b'{"format":5}')
    for number, blob in enumerate(blobs):
        kind, text = found[f"b{number}"]
        assert kind == "application/octet-stream"
        assert zlib.decompress(base64.b64decode(text, validate=True), -15) == blob
    code = max(re.finditer(rb"<script>.*?</script>", page, re.S), key=lambda m: m.end())
    assert page.index(b'id="memlab-data"') < code.start()
    assert code.end() < page.index(b'id="b0"')
    assert page.rstrip().endswith(b"</script>\n</body>\n</html>")


def test_a_served_page_says_where_its_blobs_are():
    page = _page.served(b"{}", [0, 5, 5, 9])
    found = elements(page)
    assert list(found) == ["memlab-about", "memlab-data"]
    assert json.loads(found["memlab-about"][1])["serve"] == {"offsets": [0, 5, 5, 9]}
    assert b"; connect-src 'self'\">" in page
    assert b"connect-src" not in _page.assemble(b"{}")


def test_a_file_is_written_piece_by_piece_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x"
    _core.write_file(path, (bytes([n]) * n for n in range(4)))
    assert path.read_bytes() == b"\1\2\2\3\3\3"
    assert path.stat().st_mode & 0o777 == NEW

    def fails():
        yield b"new"
        raise KeyError("mid")

    for data, error in (
        (fails(), KeyError), ([b"new", 1], TypeError), (["new"], TypeError),
        ("new", TypeError), (5, TypeError),
    ):
        with pytest.raises(error):
            _core.write_file(path, data)
    assert path.read_bytes() == b"\1\2\2\3\3\3"
    assert list(tmp_path.iterdir()) == [path]


def test_view_without_a_file_writes_the_empty_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.main(["view"]) == main.main(["view", "--out", "other.html"]) == 0
    assert capsys.readouterr().out == "Page: memlab.html\nPage: other.html\n"
    page = (tmp_path / "memlab.html").read_bytes()
    assert page == (tmp_path / "other.html").read_bytes() == _page.assemble_empty()
    assert (tmp_path / "memlab.html").stat().st_mode & 0o777 == NEW
    found = elements(page)
    assert list(found) == ["memlab-about", "memlab-data", "core"]
    assert json.loads(found["memlab-about"][1])["empty"] is True
    assert found["memlab-data"][1] == b"null"
    core = base64.b64decode(found["core"][1], validate=True)
    assert found["core"][0] == "application/wasm" and core[:4] == b"\0asm"
    policy = re.search(rb'Content-Security-Policy" content="([^"]+)"', page)[1]
    assert b" 'wasm-unsafe-eval'; style-src" in policy and b"connect-src" not in policy
