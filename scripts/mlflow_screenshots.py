"""Takes the pictures of docs/mlflow.md: MLflow's own page, on a sweep that has run.

    pip install playwright && playwright install chromium    # or Debian's chromium on PATH
    specrl -m drafter=none,ngram,eagle3 drafter.k=3 debug=tiny steps=6
    python scripts/mlflow_screenshots.py --uri sqlite:///mlflow.db

Starts `mlflow ui` on the database, opens the newest sweep in a headless browser, clicks what
docs/mlflow.md says to click, and ends both.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs" / "images"
START_S = 900.0
STOP_S = 60.0
PAGE_MS = 300_000
SETTLE_S = 8.0  # charts are drawn one after another
WINDOW = {"width": 1440, "height": 900}
MARGIN = 24
OFF_PX = 4.0
FIRST_ROWS = {
    "compare.png": "arm/R_gen",
    "compare_times.png": "arm/generation_s",
    "compare_speedups.png": "arm/speedup_generation",
}
FIND_BOX = """label => {
  const box = place => [...place.querySelectorAll('.ReactVirtualized__Grid')].find(
    grid => /auto|scroll/.test(getComputedStyle(grid).overflowY));
  let place = label.parentElement;
  while (!box(place)) place = place.parentElement;
  return box(place);
}"""
SCROLL_ON = "box => { box.scrollTop += box.clientHeight / 2; }"
SCROLL_TO = """(label, box) => {
  box.scrollTop = label.closest('.ReactVirtualized__Grid__innerScrollContainer > *').offsetTop;
}"""
OFFSET = """(label, box) => label.closest(
  '.ReactVirtualized__Grid__innerScrollContainer > *').getBoundingClientRect().top
  - box.getBoundingClientRect().top"""
TO_TOP = "element => element.scrollIntoView({block: 'start'})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--uri", default="sqlite:///mlflow.db", help="where the runs are")
    parser.add_argument("--experiment", default="specrl", help="MLflow experiment")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder of the pictures")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that the server ends too
    options.out.mkdir(parents=True, exist_ok=True)
    sweep = newest_sweep(options.uri, options.experiment)
    with server(options.uri) as address, browser() as page:
        pictures(page, address, sweep, options.out)


def newest_sweep(uri: str, experiment: str) -> dict[str, Any]:
    """The ids of the experiment, of the sweep's run and of those below it."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        sys.exit(f"{uri} has no experiment {experiment}; run a sweep first (see --help)")
    place = [found.experiment_id]
    parents = client.search_runs(place, "tags.`specrl.kind` = 'sweep'", max_results=1)
    if not parents:
        sys.exit(f"{uri} has no sweep in experiment {experiment}; run one first (see --help)")
    parent = parents[0].info
    below = client.search_runs(place, f"tags.`mlflow.parentRunId` = '{parent.run_id}'")
    names = [run.info.run_name for run in below]
    return {"experiment": place[0], "run": parent.run_id, "name": parent.run_name, "names": names}


@contextlib.contextmanager
def server(uri: str) -> Iterator[str]:
    """`mlflow ui` on a free port, until the block ends; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri]
    command += ["--port", str(port), "--workers", "1"]
    quiet = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    process = subprocess.Popen(command, env=quiet, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/health")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def wait_for(address: str) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=2):
            return
        time.sleep(0.5)
    sys.exit(f"mlflow ui did not answer within {START_S:.0f} s")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A page of a headless Chromium: Debian's where there is one, else playwright's own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = shutil.which("chromium")
        arguments = ["--no-sandbox", "--disable-gpu"]
        chromium = playwright.chromium.launch(executable_path=own, args=arguments)
        page = chromium.new_page(viewport=WINDOW)
        page.set_default_timeout(PAGE_MS)
        yield page
        chromium.close()


def pictures(page: Any, address: str, sweep: dict[str, Any], out: Path) -> None:
    """What docs/mlflow.md clicks, in its order."""
    runs = f"{address}/#/experiments/{sweep['experiment']}/runs"
    page.goto(runs)
    row = page.locator(".ag-row", has_text=sweep["name"]).first
    row.wait_for()
    close_assistant(page)
    if not page.get_by_text(sweep["names"][0], exact=True).first.is_visible():
        row.get_by_role("button").first.click()
    page.get_by_text(sweep["names"][0], exact=True).first.wait_for()
    for name in sweep["names"]:
        link = page.get_by_role("link", name=name, exact=True)
        row = page.locator(".ag-row").filter(has=link).first
        row.locator("input[type=checkbox]").first.check(force=True)
    take(page, out / "runs.png")
    page.get_by_test_id("runs-compare-button").click()
    compared(page, out)
    page.goto(f"{runs}/{sweep['run']}")
    page.get_by_text("speedup_generation").first.wait_for()
    take(page, out / "sweep.png")
    page.goto(f"{runs}?compareRunsMode=CHART")
    page.get_by_test_id("experiment-view-compare-runs-section-header").first.wait_for()
    take(page, out / "charts.png")


def compared(page: Any, out: Path) -> None:
    """The names of the runs and, below them, the metrics from each of `FIRST_ROWS` on."""
    for section in ("Visualizations", "Parameters"):
        heading(page, section).click()
    names, end = heading(page, "Run details"), heading(page, "Artifacts")
    first = page.get_by_text(next(iter(FIRST_ROWS.values())), exact=True).first
    box = first.evaluate_handle(FIND_BOX)
    for file, metric in FIRST_ROWS.items():
        label = page.get_by_text(metric, exact=True)
        while not label.count():  # rows outside of the box are not on the page
            box.evaluate(SCROLL_ON)
            page.wait_for_timeout(500)
        label.first.evaluate(SCROLL_TO, box)
        for _ in range(2):  # the names' column follows a scroll late
            page.wait_for_timeout(1000)
            box.evaluate("box => { box.scrollTop += 1; }")
        page.wait_for_timeout(1000)
        off = label.first.evaluate(OFFSET, box)
        if abs(off) > OFF_PX:
            sys.exit(f"{file}: MLflow shows {metric} {off:.0f} pixels from its figures")
        names.evaluate(TO_TOP)
        take(page, out / file, between(names, end))


def heading(page: Any, section: str) -> Any:
    exactly = re.compile(rf"^\s*{section}\s*$")
    return page.locator("[class*=collapse-header]", has_text=exactly).first


def between(first: Any, last: Any) -> dict[str, float]:
    """From the top of `first` to the top of `last`, in pixels of the window."""
    top, bottom = first.bounding_box(), last.bounding_box()
    assert top is not None, "the first heading is on the page"
    assert bottom is not None, "the last heading is on the page"
    area = {"x": top["x"] - MARGIN, "y": max(0.0, top["y"] - MARGIN)}
    end = min(bottom["y"], WINDOW["height"])
    return area | {"width": WINDOW["width"] - area["x"], "height": end - area["y"]}


def close_assistant(page: Any) -> None:
    """MLflow opens its assistant beside the runs, once for each new browser."""
    button = page.get_by_role("button", name="Close", exact=True)
    with contextlib.suppress(Exception):  # a browser that has seen it does not show it
        button.first.click(timeout=5000)


def take(page: Any, path: Path, clip: dict[str, float] | None = None) -> None:
    time.sleep(SETTLE_S)
    page.screenshot(path=path, clip=clip)


if __name__ == "__main__":
    main()
