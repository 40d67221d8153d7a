"""Takes the pictures of the console that the docs show, from a demo that runs.

make demo DEMO='--no-browser'          # in one terminal; after some minutes, in another:
make pictures

Those of jobs in their states are of a shop of its own, which it runs itself: `... states` takes
these alone.
"""

import sys
from pathlib import Path

from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).parents[1]))

from codegen.console_states import states_shop
from tests.support.browser import DESKTOP, PHONE, Scheme, browser

PICTURES = Path(__file__).parents[1] / "docs" / "images"
URL = "http://127.0.0.1:8080"
# Figures over time: after a while there are some.
LOOK_MS = 20_000
SHARPNESS = 2
# name, path, scheme, width and height
Taken = tuple[str, str, Scheme, tuple[int, int]]
TAKEN: tuple[Taken, ...] = (
    ("console_overview", "/console/", "light", (1280, 1130)),
    ("console_topic", "/console/topics/clicks", "light", DESKTOP),
    ("console_job", "/console/jobs/revenue_a_minute", "dark", (1280, 410)),
    ("console_aggregate", "/console/aggregates/Stock/lamp?version=9", "light", DESKTOP),
    ("console_phone", "/console/", "dark", PHONE),
)
STATES: tuple[Taken, ...] = (
    ("console_states", "/console/", "light", (1280, 1270)),
    ("console_states_dark", "/console/jobs", "dark", (1280, 430)),
    ("console_states_phone", "/console/", "light", PHONE),
)


def take(found: Browser, url: str, taken: tuple[Taken, ...]) -> None:
    for name, path, scheme, (width, height) in taken:
        context = found.new_context(
            base_url=url,
            color_scheme=scheme,
            viewport={"width": width, "height": height},
            device_scale_factor=SHARPNESS,
        )
        page = context.new_page()
        page.goto(path)
        page.wait_for_timeout(LOOK_MS)
        page.screenshot(path=PICTURES / f"{name}.png")
        print(f"docs/images/{name}.png", flush=True)
        context.close()


def main(url: str) -> None:
    with browser() as found:
        if url != "states":
            take(found, url, TAKEN)
        with states_shop() as states_url:
            take(found, states_url, STATES)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else URL)
