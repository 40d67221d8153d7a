"""`millstream capture`: databases as streams: add, watch, pause, reload, drop, check and run.

Wishes are written into the topic `_captures`, and taken up by whoever runs the capture, within
about a second: `millstream capture run`, or an application (`millstream run`).
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.base.errors import Rejected
from millstream.base.quantity import parse_size
from millstream.commands.options import BadOption, BadUsage, Brokers, Json, Yes
from millstream.commands.output import (
    confirm,
    counted,
    print_json,
    print_table,
    say,
    terminate_as_interrupt,
)
from millstream.commands.plain_help import PlainCommand

if TYPE_CHECKING:
    from millstream.capture.approval import Approval
    from millstream.capture.approved_captures import ApprovedCaptures
    from millstream.capture.control import CaptureControl
    from millstream.capture.definition import CaptureDefinition
    from millstream.capture.position_record import CaptureRecords
    from millstream.capture.runner import CaptureRunner
    from millstream.capture.source import Finding
    from millstream.queues.broker_health import BrokerHealth, FollowedHealth

app = typer.Typer(no_args_is_help=True, help="Captures: changes of databases, as topics.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a capture.")]
Tables = Annotated[
    list[str],
    typer.Option(
        "--table",
        metavar="TABLE",
        help="A table to capture, as the database names it: orders, or sales.orders. Repeatable.",
    ),
]
Mode = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="How changes are found: log (the database's own), or triggers where that is not "
        "allowed.",
    ),
]
# Who runs a capture looks for wishes every second.
HEARD_SECONDS_MAX = 4.0
LOOK_SECONDS = 0.5


class CheckFailed(Rejected):
    def __init__(self, *, missing: int) -> None:
        super().__init__(
            f"The database lacks {counted(missing, 'thing')} that capturing needs: do what is said "
            "above, and check again"
        )
        self.missing = missing


# --- add, check ---------------------------------------------------------------------------------


@app.command("add", cls=PlainCommand)
def add(
    name: Name,
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="The database, such as 'postgresql://mill:${SHOP_PASSWORD}@host/shop': a password "
            "is a variable of the environment. Without it, tables are added to a capture that is "
            "there.",
        ),
    ] = None,
    table: Tables = [],  # noqa: B006 - typer copies it
    mode: Mode = "log",
    outbox: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="A table of these whose rows become events on the topics that they name, and are "
            "deleted.",
        ),
    ] = None,
    load: Annotated[
        bool,
        typer.Option(
            "--load/--no-load", help="Whether rows that are there already are captured too."
        ),
    ] = True,
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of the topics that are made; else the broker's default."),
    ] = None,
    boundaries: Annotated[
        bool,
        typer.Option(
            "--boundaries/--no-boundaries",
            help="Whether the topic NAME.transactions tells where each transaction begins and "
            "ends: two more records for each.",
        ),
    ] = True,
    encoding: Annotated[
        str, typer.Option(metavar="FORM", help="Of the records: json or avro.")
    ] = "json",
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT", help="Format of the records: millstream or debezium (PostgreSQL)."
        ),
    ] = "millstream",
    time_mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="time.precision.mode of --format debezium: adaptive, adaptive_time_microseconds, "
            "connect, isostring, microseconds or nanoseconds.",
        ),
    ] = "adaptive",
    decimal_mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="decimal.handling.mode of --format debezium: precise, double or string.",
        ),
    ] = "precise",
    schemas: Annotated[
        bool,
        typer.Option(
            "--schemas/--no-schemas",
            help="Write a schema with each key and value of --format debezium.",
        ),
    ] = False,
    truncates: Annotated[
        bool,
        typer.Option(
            "--truncates/--no-truncates",
            help="Write truncates (op t) with --format debezium, not only the deletes of the rows.",
        ),
    ] = False,
    retained_max: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="How much of its log the database may keep for this capture, such as 10GiB; you "
            "are warned from half of it.",
        ),
    ] = None,
    at_retained_max: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What is done then: warn; stop; or drop what makes the database keep its log, "
            "after which all is loaded anew.",
        ),
    ] = "warn",
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Do not ask the database whether it can be done.")
    ] = False,
    brokers: Brokers = None,
) -> None:
    """Add a capture of a database, or more tables to one that is there.

    Example: millstream capture add shop 'postgresql://mill:${SHOP_PASSWORD}@db/shop' --table orders
    """
    if not table:
        raise BadUsage("name at least one table to capture: --table orders")
    control = _control(brokers)
    if url is None:
        if not unchecked:
            _require_tables(control, name, table)
        control.add_tables(name, table)
        say(f"capture {name} has {', '.join(table)} too: whoever runs it loads them now")
        return
    from millstream.capture.definition import (
        CaptureDefinition,
        absolute_url,
        require_no_password,
        shown_url,
    )

    given, url = url, absolute_url(url, os.getcwd())
    require_no_password(name, url)
    definition = CaptureDefinition(
        name=name,
        url=url,
        tables=tuple(table),
        mode=mode,  # type: ignore[arg-type]  # checked there
        outbox=outbox,
        load="all" if load else "none",
        partitions=partitions,
        has_boundaries=boundaries,
        encoding=encoding,  # type: ignore[arg-type]  # checked there
        format=format,  # type: ignore[arg-type]  # checked there
        time_mode=time_mode,
        decimal_mode=decimal_mode,
        has_schemas=schemas,
        has_truncates=truncates,
        retained_bytes_max=_size(retained_max),
        at_retained_max=at_retained_max,  # type: ignore[arg-type]  # checked there
    )
    if not unchecked:
        _require_ready(definition)
    before = control.captures().get(name)
    control.add(definition)
    _approve(control, definition)
    if before is not None and before.definition and before.definition.url != url:
        was = shown_url(before.definition.url)
        say(f"its database was {was}: what is in its topics is of that one", level=logging.WARNING)
    if definition.url != given:
        say(f"its database is kept as {definition.url}, wherever it is run")
    say(f"capture {name} is there: `millstream capture run {name}` runs it")


def _size(given: str | None) -> int | None:
    try:
        return None if given is None else parse_size(given)
    except ValueError:
        allowed = "a size such as 10GiB"
        raise BadOption(option="--retained-max", value=str(given), allowed=allowed) from None


@app.command("check", cls=PlainCommand)
def check(
    place: Annotated[
        str, typer.Argument(metavar="URL|NAME", help="A database, or a capture that is there.")
    ],
    table: Tables = [],  # noqa: B006 - typer copies it
    mode: Mode = "log",
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Say what a database lacks before it can be captured, and what mends it. Changes nothing.

    Example: millstream capture check 'postgresql://mill:${SHOP_PASSWORD}@db/shop' --table orders
    """
    definition = _definition_of(place, table, mode, brokers)  # given, or approved
    findings = _findings(definition)
    if json:
        print_json([_finding(one) for one in findings])
    else:
        from millstream.commands.capture_lines import finding_lines

        for line in finding_lines(findings):
            typer.echo(line)
    _require_none_missing(findings)
    say("It can be captured")


