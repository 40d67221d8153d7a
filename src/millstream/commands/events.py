"""`millstream events`: the streams of an application's events, looked at, checked and corrected.

Reads the topic as it is, without the application's classes: a name is enough, its file is taken
too. Only `shun` needs the file, because what an event's absence does to a state is known there.
"""

import json as json_text
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.base.errors import Corrupt, Rejected
from millstream.base.near_names import did_you_mean
from millstream.commands.cluster import open_cluster
from millstream.commands.connecting import client_config
from millstream.commands.options import Brokers, Json, Yes
from millstream.commands.output import confirm, counted, print_json, print_table, say
from millstream.commands.plain_help import PlainCommand

if TYPE_CHECKING:
    from millstream.eventsourcing.chain_walk import Finding
    from millstream.eventsourcing.event_store import EventStore
    from millstream.eventsourcing.query import Query
    from millstream.eventsourcing.stored_event import StoredEvent

app = typer.Typer(no_args_is_help=True, help="Events of an application: who did what, and why.")

Topic = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        help="The application's name or topic: shop, shop.events. Or its file: shop.py, which "
        "knows its broker and data.",
    ),
]
Stream = Annotated[
    str, typer.Argument(metavar="STREAM", help="A stream, as `list` shows it: Account:alice.")
]
EVENTS_SUFFIX = ".events"
DATA_LENGTH_SHOWN = 60
SHUNNED = "$shunned"


class NoEvents(Rejected):
    def __init__(self, *, app: str, hint: str) -> None:
        super().__init__(
            f"There is no topic {app} or {app}{EVENTS_SUFFIX}. {hint or 'An application makes it'}"
        )
        self.app = app


class NoSuchStream(Rejected):
    def __init__(self, *, topic: str, stream: str) -> None:
        super().__init__(
            f"{topic} has no stream {stream}. `millstream events list {topic}` shows those that "
            "there are"
        )
        self.topic, self.stream = topic, stream


class ChainsBroken(Corrupt):
    def __init__(self, *, topic: str, findings: int) -> None:
        super().__init__(
            f"{topic} is not what was written: {counted(findings, 'finding')}. Compare it with a "
            "backup"
        )
        self.topic, self.findings = topic, findings


@contextmanager
def opened(app: str, brokers: str | None) -> "Iterator[EventStore]":
    """To read; a topic that is not there is not made. `app`: a name, a topic, or a file."""
    if not is_file(app):
        with opened_topic(app, client_config(open_cluster(brokers).brokers)) as store:
            yield store
        return
    from millstream.commands.views import opened as opened_app

    with opened_app(app) as found:
        config = (
            found.client_config if brokers is None else client_config(open_cluster(brokers).brokers)
        )
        with opened_topic(found.name, config) as store:
            yield store


def is_file(app: str) -> bool:
    """As commands are given the file of an App: shop.py, or shop.py:app."""
    return app.partition(":")[0].endswith(".py")


@contextmanager
def opened_topic(app: str, config: "Mapping[str, Any]") -> "Iterator[EventStore]":
    from millstream.aggregates import library_missing
    from millstream.base.log_clients import Topics

    try:
        from millstream.eventsourcing.event_store import EventStore
    except ModuleNotFoundError as error:
        raise library_missing(error) from None
    topics = Topics(config).partitions()
    found = next((name for name in (app, app + EVENTS_SUFFIX) if name in topics), None)
    if found is None:
        known = [name.removesuffix(EVENTS_SUFFIX) for name in topics if EVENTS_SUFFIX in name]
        raise NoEvents(app=app, hint=did_you_mean(app, known))
    with closing(EventStore(config, found)) as store:
        yield store


# --- list, show -------------------------------------------------------------------------------


