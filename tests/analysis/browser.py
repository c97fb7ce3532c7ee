"""A real browser for tests of pages: Debian's Chromium, driven by Playwright, without a network."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, sync_playwright

REQUIRED = "SPECRL_REQUIRE_BROWSER"
"""Set in CI: there these tests may not be skipped."""

MISSING = "no Chromium is on this machine; apt-get install chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic", "--disable-gpu",
)  # fmt: skip
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 800}


@dataclass
class Opened:
    """A page that was opened from disk: what it said, and what it asked for besides itself."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def chromium() -> str:
    """Skips the test without one; fails it where `REQUIRED` is set."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None and os.environ.get(REQUIRED):
        pytest.fail(f"{REQUIRED} is set and {MISSING}")
    if found is None:
        pytest.skip(MISSING)
    return found


@contextmanager
def opened(
    path: Path,
    scheme: Literal["light", "dark"] = "light",
    viewport: dict[str, int] | None = None,
) -> Iterator[Opened]:
    """`path` as file:// in a browser that is offline."""
    executable = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(QUIET))
        context = browser.new_context(
            offline=True,
            color_scheme=scheme,
            viewport=viewport or WIDE,  # type: ignore[arg-type]  # a TypedDict there
        )
        seen = Opened(context.new_page())
        seen.page.on("console", lambda message: seen.console.append(message.text))
        seen.page.on("pageerror", lambda error: seen.console.append(str(error)))
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(path.as_uri())
        yield seen
        browser.close()