def _definition_of(
    place: str, tables: list[str], mode: str, brokers: str | None
) -> "CaptureDefinition":
    if "://" not in place:
        return _approved_definition(_control(brokers), place)
    if not tables:
        raise BadUsage("say which tables are to be captured: --table orders")
    from millstream.capture.definition import CaptureDefinition

    return CaptureDefinition(
        name="check",
        url=place,
        tables=tuple(tables),
        mode=mode,  # type: ignore[arg-type]  # checked there
    )


def _require_ready(definition: "CaptureDefinition") -> None:
    from millstream.commands.capture_lines import finding_lines

    findings = _findings(definition)
    for line in finding_lines(findings):
        say(line)
    _require_none_missing(findings)


def _require_tables(control: "CaptureControl", name: str, tables: list[str]) -> None:
    """Of a capture that is there: a table that is not would be waited for in silence."""
    definition = _approved_definition(control, name)
    _require_ready(replace(definition, tables=tuple(tables), outbox=None))


def _require_none_missing(findings: "list[Finding]") -> None:
    missing = sum(one.is_fatal for one in findings)
    if missing:
        raise CheckFailed(missing=missing)


def _findings(definition: "CaptureDefinition") -> "list[Finding]":
    from millstream.capture.definition import resolve_url
    from millstream.capture.opening import open_source

    url = resolve_url(definition.name, definition.url, os.environ)
    with contextlib.closing(open_source(definition, url=url)) as source:
        return source.check()


# --- approve ------------------------------------------------------------------------------------


@app.command("approve", cls=PlainCommand)
def approve(name: Name, brokers: Brokers = None, yes: Yes = False) -> None:
    """Allow this machine to run a capture as the topic _captures has it now.

    Whoever may write that topic could have changed it: read what is shown. `millstream capture add`
    approves what you type by itself.

    Example: millstream capture approve shop
    """
    from millstream.capture.definition import require_no_password
    from millstream.commands.capture_lines import approval_lines

    control = _control(brokers)
    definition = control.capture(name).definition
    assert definition is not None
    # What is shown hides passwords, and drivers differ in where one ends and the host begins.
    require_no_password(name, definition.url)
    for line in approval_lines(definition):
        typer.echo(line)
    confirm(f"Let this machine run capture {name}?", yes=yes)
    _approve(control, definition)
    say(f"capture {name} is approved: `millstream capture run {name}` runs it")


