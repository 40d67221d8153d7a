"""Topics, groups and queues: what their pages ask of the broker."""

from typing import Any

from millstream.base.declared import LATE_SUFFIX
from millstream.queues.asked import DEAD_SUFFIX
from millstream.queues.inspection import QueueSeen
from millstream.queues.terms import GROUP_PREFIX
from millstream.web.console.condition import Condition, group_condition
from millstream.web.console.facts import GroupSeen, Look, TopicDetail, TopicSeen
from millstream.web.console.figures import curve
from millstream.web.console.overview import small
from millstream.web.console.record_text import in_full, matches, spans
from millstream.web.console.visits import PAGE_LINES, Visit, lines_of, searched
from millstream.web.problems import Problem, unknown

WIDE, HIGH = 640, 120
RECORDS_SHOWN = 50
# Looked through when somebody filters.
RECORDS_LOOKED_AT = 500
QUEUES_SEEN_MAX = 30
LETTERS_SHOWN = 200


def topics(visit: Visit) -> dict[str, Any]:
    """Only the topics of this page are asked for."""
    partitions, wanted = visit.source.topics.partitions(), visit.text("q")
    has_internal = visit.has("internal")
    names = sorted(name for name in partitions if has_internal or not is_internal(name))
    lines = lines_of(searched(names, wanted), visit)
    return {
        "lines": lines,
        "topics": visit.source.topics.seen(lines.shown),
        "figures": {name: visit.watch.series("topic", name) for name in lines.shown},
        "small": small,
        "wanted": wanted,
        "has_internal": has_internal,
        "internal": len(partitions) - sum(not is_internal(name) for name in partitions),
        "total_partitions": sum(partitions.values()),
    }


def is_internal(topic: str) -> bool:
    """As Kafka's own, and ours, begin."""
    return topic.startswith("_")


def require_topic(visit: Visit) -> str:
    name = visit.path["topic"]
    if name not in visit.source.topics.partitions():
        raise Problem("unknown-topic", f"no topic {name!r} at this broker")
    return name


def partition_of(visit: Visit, topic: str) -> int | None:
    """The one that the URL names, if it names one."""
    partition, count = visit.number("partition"), visit.source.topics.partitions()[topic]
    if partition is not None and partition >= count:
        raise Problem("bad-request", f"{topic} has {count} partitions")
    return partition


def topic(visit: Visit) -> dict[str, Any]:
    name = require_topic(visit)
    visit.watch.look(topic=name)
    partition = partition_of(visit, name)
    detail = visit.source.topics.detail(name)
    series = visit.watch.series("topic", name)
    look = Look() if visit.is_update else _look(visit, name, partition)
    wanted = visit.text("q")
    return {
        "topic": detail,
        "declared": visit.serving.application.topics().get(name),
        "lines": lines_of(detail.partitions, visit),
        "per_second": series.rate(),
        "curve": curve(series.rates(), width=WIDE, height=HIGH),
        "wanted": wanted,
        "partition": partition,
        "offset": visit.number("offset"),
        "aside": _aside_of(name, visit),
        "records": [one for one in look if matches(one, wanted)][:RECORDS_SHOWN],
        "look": look,
        "unread": spans(look.unread),
        "produced": _produced(visit, detail),
        "can_produce": not is_internal(name),
    }


def _aside_of(name: str, visit: Visit) -> list[TopicSeen]:
    """Its topics of dead letters and of late events, if there are any."""
    there = visit.source.topics.partitions()
    found = [f"{name}{suffix}" for suffix in (DEAD_SUFFIX, LATE_SUFFIX)]
    wanted = [one for one in found if one in there]
    return list(visit.source.topics.seen(wanted)) if wanted else []


def _look(visit: Visit, topic: str, partition: int | None) -> Look:
    """The newest; or from an offset on."""
    offset, ask = visit.number("offset"), visit.source.topics
    limit = RECORDS_LOOKED_AT if visit.text("q") else RECORDS_SHOWN
    if offset is not None:
        found = ask.records(topic, partition=partition or 0, offset=offset, limit=limit)
    else:
        found = ask.newest(topic, partition=partition, limit=limit)
    return found


