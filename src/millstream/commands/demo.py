"""`millstream demo`: a web shop in motion; `millstream demo chaos`: the same, while parts die."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.http_terms import require_web
from millstream.commands.output import counted, say, terminate_as_interrupt, uninterrupted
from millstream.commands.plain_help import PlainCommand
from millstream.commands.up import require_spark

if TYPE_CHECKING:
    from millstream.demo.stage import Stage

RATE = 20.0
ROUNDS = 3

Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIRECTORY",
        help="Where all of it is kept. The next demo goes on there; remove it to start over.",
    ),
]
Rate = Annotated[
    float,
    typer.Option("--rate", metavar="N", min=0.1, max=10_000, help="What customers do a second."),
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="Another number, another course of events.")
]
Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Where the console listens.")
]
BrokerListen = Annotated[
    str, typer.Option("--broker-listen", metavar="HOST:PORT", help="Where the broker listens.")
]
Plain = Annotated[
    bool, typer.Option("--plain", help="Lines instead of a panel; so it is without a terminal.")
]
NoBrowser = Annotated[
    bool, typer.Option("--no-browser", help="Do not open the console in a browser.")
]
PLACE = Path("shop-demo")
LISTEN, BROKER_LISTEN = "127.0.0.1:8080", "127.0.0.1:9092"

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def demo(
    context: typer.Context,
    rate: Rate = RATE,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="N", min=1, help="End after so long, not by Ctrl-C."),
    ] = None,
    data: Data = PLACE,
    seed: Seed = 1,
    listen: Listen = LISTEN,
    broker_listen: BrokerListen = BROKER_LISTEN,
    no_browser: NoBrowser = False,
    plain: Plain = False,
) -> None:
    """Show a web shop in motion, until Ctrl-C.

    A PostgreSQL, events, a capture, jobs on Spark, an event-sourced stock, views, a console. What
    is shown is real, and is kept: the next demo goes on where this one ended. Its application is
    millstream/demo/shop.py. `millstream demo chaos` breaks it.

    Example: millstream demo --rate 50 --seconds 60 --no-browser
    """
    if context.invoked_subcommand is not None:
        return
    from millstream.demo.show import run_show

    started = time.monotonic()
    with _staged(data, rate, seed, listen, broker_listen) as stage:
        run_show(
            stage, started=started, seconds=seconds, is_plain=plain, opens_browser=not no_browser
        )


@app.command("chaos", cls=PlainCommand)
def chaos(
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=1, max=10_000, help="How many deaths.")
    ] = ROUNDS,
    rate: Rate = RATE,
    data: Data = PLACE,
    seed: Seed = 1,
    listen: Listen = LISTEN,
    broker_listen: BrokerListen = BROKER_LISTEN,
    plain: Plain = False,
) -> None:
    """Kill the broker, the jobs and the capture in turn, and compare totals after each death.

    The shop is busy meanwhile. Ends with 1 if what is in the views does not come to what is in the
    database.

    Example: millstream demo chaos --rounds 10 --plain
    """
    from millstream.demo.chaos import run_chaos

    with _staged(data, rate, seed, listen, broker_listen) as stage:
        done = run_chaos(stage, rounds=rounds, is_plain=plain or not sys.stdout.isatty())
        print(f"{counted(len(done), 'round')}, totals equal after each", flush=True)


@contextlib.contextmanager
def _staged(
    data: Path, rate: float, seed: int, listen: str, broker_listen: str
) -> "Iterator[Stage]":
    """All processes, while this is open. Ctrl-C ends it as the time does: cleanly."""
    require_spark()
    require_web("demo")
    from millstream.demo.stage import Stage, Terms

    terms = Terms(data=data, rate=rate, seed=seed, listen=listen, broker_listen=broker_listen)
    stage = Stage(terms, tell=say)
    try:
        with contextlib.suppress(KeyboardInterrupt), terminate_as_interrupt():
            yield stage
    finally:
        with uninterrupted():
            say(f"stopping; all is kept in {data}: the next demo goes on there")
            stage.close()
