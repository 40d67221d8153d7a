"""`millstream late`: late events in quarantine, how many there were, and their way back.

Events are quarantined in `<topic>.late` by jobs whose topic says so; counts are by job.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.commands.cluster import open_cluster
from millstream.commands.connecting import bootstrap
from millstream.commands.options import BadUsage, Brokers, Json, Yes
from millstream.commands.output import confirm, counted, print_json, print_table, say, text_of
from millstream.commands.plain_help import PlainCommand
from millstream.commands.positions import format_time_ms
from millstream.commands.progress import progress_of

if TYPE_CHECKING:
    from millstream.processing.reading.quarantine import LateEvent

app = typer.Typer(no_args_is_help=True, help="Late events: how many, those kept, their way back.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic that they were late for.")]

VALUE_LENGTH_SHOWN = 60


def _client() -> dict[str, str]:
    from millstream.client_protection import protection_config
    from millstream.settings import ClientSettings, load

    return protection_config(load(ClientSettings))


# --- list, show -------------------------------------------------------------------------------


@app.command("list", cls=PlainCommand)
def list_late(brokers: Brokers = None, json: Json = False) -> None:
    """List how many events were late, by job and source.

    Example: millstream late list
    """
    from millstream.processing.reading.late_events import COUNTS_PREFIX, count_late

    cluster = open_cluster(brokers)
    address = bootstrap(cluster.brokers)
    jobs = [name for name in cluster.topic_names() if name.startswith(COUNTS_PREFIX)]
    found = [
        {"job": job, "source": source} | {fate.value: count for fate, count in sorted(late.items())}
        for job in (name.removeprefix(COUNTS_PREFIX) for name in sorted(jobs))
        for source, late in sorted(count_late(address, _client(), job=job).items())
    ]
    if json:
        print_json(found)
    elif not found:
        say("No event was late so far.")
    else:
        columns = ("job", "source", "dropped", "quarantined", "corrected")
        rows = [[one.get(column, 0) for column in columns] for one in found]
        print_table([column.upper() for column in columns], rows)


@app.command(cls=PlainCommand)
def show(
    topic: Topic,
    reinjected: Annotated[
        bool, typer.Option("--reinjected", help="Show those that were put back, too.")
    ] = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Show the late events of a topic that are in quarantine.

    Example: millstream late show clicks --json
    """
    events = [one for one in _events(topic, brokers) if reinjected or one.reinjected_ms is None]
    if json:
        print_json([_to_json(one) for one in events])
    elif not events:
        say(f"The quarantine of {topic} is empty.")
    else:
        header = ["ID", "WRITTEN", "QUARANTINED", "JOB", "VALUE"]
        print_table(header, [_row(one) for one in events])


def _events(topic: str, brokers: str | None) -> "list[LateEvent]":
    from millstream.processing.reading.reinjection import read_quarantine

    return read_quarantine(bootstrap(open_cluster(brokers).brokers), _client(), topic)


def _row(event: "LateEvent") -> list[object]:
    value = text_of(event.value)
    return [
        event.id,
        format_time_ms(event.written_ms),
        format_time_ms(event.quarantined_ms),
        ", ".join(event.jobs),
        value if len(value) <= VALUE_LENGTH_SHOWN else value[: VALUE_LENGTH_SHOWN - 1] + "…",
    ]


def _to_json(event: "LateEvent") -> dict[str, Any]:
    return {
        "id": event.id,
        "jobs": list(event.jobs),
        "reason": event.reason,
        "written_ms": event.written_ms,
        "quarantined_ms": event.quarantined_ms,
        "reinjected_ms": event.reinjected_ms,
        "key": None if event.key is None else text_of(event.key),
        "value": None if event.value is None else text_of(event.value),
        "headers": {name: text_of(value) for name, value in event.headers},
    }


# --- reinject ---------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def reinject(
    topic: Topic,
    event: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="This event, as `show` shows it. Repeatable."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    yes: Yes = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Put late events back into their topic: each once, however often this is repeated.

    A job judges them again: those that its watermark has passed are late again.

    Example: millstream late reinject clicks --all --yes
    """
    from millstream.processing.reading.quarantine import chosen
    from millstream.processing.reading.reinjection import reinject as put_back

    if bool(event) == everything:
        raise BadUsage("reinject: say which events, with --id ID or --all")
    ids = None if everything else event
    waiting = chosen(_events(topic, brokers), ids)
    if waiting:
        confirm(f"Put {counted(len(waiting), 'event')} back into topic {topic}?", yes=yes)
    address = bootstrap(open_cluster(brokers).brokers)
    with progress_of(len(waiting), "events") as progress:
        done = put_back(address, _client(), topic, ids, on_progress=progress)
    if json:
        print_json([{"id": one} for one in done])
    elif not done:
        say("Nothing to put back.")
    else:
        typer.echo(f"Put {counted(len(done), 'event')} back into topic {topic}")