def _approved() -> "ApprovedCaptures":
    from millstream.capture.approved_captures import ApprovedCaptures
    from millstream.settings import ClientSettings, load

    return ApprovedCaptures(load(ClientSettings).captures_approved)


def _approve(control: "CaptureControl", definition: "CaptureDefinition") -> None:
    from millstream.capture.approval import Approval

    _approved().keep(control.log_id(), definition.name, Approval.of(definition))


def _approved_definition(control: "CaptureControl", name: str) -> "CaptureDefinition":
    """What was written by anybody is opened by nobody."""
    from millstream.capture.approval import require_approved

    definition = control.capture(name).definition
    assert definition is not None
    require_approved(definition, _approved().of(control.log_id(), name))
    return definition


def _finding(one: "Finding") -> dict[str, Any]:
    return {"what": one.what, "mend": one.mend, "is_fatal": one.is_fatal}


# --- list, show ---------------------------------------------------------------------------------


@app.command("list", cls=PlainCommand)
def list_captures(brokers: Brokers = None, json: Json = False) -> None:
    """List the captures: how each is, and how far behind its database.

    Example: millstream capture list
    """
    found = _facts(_control(brokers).captures(), _health(brokers)())
    if json:
        print_json(found)
        return
    from millstream.commands.capture_lines import HEADER, row_of, troubles, waits

    print_table(HEADER, [row_of(one) for one in found])
    for line in [*waits(found), *troubles(found)]:
        say(line)


@app.command("show", cls=PlainCommand)
def show(name: Name, brokers: Brokers = None, json: Json = False) -> None:
    """Show a capture: its tables, where it is in the database's log, what is wrong with it.

    Example: millstream capture show shop --json
    """
    from millstream.commands import capture_lines

    records = _control(brokers).capture(name)
    (facts,) = _facts({name: records}, _health(brokers)())
    if json:
        tables = [capture_lines.table_facts(one) for one in records.tables.values()]
        print_json(facts | {"captured": tables})
        return
    for line in capture_lines.heading(facts):
        typer.echo(line)
    if records.tables:
        print_table(capture_lines.TABLE_HEADER, capture_lines.table_rows(records, facts))
    for line in [*capture_lines.load_lines(facts), *capture_lines.troubles([facts])]:
        typer.echo(line)


def _facts(captures: "dict[str, CaptureRecords]", health: "BrokerHealth") -> list[dict[str, Any]]:
    from millstream.base.clock import system_clock
    from millstream.commands.capture_lines import facts_of

    now_ms = system_clock()
    return [
        facts_of(name, one, now_ms=now_ms, health=health) for name, one in sorted(captures.items())
    ]


def _health(brokers: str | None) -> "FollowedHealth":
    from millstream.queues.access import access_from
    from millstream.queues.broker_health import FollowedHealth

    return FollowedHealth(access_from(_client(brokers)))


# --- pause, resume, reload, drop ----------------------------------------------------------------


@app.command("pause", cls=PlainCommand)
def pause(name: Name, brokers: Brokers = None) -> None:
    """Pause a capture. The database keeps its log for it until it goes on.

    Example: millstream capture pause shop
    """
    _control(brokers).pause(name)
    say(f"capture {name} pauses: the database keeps its log until `millstream capture resume`")


@app.command("resume", cls=PlainCommand)
def resume(name: Name, brokers: Brokers = None) -> None:
    """Let a paused capture go on where it was.

    Example: millstream capture resume shop
    """
    _control(brokers).resume(name)
    say(f"capture {name} goes on")


@app.command("reload", cls=PlainCommand)
def reload(
    name: Name,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="The table; without one all of them, and changes are read from now on.",
        ),
    ] = None,
    brokers: Brokers = None,
    yes: Yes = False,
) -> None:
    """Load a table anew, while changes go on: rows that are gone from it are deleted.

    Example: millstream capture reload shop orders --yes
    """
    control = _control(brokers)
    if table is None:
        control.capture(name)
        confirm(f"Load every table of capture {name} anew?", yes=yes)
    control.reload(name, table)
    say(f"capture {name} loads {table or 'all its tables'} anew: see `millstream capture show`")


