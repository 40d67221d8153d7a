"""How `millstream capture run` shows its captures: a table with bars of loads that refreshes at a
terminal, lines elsewhere."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from millstream.commands.capture_lines import (
    HEADER,
    Facts,
    line_of,
    load_lines,
    row_of,
    troubles,
)
from millstream.commands.output import say, table

Look = Callable[[Sequence[Facts]], None]

LINE_SECONDS = 10.0


@contextmanager
def shown_captures(*, as_json: bool) -> Iterator[Look]:
    """Yields what is told of the captures, as often as one likes."""
    if not sys.stderr.isatty() or as_json:
        yield CaptureLines(as_json=as_json).look
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    def drawn(found: Sequence[Facts]) -> Group:
        """Rows are cut where the terminal ends; what is wrong is told to its end."""
        rows = Text("\n".join(rows_and_bars(found)), no_wrap=True, overflow="ellipsis")
        return Group(rows, *map(Text, troubles(found)))

    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        yield lambda found: live.update(drawn(found), refresh=True)


def rows_and_bars(captures: Sequence[Facts]) -> list[str]:
    shown = table(HEADER, [row_of(one) for one in captures])
    return [shown, *(line for one in captures for line in load_lines(one))]


class CaptureLines:
    """One line for a capture when its state changes, and every while when it got on."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._told: dict[str, tuple[Any, ...]] = {}
        self._due = 0.0

    def look(self, captures: Sequence[Facts]) -> None:
        is_due = time.monotonic() >= self._due
        for one in captures:
            news = (one["state"], one["error"], one["changes"], one["rows_loaded"])
            told = self._told.get(one["capture"])
            if told is None or told[:2] != news[:2] or (is_due and told != news):
                self._told[one["capture"]] = news
                self._tell(one)
        if is_due:
            self._due = time.monotonic() + LINE_SECONDS

    def _tell(self, facts: Facts) -> None:
        if self._as_json:
            typer.echo(json.dumps(facts, ensure_ascii=False))
        else:
            say(line_of(facts))