def _produced(visit: Visit, detail: TopicDetail) -> tuple[int, int] | None:
    """Where the record is that was just produced, as the address says."""
    partition, offset = visit.number("produced_partition"), visit.number("produced_offset")
    if partition is None or offset is None or partition >= len(detail.partitions):
        return None
    return partition, offset


def record(visit: Visit) -> dict[str, Any]:
    name = require_topic(visit)
    partition, offset = _whole(visit, "partition"), _whole(visit, "offset")
    if partition >= visit.source.topics.partitions()[name]:
        raise Problem("not-found", f"{name} has no partition {partition}")
    found = visit.source.topics.records(name, partition=partition, offset=offset, limit=1)
    if not found or found[0].offset != offset:
        where = f"{name}[{partition}] has no record at offset {offset}"
        raise Problem("not-found", f"{where}: it was deleted, or is not written yet")
    return {
        "record": found[0],
        "key": in_full(found[0].key),
        "value": in_full(found[0].value),
        "headers": [(name, in_full(value)) for name, value in found[0].headers or ()],
        "has_readable_headers": found[0].headers is not None,
    }


def _whole(visit: Visit, name: str) -> int:
    text = visit.path[name]
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise Problem("not-found", f"{text!r} is no {name}")
    return int(text)


# --- groups -------------------------------------------------------------------------------------


def groups(visit: Visit) -> dict[str, Any]:
    wanted = visit.text("q")
    lines = lines_of(searched(visit.source.groups.names(), wanted), visit)
    groups = visit.source.groups.seen(lines.shown)
    lags = {name: visit.watch.series("group", name) for name in lines.shown}
    return {
        "lines": lines,
        "groups": groups,
        "lags": lags,
        "conditions": {
            one.name: group_condition(
                one, trend=lags[one.name].trend(), was_current=lags[one.name].was_none()
            )
            for one in groups
        },
        "small": small,
        "wanted": wanted,
    }


def group(visit: Visit) -> dict[str, Any]:
    detail = visit.source.groups.detail(visit.path["group"])
    series = visit.watch.series("group", detail.seen.name)
    condition = group_condition(detail.seen, trend=series.trend(), was_current=series.was_none())
    behind_first = sorted(
        detail.partitions, key=lambda one: (-(one.lag or 0), one.topic, one.partition)
    )
    return {
        "group": detail,
        "condition": condition,
        "lines": lines_of(behind_first, visit),
        "curve": curve(series.gauge(), width=WIDE, height=HIGH),
        "since_ms": series.at[0] if series.at else None,
        "members": detail.members[:PAGE_LINES],
    }


# --- queues -------------------------------------------------------------------------------------


def queues(visit: Visit) -> dict[str, Any]:
    names = visit.source.queues.names()
    shown = searched(names, visit.text("q"))[:QUEUES_SEEN_MAX]
    found = [visit.source.queues.seen(name) for name in shown]
    return {
        "total": len(names),
        "wanted": visit.text("q"),
        "queues": found,
        "conditions": {one.name: _queue_condition(one, visit) for one in found},
        "dead": {name: len(visit.source.queues.dead(name)) for name in shown},
    }


def queue(visit: Visit) -> dict[str, Any]:
    name, known = visit.path["queue"], visit.source.queues.names()
    if name not in known:
        raise Problem("not-found", unknown("topic", name, known).detail.replace("topic", "queue"))
    letters = visit.source.queues.dead(name)
    found = visit.source.queues.seen(name)
    return {
        "queue": found,
        "condition": _queue_condition(found, visit),
        "letters": letters[:LETTERS_SHOWN],
        "letters_total": len(letters),
        "redriven": visit.number("redriven"),
    }


def _queue_condition(queue: QueueSeen, visit: Visit) -> Condition:
    """A queue is as its share group is, which is among the groups, too."""
    lags = visit.watch.series("group", f"{GROUP_PREFIX}{queue.name}")
    group = GroupSeen(
        name=queue.name,
        state=queue.state,
        protocol="share",
        members=len(queue.workers),
        lag=queue.waiting,
    )
    return group_condition(group, trend=lags.trend(), was_current=lags.was_none())
