"""Pictures of every view of the page, light and dark: screenshots.py FILE FOLDER

FILE is a recording or a snapshot.  Those in docs/images are of
    memlab run --phantom --out DIR examples/train_gpt.py
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from memlab._files import load
from memlab._page import page as _page

# What each view is shown with.
SHOWN = {
    "timeline": {},
    "breakdown": {},
    "flame": {},
    "segments": {},
    "events": {"search": "attention"},
    "growth": {},
}
SIZE = {"width": 1280, "height": 720}
# Colours of a picture: few enough for a small file, and no difference to the eye.
COLORS = 256
DRAWN = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  await document.fonts.ready;
  for (let i = 0; i < 20; i++) {
    await frame();
  }
}"""


def main(source, folder):
    recording = load.read_recording(source)
    title = Path(source).name
    page = b"".join(_page.of(recording, title=title))
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "page.html")
        file.write_bytes(page)
        shoot(file, Path(folder))


def shoot(file, folder):
    path = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--use-angle=swiftshader"]
        )
        for theme in "light", "dark":
            method = Image.Quantize.MAXCOVERAGE
            page = browser.new_page(viewport=SIZE, color_scheme=theme)
            page.goto(file.as_uri())
            page.wait_for_selector("html[data-ready]")
            for view, state in SHOWN.items():
                page.evaluate(
                    "(state) => memlabViewer.go(state)",
                    {"search": "", "pinned": None, **state, "view": view},
                )
                page.evaluate(DRAWN)
                picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
                picture.quantize(COLORS, method, dither=Image.Dither.NONE).save(
                    folder / f"viewer-{view}-{theme}.png", optimize=True
                )
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
