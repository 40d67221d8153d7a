"""`millstream events forget` and `consent`: personal data of a subject, made unreadable for good.

Each is a few lines around App. What it does and what it cannot do is in docs/guides/forgetting.md.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.options import Json, Yes
from millstream.commands.output import confirm, counted, print_json, say

if TYPE_CHECKING:
    from millstream.eventsourcing.forgetting import Erasure

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="The Python file that makes the App; FILE:NAME if it makes several."
    ),
]
Subjects = Annotated[
    list[str],
    typer.Argument(metavar="SUBJECT", help="Whose data: the id that its events name. Repeatable."),
]
By = Annotated[
    str | None, typer.Option("--by", metavar="WHO", help="Who wants it; kept in the log.")
]
Why = Annotated[
    str | None, typer.Option("--why", metavar="TEXT", help="The reason; kept in the log for ever.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be forgotten, and change nothing.")
]


def forget(
    file: File,
    subjects: Subjects,
    why: Why = None,
    by: By = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make all personal data of a subject unreadable for good: log, snapshots, views, archives.

    Its key is destroyed; nobody can undo that. Nothing personal is stored for it any more until it
    consents. If it is cut off, run it again.

    Example: millstream events forget shop.py ada --why 'asked by letter' --dry-run
    """
    from millstream.commands.views import opened

    with opened(file) as app:
        found = app.forgetting.look(subjects)
        if app.forgetting.keyring.is_unfinished:
            say("An erasure was cut off before its end: the next one finishes it.")
        if dry_run:
            _print(found, json=json)
            return
        _ask(found, yes=yes)
        with _progress() as progress:
            done = app.forgetting.forget(subjects, by=by, why=why, progress=progress)
    _print(done, json=json)


def consent(
    file: File,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Whose data.")],
    why: Why = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Let personal data of a forgotten subject be stored again; what was forgotten stays so.

    Example: millstream events consent shop.py ada --why 'signed up again'
    """
    from millstream.commands.views import opened

    with opened(file) as app:
        was_forgotten = app.consent(subject, why=why, by=by)
    if json:
        print_json({"was_forgotten": was_forgotten})
    elif was_forgotten:
        say("From now on its data is stored again, under a new key.")
    else:
        say("It was not forgotten: nothing has changed.")


def _ask(found: "list[Erasure]", *, yes: bool) -> None:
    events = sum(one.events for one in found)
    for one in found:
        if one.at is None and not one.had_key:
            say(f"Nothing was ever sealed for one of them ({one.subject}). Is its name right?")
    confirm(
        f"Forget {counted(len(found), 'subject')} for good, with personal data in "
        f"{counted(events, 'event')}?",
        yes=yes,
    )


@contextmanager
def _progress() -> "Iterator[Callable[[int, int], None] | None]":
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (MofNCompleteColumn(), TextColumn("keys wrapped anew"), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _print(found: "list[Erasure]", *, json: bool) -> None:
    if json:
        print_json([one.to_dict() for one in found])
    else:
        typer.echo("\n\n".join(str(one) for one in found))
