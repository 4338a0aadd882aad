"""Times of a viewer's page in Chromium, as JSON: measure.py PAGE.html

ready_ms: from navigation until the page answers; first_paint_ms: as Chromium reports it.
pan and stretch: milliseconds between frames while the range moves every frame, with every
allocation drawn one by one.  Chromium draws without a GPU here.
"""

import json
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FRAMES = """async (keys) => {
  const canvas = document.getElementById("timeline");
  const press = (key) => canvas.dispatchEvent(
    new KeyboardEvent("keydown", { key, bubbles: true }));
  const slider = document.getElementById("detail");
  slider.value = 100;
  slider.dispatchEvent(new Event("input"));
  for (const key of keys.before) {
    press(key);
  }
  const times = [];
  let last = await new Promise(requestAnimationFrame);
  for (let i = 0; i < 120; i++) {
    press(keys.move[i % 30 < 15 ? 0 : 1]);
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
  }
  times.sort((a, b) => a - b);
  return { median: times[60], p95: times[114], most: times[119] };
}"""

PAN = {"before": ["0", "+", "+", "+"], "move": ["ArrowRight", "ArrowLeft"]}
STRETCH = {"before": ["0"], "move": ["]", "["]}


def main(page_path):
    path = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.goto(Path(page_path).resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        result = {
            "events": page.locator("#facts dd").nth(2).text_content(),
            "ready_ms": page.evaluate(
                "performance.getEntriesByName('memlab-ready')[0].startTime"
            ),
            "first_paint_ms": page.evaluate(
                "performance.getEntriesByType('paint')[0].startTime"
            ),
            "pan": page.evaluate(FRAMES, PAN),
            "stretch": page.evaluate(FRAMES, STRETCH),
        }
        print(json.dumps(result, indent=1))
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
