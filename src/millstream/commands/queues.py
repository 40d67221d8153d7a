"""`millstream queues`: list, show, put, dead letters and their way back.

A queue here is what `app.queue(name)` makes: a topic, its dead-letter topic, and a share group.
"""

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from millstream.base.errors import Rejected
from millstream.commands.cluster import open_cluster
from millstream.commands.connecting import client_config
from millstream.commands.options import BadUsage, Brokers, Json, Yes
from millstream.commands.output import confirm, counted, print_json, print_table, say, text_of
from millstream.commands.plain_help import PlainCommand
from millstream.commands.positions import format_time_ms

if TYPE_CHECKING:
    from millstream.queues.access import Access
    from millstream.queues.inspection import QueueSeen
    from millstream.queues.letters import DeadLetter, Death
    from millstream.queues.queue import Queue

app = typer.Typer(no_args_is_help=True, help="Work queues: what waits, and what was given up.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]

T = TypeVar("T")

VALUE_LENGTH_SHOWN = 60


class QueueNotFound(Rejected):
    def __init__(self, *, queue: str) -> None:
        super().__init__(
            f"Queue {queue} does not exist. `millstream queues list` shows those that do"
        )
        self.queue = queue


def _config(brokers: str | None) -> dict[str, Any]:
    return client_config(open_cluster(brokers).brokers)


def _access(config: dict[str, Any]) -> "Access":
    from millstream.queues.access import access_from

    return access_from(config)


def _run(question: "Coroutine[Any, Any, T]") -> T:
    import asyncio

    return asyncio.run(question)


def _open(name: str, config: dict[str, Any]) -> "Queue":
    """A queue that exists: nothing is set up or changed."""
    from millstream.queues.queue import Queue

    return Queue(name, config, values="bytes", set_up=False)


# --- list, show -------------------------------------------------------------------------------


@app.command("list", cls=PlainCommand)
def list_queues(brokers: Brokers = None, json: Json = False) -> None:
    """List queues with their workers and what waits in them.

    Example: millstream queues list
    """
    from millstream.queues.inspection import queue_names, see_queue

    access = _access(_config(brokers))
    names = _run(queue_names(access))
    seen = [_run(see_queue(access, name)) for name in names]
    found = [one for one in seen if one is not None]
    if json:
        print_json([_to_json(one) for one in found])
    elif not found:
        say("No queues yet. An application makes one with app.queue(NAME).")
    else:
        rows = [[one.name, one.state, len(one.workers), one.waiting] for one in found]
        print_table(["QUEUE", "STATE", "WORKERS", "WAITING"], rows)


@app.command(cls=PlainCommand)
def show(queue: QueueName, brokers: Brokers = None, json: Json = False) -> None:
    """Show a queue: its workers, what waits in each partition, and its dead letters.

    Example: millstream queues show mails
    """
    config = _config(brokers)
    seen = _require(config, queue)
    letters = _dead(queue, config)
    if json:
        print_json(_to_json(seen) | {"dead": len(letters)})
        return
    typer.secho(f"Queue {queue}: {seen.state}, {counted(len(letters), 'dead letter')}", bold=True)
    typer.echo("")
    rows = [[one.partition, one.start, one.waiting] for one in seen.backlog]
    print_table(["PARTITION", "DONE BEFORE", "WAITING"], rows)
    if seen.workers:
        typer.echo("")
        workers = [[one.id, one.host, one.partitions] for one in seen.workers]
        print_table(["WORKER", "HOST", "PARTITIONS"], workers)


def _require(config: dict[str, Any], queue: str) -> "QueueSeen":
    from millstream.queues.inspection import see_queue

    seen = _run(see_queue(_access(config), queue))
    if seen is None:
        raise QueueNotFound(queue=queue)
    return seen


def _to_json(seen: "QueueSeen") -> dict[str, Any]:
    return {
        "queue": seen.name,
        "state": seen.state,
        "waiting": seen.waiting,
        "workers": [
            {"worker": one.id, "host": one.host, "partitions": one.partitions}
            for one in seen.workers
        ],
        "partitions": [
            {"partition": one.partition, "start": one.start, "waiting": one.waiting}
            for one in seen.backlog
        ],
    }


# --- put --------------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def put(
    queue: QueueName,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="JSON. Without it, one job per line of stdin."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Jobs of one key lie in one partition.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Take values as they are, for a queue of text.")
    ] = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Put jobs into a queue; a queue that does not exist is made.

    Example: millstream queues put mails '{"to": "ada@example.org"}'
    """
    from millstream.queues.queue import Queue
    from millstream.queues.values import value_from_bytes

    given = values or [line.rstrip("\n") for line in sys.stdin]
    jobs = given if text else [value_from_bytes(one.encode(), "json") for one in given]
    with Queue(queue, _config(brokers), values="text" if text else "json") as opened:
        receipts = opened.put_many(jobs, key=key)
    if json:
        print_json([{"partition": one.partition, "offset": one.offset} for one in receipts])
    else:
        typer.echo(f"Put {counted(len(receipts), 'job')} into queue {queue}")


# --- dead letters -----------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def dead(
    queue: QueueName,
    redriven: Annotated[
        bool, typer.Option("--redriven", help="Show those that were put back, too.")
    ] = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """List a queue's dead letters: jobs that were rejected, or failed too often.

    Example: millstream queues dead mails --json
    """
    letters = _dead(queue, _config(brokers), redriven=redriven)
    if json:
        print_json([_letter_to_json(one) for one in letters])
    elif not letters:
        say(f"Queue {queue} has no dead letters.")
    else:
        header = ["ID", "DIED", "DELIVERIES", "DEATHS", "REASON", "VALUE"]
        print_table(header, [_letter_row(one) for one in letters])


def _dead(queue: str, config: dict[str, Any], *, redriven: bool = False) -> "list[DeadLetter]":
    from millstream.queues.redrive import NoDeadLetterTopic

    try:
        letters = _open(queue, config).dead_letters()
    except NoDeadLetterTopic:
        raise QueueNotFound(queue=queue) from None
    return [one for one in letters if redriven or one.redriven_ms is None]


def _letter_row(letter: "DeadLetter") -> list[object]:
    value = text_of(letter.raw_value)
    return [
        letter.id,
        format_time_ms(letter.died_ms),
        letter.death.deliveries,
        len(letter.history) + 1,
        letter.death.reason.replace("\n", " "),
        value if len(value) <= VALUE_LENGTH_SHOWN else value[: VALUE_LENGTH_SHOWN - 1] + "…",
    ]


def _letter_to_json(letter: "DeadLetter") -> dict[str, Any]:
    return {
        "id": letter.id,
        "died_ms": letter.died_ms,
        "redriven_ms": letter.redriven_ms,
        "copies": letter.copies,
        "groups": list(letter.groups),
        "key": None if letter.key is None else text_of(letter.key),
        "value": None if letter.raw_value is None else text_of(letter.raw_value),
        "headers": {name: text_of(value) for name, value in letter.headers},
        **_death_to_json(letter.death),
        "history": [{"id": one.id, **_death_to_json(one)} for one in letter.history],
    }


def _death_to_json(death: "Death") -> dict[str, Any]:
    return {
        "reason": death.reason,
        "deliveries": death.deliveries,
        "worker": death.member,
        "put_ms": death.put_ms,
    }


@app.command(cls=PlainCommand)
def redrive(
    queue: QueueName,
    letter: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="This letter, as `dead` shows it. Repeatable."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    yes: Yes = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Put dead letters back into their queue: each once, however often this is repeated.

    Example: millstream queues redrive mails --all --yes
    """
    if bool(letter) == everything:
        raise BadUsage("redrive: say which letters, with --id ID or --all")
    config = _config(brokers)
    waiting = [one for one in _dead(queue, config) if everything or one.id in (letter or ())]
    if waiting:
        confirm(f"Put {counted(len(waiting), 'job')} back into queue {queue}?", yes=yes)
    done = _open(queue, config).redrive(None if everything else letter)
    if json:
        print_json([{"id": one} for one in done])
    elif not done:
        say("Nothing to put back.")
    else:
        typer.echo(f"Put {counted(len(done), 'job')} back into queue {queue}")
