"""Pictures of every view of a page in Firefox: firefox.py PAGE FOLDER

At three widths, light and dark, by Marionette, the protocol of Firefox's own tests.  Its
narrowest window is 500 pixels wide, so that a phone's width is that of a frame in it.  Fails
where a view tells a fault, or is wider than the window.
"""

import base64
import itertools
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = {390: 844, 1280: 720, 1920: 1080}
VIEWS = ("timeline", "breakdown", "flame", "segments", "events", "growth")
PATIENCE_SECONDS = 120
# Drawn once the frames that follow a change are over.
SHOW = """
const [state, done] = arguments;
location.hash = state;
let frames = 40;
const wait = () => (frames-- > 0 ? requestAnimationFrame(wait)
  : done({
    faults: [...document.querySelectorAll(".fault:not([hidden])")].map((f) => f.textContent),
    window: innerWidth,
    page: document.documentElement.scrollWidth,
  }));
wait();
"""


class Firefox:
    """A headless Firefox, driven over its socket."""

    def __init__(self, folder):
        path = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))))
        Path(folder, "user.js").write_text('user_pref("marionette.port", 0);\n')
        command = [path, "--headless", "--marionette", "--profile", folder]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.socket = self._connect(Path(folder, "MarionetteActivePort"))
        self.file = self.socket.makefile("rwb")
        self.numbers = itertools.count(1)
        self._read()
        self.do("WebDriver:NewSession")

    def _connect(self, port):
        last = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                address = "127.0.0.1", int(port.read_text())
                return socket.create_connection(address, PATIENCE_SECONDS)
            except (OSError, ValueError):
                if time.monotonic() > last or self.process.poll() is not None:
                    raise
                time.sleep(0.2)

    def _read(self):
        length = b""
        while (byte := self.file.read(1)) != b":":
            length += byte
        return json.loads(self.file.read(int(length)))

    def do(self, name, **parameters):
        text = json.dumps([0, next(self.numbers), name, parameters]).encode()
        self.file.write(b"%d:%s" % (len(text), text))
        self.file.flush()
        _, _, error, result = self._read()
        if error is not None:
            raise RuntimeError(error["message"])
        return result

    def end(self):
        self.process.terminate()
        self.process.wait()


def open_page(firefox, address, width, height, folder):
    """Opens ADDRESS in a frame of this size; returns the frame's element."""
    around = folder / "around.html"
    around.write_text(
        f'<!DOCTYPE html><style>* {{ margin: 0; border: 0; display: block }}</style>'
        f'<iframe src="{address}" width="{width}" height="{height}"></iframe>'
    )
    firefox.do("WebDriver:SetWindowRect", width=max(width, 500), height=height + 200)
    firefox.do("WebDriver:Navigate", url=around.as_uri())
    found = firefox.do("WebDriver:FindElement", using="css selector", value="iframe")
    return next(iter(found["value"].values()))


def shoot(firefox, page, folder, own):
    for width, theme in itertools.product(SIZES, ("light", "dark")):
        frame = open_page(firefox, f"{page}#theme={theme}", width, SIZES[width], own)
        for view in VIEWS:
            firefox.do("WebDriver:SwitchToFrame", element=frame)
            seen = firefox.do(
                "WebDriver:ExecuteAsyncScript",
                script=SHOW,
                args=[f"#{view}&theme={theme}"],
            )["value"]
            assert seen["faults"] == [] and seen["window"] == width, seen
            assert seen["page"] <= width, (view, seen)
            firefox.do("WebDriver:SwitchToFrame", id=None)
            data = firefox.do("WebDriver:TakeScreenshot", id=frame)["value"]
            picture = folder / f"firefox-{view}-{width}-{theme}.png"
            picture.write_bytes(base64.b64decode(data))


def main(page, folder):
    with tempfile.TemporaryDirectory() as profile:
        firefox = Firefox(profile)
        try:
            shoot(firefox, Path(page).resolve().as_uri(), Path(folder), Path(profile))
        finally:
            firefox.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
