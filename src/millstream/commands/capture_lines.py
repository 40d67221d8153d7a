"""What `millstream capture` shows: facts as JSON has them, and lines for people. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.base.quantity import format_duration_ms, format_size
from millstream.capture.approval import Approval, shown
from millstream.capture.definition import shown_url
from millstream.capture.load.plan import Phase, TableLoad, load_from_json
from millstream.capture.load.progress import LoadProgress, TableProgress, progress_line
from millstream.capture.position_record import TOPIC, run_topic
from millstream.capture.status import status_from_json
from millstream.commands.output import counted

if TYPE_CHECKING:
    from millstream.capture.change import CapturedTable
    from millstream.capture.definition import CaptureDefinition
    from millstream.capture.position_record import CaptureRecords
    from millstream.capture.source import Finding
    from millstream.queues.broker_health import BrokerHealth

Facts = dict[str, Any]
HEADER = ("CAPTURE", "STATE", "TABLES", "BEHIND", "TO READ", "KEPT", "CHANGES/S")
TABLE_HEADER = ("TABLE", "TOPIC", "KEY", "COLUMNS", "VERSION", "LOADED")
BAR_CELLS = 20
NEVER = "never run"
NOT_RUNNING = "not running"
CANNOT_WRITE = "cannot write"
# In which a capture writes, or wants to.
WRITING = frozenset({"starting", "loading", "streaming", "waiting", NOT_RUNNING})
TABLES_SHOWN_CHARS_MAX = 30  # with more, a row would not fit into a terminal's 80 columns


def facts_of(
    name: str, records: "CaptureRecords", *, now_ms: int, health: "BrokerHealth | None" = None
) -> Facts:
    """What there is to know of a capture, as `--json` prints it.

    `health`: what the broker cannot do. A capture whose records are refused can write no status
    either, so that its last one is of better times.
    """
    definition = records.definition
    assert definition is not None
    status = records.status or {}
    state = state_of(records, now_ms=now_ms)
    refusal = refusal_of(records, state, health)
    return {
        "capture": name,
        "url": shown_url(definition.url),
        "mode": definition.mode,
        "tables": list(definition.tables),
        "outbox": definition.outbox,
        "state": CANNOT_WRITE if refusal else state,
        "error": refusal or status.get("error", ""),
        "warnings": list(status.get("warnings", ())),
        "position": records.position.resume if records.position else None,
        "process": status.get("process"),
        "host": status.get("host"),
        **{name: status.get(name) for name in MEASURES},
        "load": [
            load_facts(table, load_from_json(table, text)) for table, text in records.loads.items()
        ],
        "load_waits_for": load_waits_for(records.status, now_ms=now_ms),
    }


MEASURES = (
    "behind_ms",
    "lag_bytes",
    "retained_bytes",
    "retained_bytes_max",
    "changes_per_s",
    "changes",
    "transactions",
    "rows_loaded",
    "at_ms",
)


def state_of(records: "CaptureRecords", *, now_ms: int) -> str:
    """One word or two: what is wanted of it goes before how it was when it last told."""
    if records.control.is_dropped:
        return "dropping"
    if records.status is None:
        return "paused" if records.control.is_paused else NEVER
    status = status_from_json(records.status)
    if status.state == "failed":
        return "failed"
    if status.is_stale(now_ms=now_ms) or status.state == "ended":
        return "paused" if records.control.is_paused else NOT_RUNNING
    return "pausing" if records.control.is_paused and status.state != "paused" else status.state


def refusal_of(records: "CaptureRecords", state: str, health: "BrokerHealth | None") -> str:
    """Why the broker takes no records of it now; empty if it does, or if none are due.

    `state`: how the capture is otherwise, as `state_of` says it.
    """
    has_ended = (records.status or {}).get("state") == "ended"
    if health is None or state not in WRITING or has_ended:
        return ""
    definition = records.definition
    assert definition is not None
    topics = {table.topic for table in records.tables.values()}
    refusal = health.refusal_of(topics | {TOPIC, run_topic(definition.name)})
    return f"{refusal}; nothing is lost: it continues by itself when they are taken" * bool(refusal)


def of_this_run(facts: Facts, *, began_ms: int, is_over: bool) -> Facts:
    """For who runs it since `began_ms`: what an earlier run has told is not of this one."""
    if facts["state"] == CANNOT_WRITE:
        return facts
    if not is_over and (facts["at_ms"] or 0) < began_ms:
        nothing = dict.fromkeys(MEASURES)
        return {
            **facts,
            **nothing,
            "state": "starting",
            "error": "",
            "warnings": [],
            "load_waits_for": "",
        }
    return {**facts, "state": "ended"} if facts["state"] == NOT_RUNNING else facts


def load_waits_for(told: "Mapping[str, Any] | None", *, now_ms: int) -> str:
    """Only while it runs."""
    if told is None or (status := status_from_json(told)).is_stale(now_ms=now_ms):
        return ""
    return status.load_waits_for


def load_facts(table: str, load: TableLoad) -> Facts:
    told = TableProgress(
        table=table, phase=load.phase, rows=load.rows, rows_estimate=load.rows_estimate
    )
    return {
        "table": table,
        "phase": load.phase.value,
        "rows": load.rows,
        "rows_expected": told.rows_expected,
        "fraction": round(told.fraction, 4),
    }


# --- lines ------------------------------------------------------------------------------------


def row_of(facts: Facts) -> list[object]:
    """Nobody measures one that does not run: how it was then is no answer to how it is."""
    told = facts | dict.fromkeys(MEASURES) if facts["state"] == NOT_RUNNING else facts
    rate = told["changes_per_s"]
    return [
        told["capture"],
        told["state"],
        _tables(told["tables"]),
        _duration(told["behind_ms"]),
        _size(told["lag_bytes"]),
        _kept(told),
        None if rate is None else round(rate),
    ]


def waits(captures: Iterable[Facts]) -> list[str]:
    """Why a load does not get on, one line each."""
    return [
        f"{one['capture']}: the load {one['load_waits_for']}"
        for one in captures
        if one["load_waits_for"]
    ]


def troubles(captures: Iterable[Facts]) -> list[str]:
    """What somebody should read, one line each."""
    lines = []
    for one in captures:
        if one["error"]:
            lines.append(f"{one['capture']}: {one['error']}")
        lines += [f"{one['capture']}: warning: {warning}" for warning in one["warnings"]]
    return lines


def load_lines(facts: Facts) -> list[str]:
    """A bar for each table that is being loaded, and for all of them how fast and how long."""
    bars = [load_line(one) for one in facts["load"] if one["phase"] != "done"]
    rate = facts["changes_per_s"]
    waits = facts["load_waits_for"]
    if waits:
        return [*bars, f"  the load {waits}"]
    return [*bars, f"  {pace(facts['load'], rate)}"] if bars and rate else bars


def pace(loads: Sequence[Facts], rows_per_second: float) -> str:
    """`500 of about 1,000 rows (50%), 100 rows/s, 5s left`"""
    tables = [
        TableProgress(
            table=one["table"],
            phase=Phase(one["phase"]),
            rows=one["rows"],
            rows_estimate=one["rows_expected"],
        )
        for one in loads
    ]
    found = LoadProgress(tables=tuple(tables), rows_here=round(rows_per_second), seconds=1.0)
    return progress_line(found)


def load_line(load: Facts) -> str:
    expected = load["rows_expected"]
    about = f"{load['rows']:,} of about {expected:,} rows" if expected else "starting"
    return f"  {load['table']}  {bar(load['fraction'])} {load['fraction']:4.0%}  {about}"


def bar(fraction: float) -> str:
    full = round(fraction * BAR_CELLS)
    return "█" * full + "░" * (BAR_CELLS - full)


def line_of(facts: Facts) -> str:
    """One capture in one line, for logs."""
    parts = [f"{facts['capture']}: {facts['state']}"]
    if facts["changes"]:
        rate = f"{facts['changes_per_s'] or 0:,.0f}/s"
        parts.append(f"{counted(facts['changes'], 'change')}, {rate}")
    if facts["rows_loaded"]:
        parts.append(f"{counted(facts['rows_loaded'], 'row')} loaded")
    parts += [
        f"{one['table']} {one['fraction']:.0%}" for one in facts["load"] if one["phase"] != "done"
    ]
    if facts["load_waits_for"]:
        parts.append(f"the load {facts['load_waits_for']}")
    elif facts["behind_ms"]:
        parts.append(f"{format_duration_ms(facts['behind_ms'])} behind")
    return ", ".join(parts) + (f" ({facts['error']})" if facts["error"] else "")


def heading(facts: Facts) -> list[str]:
    """The first lines of `show`."""
    lines = [f"{facts['capture']}: {facts['state']}, {facts['url']}, mode {facts['mode']}"]
    if facts["position"]:
        lines.append(f"  written up to {facts['position']}")
    told = {
        "behind": _duration(facts["behind_ms"]),
        "still to read": _size(facts["lag_bytes"]),
        "kept by the database": _kept(facts),
    }
    measures = [f"{what}: {value}" for what, value in told.items() if value is not None]
    when = "when it last ran, " if facts["state"] == NOT_RUNNING else ""
    return lines + ([f"  {when}{', '.join(measures)}"] if measures else [])


def approval_lines(definition: "CaptureDefinition") -> list[str]:
    """What whoever approves it should have read."""
    approval = Approval.of(definition)
    told = {
        "database": shown(shown_url(approval.url)),
        "looks up in this environment": ", ".join(approval.variables) or "nothing",
        "mode": approval.mode,
        "tables": shown(", ".join(definition.tables)),
        "outbox, whose rows are deleted": shown(approval.outbox),
        "topics begin with": shown(definition.prefix),
    }
    return [f"{what}: {value}" for what, value in told.items()]


def table_rows(records: "CaptureRecords", facts: Facts) -> list[list[object]]:
    loads = {one["table"]: one for one in facts["load"]}
    return [
        [
            table.name,
            table.topic,
            ", ".join(table.key) or "none",
            len(table.columns),
            table.version,
            _loaded(loads.get(table.name)),
        ]
        for table in records.tables.values()
    ]


def table_facts(table: "CapturedTable") -> Facts:
    return {
        "table": table.name,
        "topic": table.topic,
        "key": list(table.key),
        "version": table.version,
        "columns": [
            {"name": one.name, "type": str(one.type), "database_type": one.database_type}
            for one in table.columns
        ],
    }


def finding_lines(findings: "Sequence[Finding]") -> list[str]:
    """What is missing, and under it what mends it."""
    lines = []
    for one in findings:
        lines.append(f"{'missing' if one.is_fatal else 'advice'}: {one.what}")
        lines += [f"    {line}" for line in one.mend.splitlines()]
    return lines


def _tables(tables: Sequence[str]) -> str:
    """By name where there is room; `show` has them all."""
    names = ", ".join(tables)
    return names if len(names) <= TABLES_SHOWN_CHARS_MAX else f"{len(tables)} tables"


def _loaded(load: Facts | None) -> str:
    if load is None:
        return "-"
    return "all" if load["phase"] == "done" else f"{load['fraction']:.0%}"


def _duration(duration_ms: int | None) -> str | None:
    return None if duration_ms is None else format_duration_ms(duration_ms)


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else format_size(size_bytes)


def _kept(facts: Facts) -> str | None:
    kept, most = facts["retained_bytes"], facts["retained_bytes_max"]
    if kept is None:
        return None
    return format_size(kept) + (f" of {format_size(most)}" if most else "")
