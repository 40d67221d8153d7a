"""What the commands print: aligned tables, JSON, counts in words, and questions.

Data goes to stdout, everything else to stderr. No command formats a table by itself.
"""

import json
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer

from millstream.base.diagnostics import say_line
from millstream.base.errors import Rejected
from millstream.commands.options import BadUsage

Handler = Callable[[int, FrameType | None], Any] | signal.Handlers

REPEAT_SECONDS = 0.05
ALARMS = ("ALREADY LOST", "may lose data NOW")


class NotConfirmed(Rejected):
    def __init__(self) -> None:
        super().__init__(
            "Nothing was changed: not confirmed. Pass --yes to go ahead without a question"
        )


class NobodyToAsk(BadUsage):
    def __init__(self, *, question: str) -> None:
        super().__init__(
            f"{question} Nothing was changed: there is no terminal to ask at. Pass --yes to go "
            "ahead without a question"
        )
        self.question = question


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns two spaces apart; numbers to the right, with thousands separated."""
    cells = [list(header)] + [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [
        bool(rows) and all(isinstance(row[i], int | None) for row in rows)
        for i in range(len(header))
    ]
    return "\n".join(_line(row, widths, right) for row in cells)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = (
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(row, widths, right, strict=True)
    )
    return "  ".join(aligned).rstrip()


def text_of(content: bytes | None) -> str:
    """Bytes for reading: what is no text is escaped."""
    return "" if content is None else content.decode("utf-8", "backslashreplace")


def counted(number: int, noun: str) -> str:
    """1 record, 2 records, 1,000 records."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    first, *lines = table(header, rows).split("\n")
    typer.secho(first, bold=True)
    for line in lines:
        alarm = any(words in line for words in ALARMS)
        typer.secho(line, fg=typer.colors.RED if alarm else None)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def say(message: str, *, level: int = logging.INFO) -> None:
    """For the person, not for the pipe."""
    # Not typer.echo: it goes past a live table, which takes what is printed above itself.
    say_line(message, level=level)


def confirm(question: str, *, yes: bool) -> None:
    """Ask at a terminal. Elsewhere nobody is asked: what a pipe happens to have is no answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NobodyToAsk(question=question)
    # Not typer.confirm: it writes a space to stdout, where the data goes.
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):  # Ctrl-D
        say("")
    if answer.strip().lower() not in ("y", "yes"):
        raise NotConfirmed


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM, and a terminal that is closed, end a long command as Ctrl-C does: with its
    clean-up."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, signal.SIGTERM, signal.SIGHUP), _heard_in_finalizers():
        yield


@contextmanager
def _heard_in_finalizers() -> Iterator[None]:
    """An exception in a `__del__` reaches nobody, and so an interrupt that comes just then: it
    comes once more a moment later."""
    former = sys.unraisablehook
    repeats: list[threading.Timer] = []

    def repeat(found: "sys.UnraisableHookArgs") -> None:
        if isinstance(found.exc_value, KeyboardInterrupt):
            repeats.append(threading.Timer(REPEAT_SECONDS, os.kill, (os.getpid(), signal.SIGTERM)))
            repeats[-1].start()
        else:
            former(found)

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = former
        for one in repeats:
            one.cancel()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """For an end that others would be left behind by if it were cut short: it is bounded in time,
    and no signal that asks for the end is heard meanwhile."""
    with _handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def _handled(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def reader_is_gone() -> bool:
    """Whether nobody reads our pipe any more: a write would fail, but there is nothing to write."""
    try:
        number = sys.stdout.fileno()
    except OSError:  # not a file: a test reads it
        return False
    poll = select.poll()
    poll.register(number, 0)  # errors and hang-ups are reported unasked
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def abandon_stdout() -> None:
    """The reader of our pipe is gone: let Python's last flush go nowhere, not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
