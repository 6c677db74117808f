"""Times the page of a long run in a real browser: how long a frame takes while it is panned.

    .venv/bin/python benchmarks/timeline.py --steps 10000

The reference schedules so many steps, of requests with images that come and go. A frame is from one
callback of requestAnimationFrame to the next, in Debian's chromium without a window, which draws on
the processor.
"""

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from cacheproof.differential.findings.timeline.model import timeline
from cacheproof.differential.findings.timeline.page import page
from cacheproof.differential.judges.retrace import Retrace
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import SCHEMA, Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Schedule, SchedulerConfig, SchedulerHeader
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.reference.semantics import Semantics

FRAMES = 120
STEPS_PER_REQUEST = 4
IMAGES, IMAGE_ROWS, PROMPT, ANSWER_MAX = 60, 24, 48, 40
VIEWS = {"zoomed in": "", "the whole run": "0"}
PAN = """async (frames) => {
  const chart = document.getElementById("chart"), took = [];
  let last = await new Promise(requestAnimationFrame);
  for (let i = 0; i < frames; i++) {
    const deltaX = i % 40 < 20 ? 90 : -70;
    chart.dispatchEvent(new WheelEvent("wheel", { deltaX, cancelable: true }));
    const now = await new Promise(requestAnimationFrame);
    took.push(now - last);
    last = now;
  }
  return took;
}"""


def long_run(steps: int) -> Trace:
    """Requests come as others end; each shows one of some images, or two."""
    pick = random.Random(0)
    config = SchedulerConfig(
        capacity=IMAGE_ROWS * 12,
        compute_budget=IMAGE_ROWS * 4,
        max_num_batched_tokens=128,
        max_num_seqs=16,
        max_model_len=256,
        block_size=16,
        num_blocks=200,
    )
    return Trace(SchedulerHeader(SCHEMA, "encoder_cache", config), tuple(_events(steps, pick)))


def _events(steps: int, pick: random.Random) -> Iterator[AnyEvent]:
    for step in range(steps):
        if step % STEPS_PER_REQUEST == 0:
            item = Item(f"image {pick.randrange(IMAGES)}", offset=4, length=IMAGE_ROWS)
            answer = pick.randint(1, ANSWER_MAX)
            yield Add(f"request {step}", prompt=PROMPT, items=(item,), max_tokens=answer)
        yield Schedule()
        yield Update()


def written(steps: int, file: Path) -> int:
    """Write the page of such a run; says how many events it has."""
    trace, target = long_run(steps), ReferenceTarget(Semantics.ideal())
    (result,) = target.run([trace])
    began = time.perf_counter()
    retrace = Retrace(trace, result.records, None, target.protocol, result.capacity)
    file.write_bytes(page(timeline(trace.header, retrace.moments(), (), target="reference")))
    taken = time.perf_counter() - began
    print(f"{steps:,} steps, {len(trace.events):,} events, {file.stat().st_size / 2**20:.1f} MiB, "
          f"written in {taken:.1f} s")  # fmt: skip
    return len(trace.events)


def frames(shown: Page) -> list[float]:
    """Milliseconds of each frame while it is panned."""
    found: list[float] = shown.evaluate(PAN, FRAMES)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder, "timeline.html")
        written(steps, file)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        shown = browser.new_page(viewport={"width": 1400, "height": 1000})
        began = time.perf_counter()
        shown.goto(file.as_uri())
        print(f"opened in {time.perf_counter() - began:.1f} s\n")
        print("| view | frames | median | 95 in 100 | longest |\n|---|---|---|---|---|")
        for view, key in VIEWS.items():
            if key:
                shown.press("#chart", key)
            took = frames(shown)
            figures = statistics.median(took), statistics.quantiles(took, n=20)[-1], max(took)
            print(f"| {view} | {len(took)} |", " | ".join(f"{one:.0f} ms" for one in figures), "|")
        browser.close()


if __name__ == "__main__":
    main()