@app.command("drop", cls=PlainCommand)
def drop(
    name: Name,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Do not ask the database, as it is gone, or is none of yours: what the capture "
            "made there stays.",
        ),
    ] = False,
    brokers: Brokers = None,
    yes: Yes = False,
) -> None:
    """Drop a capture, and what it made in the database. The topics of its tables stay.

    Example: millstream capture drop shop --yes
    """
    control = _control(brokers)
    control.capture(name)
    confirm(f"Drop capture {name}?", yes=yes)
    if forget:
        _runner(_client(brokers), name).forget()
    else:
        _drop(control, name, brokers)
    _approved().forget(control.log_id(), name)
    say(f"capture {name} is dropped; the topics of its tables are there as they were")
    if forget:
        say(
            "What it made in the database stays there: its triggers and tables, or its replication "
            "slot and publication, whose names begin with millstream_ or _millstream_"
        )


def _drop(control: "CaptureControl", name: str, brokers: str | None) -> None:
    """By whoever runs it; else this process does, to its end. If somebody did, he is fenced."""
    control.drop(name)
    if not _is_gone(control, name):
        approval = _approved().of(control.log_id(), name)
        _runner(_client(brokers), name, approval).run(once=True)


def _is_gone(control: "CaptureControl", name: str) -> bool:
    """Whether somebody runs it, and has heard."""
    until = time.monotonic() + HEARD_SECONDS_MAX
    while name in control.captures():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _runner(
    client: dict[str, Any], name: str, approval: "Approval | None" = None
) -> "CaptureRunner":
    from millstream.capture.runner import CaptureRunner

    return CaptureRunner(client, name, approval=approval)


# --- run ----------------------------------------------------------------------------------------


@app.command("run", cls=PlainCommand)
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="The captures to run; without names all of them."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Write what is there now, then end.")
    ] = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Run captures until Ctrl-C, each in a process of its own.

    One that fails for good does not stop the others; then the command ends with 1, and says why.

    Example: millstream capture run shop --once
    """
    control = _control(brokers)
    chosen = {name: control.capture(name) for name in names} if names else control.captures()
    if not chosen:
        raise BadUsage("there is no capture: `millstream capture add NAME URL --table TABLE`")
    approvals = _approvals(control, chosen)
    _require_variables(approvals)
    from millstream.base.clock import system_clock
    from millstream.capture_processes import CaptureOrder, CaptureProcesses
    from millstream.commands.capture_lines import of_this_run
    from millstream.commands.capture_watch import shown_captures

    began_ms = system_clock()
    client = _client(brokers)
    orders = [
        CaptureOrder(
            capture=name,
            client=_plain(client),
            approval=None if approval is None else approval.to_fields(),
            once=once,
        )
        for name, approval in approvals.items()
    ]
    processes, health = CaptureProcesses(orders), _health(brokers)
    with (
        terminate_as_interrupt(),
        _running(processes),
        control.followed() as captures,
        shown_captures(as_json=json) as look,
    ):
        is_over = False
        while not is_over:
            is_over = processes.wait(LOOK_SECONDS / len(orders))
            there = control.captures() if is_over else captures()
            found = _facts({name: there[name] for name in chosen if name in there}, health())
            look([of_this_run(one, began_ms=began_ms, is_over=is_over) for one in found])
    processes.require_well()
    if not json:
        say(f"{counted(len(orders), 'capture')} {'done' if once else 'ended'}")


@contextlib.contextmanager
def _running(processes: Any) -> Iterator[None]:
    processes.start()
    try:
        yield
    finally:
        processes.stop()


def _approvals(
    control: "CaptureControl", captures: "Iterable[str]"
) -> "dict[str, Approval | None]":
    """What was never approved fails in its child, and does not keep the others from running."""
    approved, log = _approved(), control.log_id()
    return {name: approved.of(log, name) for name in captures}


def _require_variables(approvals: "dict[str, Approval | None]") -> None:
    """Said here once, and not by each child."""
    from millstream.capture.definition import resolve_url

    for name, approval in approvals.items():
        if approval is not None:
            resolve_url(name, approval.url, os.environ)


# --- the broker ---------------------------------------------------------------------------------


def _client(brokers: str | None) -> dict[str, Any]:
    from millstream.commands.connecting import client_config, log_in, reach
    from millstream.settings import ClientSettings, load

    addresses = load(ClientSettings, options={"brokers": brokers}).brokers
    reach(addresses)
    log_in(addresses)
    return client_config(addresses)


def _plain(client: dict[str, Any]) -> dict[str, Any]:
    """What can be handed to another process."""
    return {name: value for name, value in client.items() if isinstance(value, str | int | float)}


def _control(brokers: str | None) -> "CaptureControl":
    from millstream.capture.control import CaptureControl

    return CaptureControl(_client(brokers))
