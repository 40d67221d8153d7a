"""Debian's Chromium, driven by Playwright, for pages of the console. Installed where it may be.

Playwright's own browser is not used: it would be downloaded beside the system's.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.maven_jars import apt_install

PACKAGE = "chromium"
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP, PHONE = (1280, 800), (390, 844)
Scheme = Literal["light", "dark"]
# On a machine that does other things, too.
WITHIN_MS = 60_000


class NoBrowserError(RuntimeError):
    """There is none, and we may not install one."""

    def __init__(self) -> None:
        super().__init__(f"no {CHROMIUM}: install Debian's package {PACKAGE}")


@functools.cache
def chromium() -> Path:
    if not CHROMIUM.exists():
        apt_install(PACKAGE)
    if not CHROMIUM.exists():
        raise NoBrowserError
    return CHROMIUM


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        try:
            yield found
        finally:
            found.close()


@contextmanager
def visited(
    found: Browser,
    url: str,
    *,
    scheme: Scheme = "light",
    size: tuple[int, int] = DESKTOP,
    expected: str | None = None,
) -> Iterator[Page]:
    """A page of its own, without cookies of others. It must not complain, but of what is expected:
    of an answer that is an error a browser tells."""
    context = found.new_context(
        base_url=url,
        color_scheme=scheme,
        viewport={"width": size[0], "height": size[1]},
        reduced_motion="reduce",
    )
    context.set_default_timeout(WITHIN_MS)
    complaints: list[str] = []
    page = context.new_page()
    page.on("console", lambda told: complaints.append(f"{told.type}: {told.text}"))
    page.on("pageerror", lambda error: complaints.append(f"{error}"))
    try:
        yield page
        unexpected = [one for one in complaints if expected is None or expected not in one]
        assert unexpected == [], unexpected
    finally:
        context.close()


def faults_of(page: Page) -> list[str]:
    """What axe-core finds that shuts people out."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def scrolls_sideways(page: Page) -> bool:
    wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    return bool(wide)
