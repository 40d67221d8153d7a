"""`millstream demo`: the stage, and a screen that shows what happens on it, until Ctrl-C."""

import contextlib
import os
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from millstream.demo.figures import Figures, opened_figures
from millstream.demo.screen import SAID, Scene, plain_line, screen_lines
from millstream.demo.stage import Stage, StageBroke

LOOK_SECONDS = 1.5
PLAIN_LINE_SECONDS = 5.0

Tell = Callable[[str], None]


class Show:
    """`tell` prints a line that stays; `started` is when the command began."""

    def __init__(self, stage: Stage, figures: Figures, *, tell: Tell, started: float) -> None:
        self._stage, self._figures, self._tell, self._started = stage, figures, tell, started
        self._records: Mapping[str, int] = {}
        self._counted_at = time.monotonic()
        self._before = figures.positions()
        self._is_record_told = self._is_row_told = False

    def look(self) -> Scene:
        """What there is to see now; says once when the first of it was there."""
        self._require_running()
        records, now = self._figures.records(), time.monotonic()
        seconds = max(now - self._counted_at, 1e-3)
        was = self._records or records
        rates = {name: (records.get(name, 0) - was.get(name, 0)) / seconds for name in SAID}
        self._records, self._counted_at = records or self._records, now
        self._tell_firsts(records)
        up, generator = self._stage.up.told, self._stage.generator.told
        return Scene(
            seconds=now - self._started,
            url=up.addresses["console"],
            records=self._records,
            rates=rates,
            headlines=self._figures.headlines(),
            jobs=dict(up.jobs),
            done=dict(generator.done),
        )

    def _tell_firsts(self, records: Mapping[str, int]) -> None:
        seconds = time.monotonic() - self._started
        if not self._is_record_told and any(records.get(name) for name in SAID):
            self._is_record_told = True
            self._tell(f"first figure, records in the log: after {seconds:.1f} s")
        if not self._is_row_told and (moved := self._moved()):
            self._is_row_told = True
            self._tell(f"first new row of a view ({moved}): after {seconds:.1f} s")

    def _moved(self) -> str:
        """A view that is further than when we came: one of a former run does not count."""
        now = self._figures.positions()
        return next((name for name in now if now[name] != self._before.get(name)), "")

    def _require_running(self) -> None:
        for process in (self._stage.up, self._stage.generator):
            if not process.is_running:
                raise StageBroke(process=process.name, reason=process.last_words())


def run_show(
    stage: Stage, *, started: float, seconds: float | None, is_plain: bool, opens_browser: bool
) -> Scene:
    """Until the time is up, or Ctrl-C; the last that was seen."""
    stage.start()
    url = stage.up.told.addresses["console"]
    print_line(f"console on {url}, broker on {stage.up.told.addresses['broker']}")
    if opens_browser and can_open_browser(os.environ):
        webbrowser.open(url)
    with (
        stage.reader() as app,
        opened_figures(app, stage.database) as figures,
        shown(is_plain=is_plain or not sys.stdout.isatty()) as (show_scene, tell),
    ):
        show = Show(stage, figures, tell=tell, started=started)
        scene = show.look()
        while seconds is None or time.monotonic() - started < seconds:
            show_scene(scene)
            time.sleep(LOOK_SECONDS)
            scene = show.look()
        return scene


def can_open_browser(environment: Mapping[str, str]) -> bool:
    """On a machine without a screen, a browser of text would take the terminal."""
    if not sys.platform.startswith("linux"):
        return True
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


@contextlib.contextmanager
def shown(*, is_plain: bool) -> Iterator[tuple[Callable[[Scene], None], Tell]]:
    """How to show a scene, and how to print a line that stays."""
    if is_plain:
        yield PlainLines().show, print_line
        return
    with live_panel("The shop") as (update, tell):
        yield lambda scene: update(screen_lines(scene)), tell


def print_line(text: str) -> None:
    print(text, flush=True)


class PlainLines:
    """A line now and then."""

    def __init__(self) -> None:
        self._due = 0.0

    def show(self, scene: Scene) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + PLAIN_LINE_SECONDS
            print_line(plain_line(scene))


@contextlib.contextmanager
def live_panel(title: str) -> Iterator[tuple[Callable[[list[str]], None], Tell]]:
    """A panel at the foot of the terminal; lines that are printed stay above it."""
    from rich.console import Console
    from rich.live import Live
    from rich.panel import Panel
    from rich.text import Text

    console = Console(highlight=False)

    def panel(lines: list[str]) -> Any:
        return Panel(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), title=title)

    with Live(panel(["..."]), console=console, auto_refresh=False) as live:
        yield lambda lines: live.update(panel(lines), refresh=True), console.print
