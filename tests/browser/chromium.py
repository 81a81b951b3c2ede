"""Chromium without a window, for the tests of pages."""

import shutil
from pathlib import Path
from typing import Final

from tests.places import execute

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
QUIET: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--enable-logging=stderr", "--virtual-time-budget=30000"),
)
DARK: Final = "--blink-settings=preferredColorScheme=0"


def chromium(tmp_path: Path, *arguments: str) -> tuple[str, list[str]]:
    """What it prints, and what the console of the page got."""
    browser = next(path for name in BROWSERS if (path := shutil.which(name)))
    place = f"--user-data-dir={tmp_path / 'user'}"
    done = execute(browser, *QUIET, place, *arguments, timeout_s=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