@app.command("list", cls=PlainCommand)
def list_streams(
    topic: Topic,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Only streams that begin so: Account:")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 1_000,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """List streams with their versions.

    Example: millstream events list shop --prefix Account:
    """
    with opened(topic, brokers) as store:
        found = sorted(islice(store.streams(prefix), limit + 1))
    shown = found[:limit]
    if json:
        print_json([{"stream": stream, "version": version} for stream, version in shown])
    elif not shown:
        say(f"{store.topic} has no streams{f' that begin with {prefix}' if prefix else ''}.")
    else:
        print_table(["STREAM", "VERSION"], shown)
    if len(found) > limit:
        say(f"There are more than {limit:,}: say which with --prefix, or how many with --limit.")


@app.command(cls=PlainCommand)
def show(
    topic: Topic,
    stream: Stream,
    after: Annotated[int, typer.Option(min=0, metavar="V", help="Only behind this version.")] = 0,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Show the history of a stream: what happened, when, by whom and why.

    Example: millstream events show shop Account:alice
    """
    with opened(topic, brokers) as store:
        events = list(store.read(stream))
        if not events:
            raise NoSuchStream(topic=store.topic, stream=stream)
    shunned = {_data(one).get("event") for one in events if one.type == SHUNNED}
    chosen = [one for one in events if one.version > after]
    if json:
        print_json([_to_json(one) | {"is_shunned": one.id in shunned} for one in chosen])
        return
    header = ["VERSION", "AT", "TYPE", "DATA", "BY", "WHY", "ID"]
    print_table(header, [_row(one, one.id in shunned) for one in chosen])


def _row(event: "StoredEvent", is_shunned: bool) -> list[object]:
    type = f"({event.type}, shunned)" if is_shunned else event.type
    at = event.at.isoformat(" ", "milliseconds")
    meta = event.meta
    return [event.version, at, type, _short(event), meta.get("by"), meta.get("why"), event.id]


def _short(event: "StoredEvent") -> str:
    text = bytes(event.data).decode()
    return text if len(text) <= DATA_LENGTH_SHOWN else text[: DATA_LENGTH_SHOWN - 1] + "…"


def _data(event: "StoredEvent") -> dict[str, Any]:
    found: dict[str, Any] = json_text.loads(bytes(event.data))
    return found


def _to_json(event: "StoredEvent") -> dict[str, Any]:
    command = event.command
    return {
        "seq": event.seq,
        "stream": event.stream,
        "version": event.version,
        "type": event.type,
        "type_version": event.type_version,
        "id": event.id,
        "at": event.at.isoformat(),
        "data": _data(event),
        "tags": list(event.tags),
        "command": None if command is None else {"id": command.id, "print": command.print},
        "meta": dict(event.meta),
        "hash": event.hash,
    }


# --- verify -----------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def verify(
    topic: Topic,
    stream: Annotated[
        str | None, typer.Option(metavar="STREAM", help="Only this one; else all.")
    ] = None,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Check that no event was changed, left out or put in.

    Every event has a hash over its bytes and the event before it in its stream. What was cut off at
    the end of a stream does not show.

    Example: millstream events verify shop --stream Account:alice
    """
    with opened(topic, brokers) as store:
        findings = list(store.verify(stream))
        name = store.topic
    if json:
        print_json([_finding_to_json(one) for one in findings])
    else:
        for one in findings:
            typer.secho(str(one), fg=typer.colors.RED)
    if findings:
        raise ChainsBroken(topic=name, findings=len(findings))
    if not json:
        typer.echo(f"{stream or name} is as it was written")


def _finding_to_json(finding: "Finding") -> dict[str, Any]:
    return {
        "partition": finding.partition,
        "offset": finding.offset,
        "stream": finding.stream,
        "version": finding.version,
        "reason": finding.reason,
    }


# --- follow -----------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def follow(
    topic: Topic,
    type: Annotated[
        list[str], typer.Option(metavar="TYPE", help="Only events of this type. Repeatable.")
    ] = [],  # noqa: B006 - typer copies it
    tag: Annotated[
        list[str], typer.Option(metavar="TAG", help="Only events that have it. Repeatable.")
    ] = [],  # noqa: B006 - the same
    after: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Go on behind this place, as the end tells it."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End at what is there now, instead of waiting for more.")
    ] = False,
    brokers: Brokers = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print events as they come, until Ctrl-C.

    Example: millstream events follow shop --type Deposited
    """
    from millstream.eventsourcing.subscription import Token

    token = None if after is None else Token.read(after)
    with (
        opened(topic, brokers) as store,
        store.subscribe(after=token, where=_query(type, tag), follow=not once) as found,
    ):
        try:
            for event in found:
                _print(event, json)
        finally:
            say(f"--after {found.token}")


def _query(types: list[str], tags: list[str]) -> "Query":
    from millstream.eventsourcing.query import Query

    return Query(types=types, tags=tags)


def _print(event: "StoredEvent", json: bool) -> None:
    if json:
        typer.echo(json_text.dumps(_to_json(event), ensure_ascii=False))
        return
    by = f"  by {event.meta['by']}" if event.meta.get("by") else ""
    at = event.at.isoformat(" ", "milliseconds")
    typer.echo(f"{at}  {event.stream} {event.version}  {event.type} {_short(event)}{by}")


# --- shun -------------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def shun(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The Python file that makes the App; FILE:NAME if it makes several.",
        ),
    ],
    stream: Stream,
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="The id of the event, as `show` has it.")
    ],
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason, which is kept.")],
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who decided it.")] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Exclude an event from the state of its stream.

    It stays in the history, marked. That it is shunned is an event itself.

    Example: millstream events shun bank.py Account:alice EVENT --why 'a zero too many'
    """
    from millstream.commands.views import opened as opened_app

    with opened_app(file) as found:
        all, id = found.events.of_stream(stream)
        confirm(f"Shun event {event} of {stream}? It cannot be taken back.", yes=yes)
        receipt = all[id].shun(event, why=why, by=by)
    if json:
        print_json({"stream": stream, "version": receipt.version, "events": list(receipt.events)})
    elif receipt.events:
        typer.echo(f"{stream} is at version {receipt.version}, without event {event}")
    else:
        say(f"Event {event} was shunned already.")
