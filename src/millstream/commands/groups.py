"""`millstream groups`: list, describe, reset, delete, of every kind of group.

`describe` says how far a group is behind, and how far it is from losing data (lag.py). Share groups
and streams groups are asked for in words of their own (share_groups.py, streams_groups.py).
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.base.errors import Rejected
from millstream.base.offsets import OffsetRange
from millstream.base.quantity import format_duration_roughly
from millstream.commands.cluster import Cluster, Group, open_cluster
from millstream.commands.connecting import GroupNotFound, Partition
from millstream.commands.lag import (
    LagSum,
    LagTotal,
    Member,
    PartitionLag,
    Place,
    add_lags,
    lag_of,
    total,
)
from millstream.commands.options import BadOption, Brokers, Json, Yes
from millstream.commands.output import confirm, counted, print_json, print_table, say
from millstream.commands.plain_help import PlainCommand
from millstream.commands.positions import (
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    Shift,
    parse_position,
)

if TYPE_CHECKING:
    from millstream.commands.share_groups import ShareGroups
    from millstream.commands.streams_groups import StreamsGroups

app = typer.Typer(no_args_is_help=True, help="Groups of consumers: their lag, risk and place.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
GroupNames = Annotated[list[str], typer.Argument(metavar="GROUP", help="One or more groups.")]

MEMBERS_NAMED_MAX = 3


class GroupIsLive(Rejected):
    def __init__(self, *, group: Group, doing: str) -> None:
        named = [f"{m.client_id} on {m.host}" for m in list(group.members)[:MEMBERS_NAMED_MAX]]
        more = " ..." if len(group.members) > MEMBERS_NAMED_MAX else ""
        super().__init__(
            f"Cannot {doing} group {group.id}: it has {counted(len(group.members), 'live member')} "
            f"({', '.join(named)}{more}). Stop every member, then run this again"
        )
        self.group = group


class NothingCommitted(Rejected):
    def __init__(self, *, group: str) -> None:
        super().__init__(f"Group {group} has no offsets to reset. Say which topic with --topic")
        self.group = group


# --- groups of every kind --------------------------------------------------------------------


def share_groups(cluster: Cluster) -> "ShareGroups":
    from millstream.commands.share_groups import ShareGroups

    return ShareGroups(cluster.brokers)


def streams_groups(cluster: Cluster) -> "StreamsGroups":
    from millstream.commands.streams_groups import StreamsGroups

    return StreamsGroups(cluster.brokers)


def all_groups(cluster: Cluster) -> dict[str, Group]:
    shares, streams = share_groups(cluster), streams_groups(cluster)
    found = cluster.listed_groups(cluster.group_names()) | shares.listed(shares.names())
    found |= streams.listed(streams.names())
    return dict(sorted(found.items()))


def find_group(cluster: Cluster, name: str) -> Group:
    group = cluster.groups([name])[name]
    if group.exists:
        return group
    return share_groups(cluster).find(name) or streams_groups(cluster).find(name) or group


def places_of(cluster: Cluster, group: Group) -> dict[Partition, Place]:
    """Where it goes on in each partition: committed, or in a share group the first not done."""
    if group.is_share:
        return share_groups(cluster).places(group.id)
    return {part: Place(offset) for part, offset in cluster.committed(group.id).items()}


# --- list ------------------------------------------------------------------------------------


@app.command("list", cls=PlainCommand)
def list_groups(brokers: Brokers = None, json: Json = False) -> None:
    """List groups with their protocol, members and lag.

    The lag of a partition that a group never committed is not known, and is not added.

    Example: millstream groups list
    """
    cluster = open_cluster(brokers)
    groups = all_groups(cluster)
    places = {
        name: {} if group.is_hidden else places_of(cluster, group) for name, group in groups.items()
    }
    topics = {name: topics_of(group, places[name]) for name, group in groups.items()}
    existing = set(cluster.topic_names())
    wanted = cluster.partitions_of(sorted(set().union(*topics.values()) & existing))
    offsets = cluster.available(wanted)
    lags = {
        name: None
        if group.is_hidden
        else add_lags(
            lag_of(places[name].get(part), within)
            for part, within in offsets.items()
            if part.topic in topics[name]
        )
        for name, group in groups.items()
    }
    found = [_group_row(group, topics[name], lags[name]) for name, group in groups.items()]
    if json:
        print_json(found)
    elif not found:
        say("No consumer groups yet. `millstream consume TOPIC --group NAME` makes one.")
    else:
        header = ["GROUP", "STATE", "PROTOCOL", "MEMBERS", "TOPICS", "LAG"]
        print_table(
            header,
            [_list_row(group, topics[name], lags[name]) for name, group in groups.items()],
        )


def _list_row(group: Group, topics: set[str], lag: LagSum | None) -> list[object]:
    seen = [None] * 3 if lag is None else [len(group.members), len(topics), lag_cell(lag)]
    return [group.id, group.state, group.protocol, *seen]


def topics_of(group: Group, committed: Iterable[Partition]) -> set[str]:
    """Those that the group committed or is assigned."""
    assigned = {part.topic for parts in group.members.values() for part in parts}
    return assigned | {part.topic for part in committed}


def _group_row(group: Group, topics: set[str], lag: LagSum | None) -> dict[str, Any]:
    return {
        "group": group.id,
        "state": group.state,
        "protocol": group.protocol,
        "members": None if group.is_hidden else len(group.members),
        "topics": None if group.is_hidden else sorted(topics),
        **_lag_to_json(lag),
    }


def _lag_to_json(lag: LagSum | None) -> dict[str, Any]:
    if lag is None:
        return dict.fromkeys(("lag", "known_lag", "never_committed_partitions"))
    return {
        "lag": lag.lag,
        "known_lag": lag.known,
        "never_committed_partitions": lag.never_committed,
    }


def lag_cell(lag: LagSum) -> int | str:
    """For a table: a number, unless some of it is unknown."""
    return str(lag) if lag.lag is None else lag.lag


# --- describe --------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def describe(groups: GroupNames, brokers: Brokers = None, json: Json = False) -> None:
    """Show each partition's lag, and when data gets lost.

    A slow group loses what retention deletes before the group has read it.

    HEADROOM counts the records that retention can still delete before it reaches the group.
    "Loses data in 3h" is the soonest moment: retention deletes whole segments, so it may be later.

    Example: millstream groups describe readers
    """
    cluster = open_cluster(brokers)
    described = []
    for group in require_groups(cluster, groups):
        now_ms = time.time_ns() // 1_000_000
        described.append((group, partition_lags(cluster, group), now_ms))
    if json:
        print_json([_to_json(*one) for one in described])
        return
    for position, one in enumerate(described):
        if position:
            typer.echo("")
        _print_group(*one)


def require_groups(cluster: Cluster, names: Iterable[str]) -> list[Group]:
    found = [find_group(cluster, name) for name in dict.fromkeys(names)]
    for group in found:
        if not group.exists:
            raise GroupNotFound(group=group.id, known=all_groups(cluster))
    return found


def partition_lags(cluster: Cluster, group: Group) -> list[PartitionLag]:
    """One for each partition of the topics that the group committed or is assigned, in order."""
    places = places_of(cluster, group)
    owners = {part: member for member, parts in group.members.items() for part in parts}
    topics = topics_of(group, places)
    wanted = cluster.partitions_of(sorted(topics & set(cluster.topic_names())))
    offsets = cluster.available(wanted)
    retentions = cluster.visible_retentions(sorted({part.topic for part in wanted}))
    losing = {topic for topic, retention in retentions.items() if retention.by_time}
    behind = {
        part: max(place.offset, offsets[part].start)
        for part, place in places.items()
        if part in offsets and place.offset < offsets[part].end and part.topic in losing
    }
    times_ms = cluster.times_of_records(behind)
    return [
        PartitionLag(
            topic=part.topic,
            partition=part.number,
            place=places.get(part),
            available=offsets[part],
            retention=retentions.get(part.topic),
            next_record_ms=times_ms.get(part),
            member=None if group.is_share else owners.get(part),  # there it has several
        )
        for part in wanted
    ]


def totals(
    group: Group, lags: list[PartitionLag], now_ms: int
) -> tuple[list[LagTotal], dict[Member, LagTotal]]:
    topics = sorted({part.topic for part in lags})
    by_topic = [
        total(topic, (part for part in lags if part.topic == topic), now_ms=now_ms)
        for topic in topics
    ]
    by_member = {
        member: total(member.id, _read_by(group.members[member], lags), now_ms=now_ms)
        for member in group.members
    }
    return by_topic, by_member


def _read_by(
    partitions: tuple[Partition, ...], lags: Iterable[PartitionLag]
) -> Iterator[PartitionLag]:
    return (one for one in lags if Partition(one.topic, one.partition) in partitions)


def _to_json(group: Group, lags: list[PartitionLag], now_ms: int) -> dict[str, Any]:
    by_topic, by_member = totals(group, lags, now_ms)
    return {
        "group": group.id,
        "state": group.state,
        "protocol": group.protocol,
        **_lag_to_json(add_lags(part.lag for part in lags)),
        "partitions": [_partition_to_json(part, now_ms) for part in lags],
        "topics": [{"topic": one.name} | _total_to_json(one) for one in by_topic],
        "consumers": [
            _member_to_json(member) | _total_to_json(one) | _tasks_to_json(group, member)
            for member, one in by_member.items()
        ],
    }


def _partition_to_json(part: PartitionLag, now_ms: int) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "partition": part.partition,
        "committed": part.committed,
        "start": part.available.start,
        "end": part.available.end,
        "lag": part.lag,
        "headroom": part.headroom,
        "lost": part.lost,
        "loses_data_in_ms": part.loses_data_in_ms(now_ms=now_ms),
        "retention_ms": part.retention.retention_ms if part.retention else None,
        "retention_bytes": part.retention.retention_bytes if part.retention else None,
        "risk": part.risk(now_ms=now_ms),
        **(_member_to_json(part.member) if part.member else {"consumer": None}),
    }


def _member_to_json(member: Member) -> dict[str, Any]:
    return {"consumer": member.id, "client_id": member.client_id, "host": member.host}


def _tasks_to_json(group: Group, member: Member) -> dict[str, Any]:
    tasks = group.tasks.get(member)
    if tasks is None:
        return {}
    return {"active_tasks": list(tasks.active), "standby_tasks": list(tasks.standby)}


def _total_to_json(one: LagTotal) -> dict[str, Any]:
    return {
        "partitions": one.partitions,
        **_lag_to_json(one.lag),
        "lost": one.lost,
        "loses_data_in_ms": one.loses_data_in_ms,
    }


def _print_group(group: Group, lags: list[PartitionLag], now_ms: int) -> None:
    by_topic, by_member = totals(group, lags, now_ms)
    lag = add_lags(part.lag for part in lags)
    members = counted(len(group.members), "member")
    title = f"Group {group.id}: {group.state}, {group.protocol} protocol, {members}, lag {lag}"
    typer.secho(title, bold=True)
    typer.echo("")
    place = "START" if group.is_share else "COMMITTED"
    header = ["TOPIC", "PARTITION", place, "END", "LAG", "HEADROOM", "RISK", "CONSUMER"]
    print_table(header, [_partition_row(part, group, now_ms) for part in lags])
    if len(lags) > 1:
        typer.echo("")
        print_table(
            ["TOPIC", "PARTITIONS", "LAG", "FIRST LOSS"],
            [[one.name, one.partitions, lag_cell(one.lag), first_loss(one)] for one in by_topic],
        )
    if by_member:
        typer.echo("")
        print_table(
            ["CONSUMER", "CLIENT", "HOST", "PARTITIONS", "LAG"],
            [
                [m.id, m.client_id, m.host, t.partitions, lag_cell(t.lag)]
                for m, t in by_member.items()
            ],
        )
    if group.tasks:
        typer.echo("")
        print_table(
            ["CONSUMER", "TASKS", "STANDBYS"],
            [
                [member.id, ", ".join(tasks.active) or "-", ", ".join(tasks.standby) or "-"]
                for member, tasks in group.tasks.items()
            ],
        )


def _partition_row(part: PartitionLag, group: Group, now_ms: int) -> list[object]:
    return [
        part.topic,
        part.partition,
        part.committed,
        part.available.end,
        part.lag,
        part.headroom,
        part.risk(now_ms=now_ms),
        _consumer_cell(part, group),
    ]


def _consumer_cell(part: PartitionLag, group: Group) -> str:
    """Who reads it; in a share group that may be many."""
    if part.member is not None:
        return part.member.id
    place = Partition(part.topic, part.partition)
    readers = sum(place in parts for parts in group.members.values())
    return counted(readers, "consumer") if readers else "-"


def first_loss(one: LagTotal) -> str:
    if one.lost:
        return f"ALREADY LOST {counted(one.lost, 'record')}"
    if one.loses_data_in_ms is None:
        return "-"
    return f"in {format_duration_roughly(one.loses_data_in_ms)}"


# --- reset -----------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def reset(
    group: GroupName,
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help='earliest, latest, an offset, a time ("1h ago", 2026-07-01T12:00Z), '
            "or shift:+N / shift:-N from where it is.",
        ),
    ],
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC[:P,...]",
            help="Only this topic, or some partitions of it. Otherwise all that it committed. "
            "Repeatable.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    yes: Yes = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Move a group to another place. It must have no live members.

    Shows the plan first: where each partition goes, and what is read again or skipped.

    Example: millstream groups reset readers --topic clicks --to earliest --dry-run
    """
    place = parse_position(
        to,
        option="--to",
        allowed=(Earliest, Latest, AtOffset, AtTime, Shift),
        now_ms=time.time_ns() // 1_000_000,
    )
    cluster = open_cluster(brokers)
    found = find_group(cluster, group)
    _require_idle(found, doing="reset")
    committed = {part: place.offset for part, place in places_of(cluster, found).items()}
    offsets = cluster.available(_reset_partitions(cluster, group, topic, committed))
    targets = cluster.resolve(place, offsets, committed)
    if not json:
        rows = [[*_plan_row(part, committed, targets, offsets).values()] for part in targets]
        print_table(["TOPIC", "PARTITION", "COMMITTED", "NEW", "EFFECT"], rows)
    changed = {part: new for part, new in targets.items() if committed.get(part) != new}
    if changed and not dry_run:
        confirm(f"Reset {counted(len(changed), 'partition')} of group {group}?", yes=yes)
        _move(cluster, found, changed)
    if json:
        plan = [_plan_row(part, committed, targets, offsets) for part in targets]
        print_json({"group": group, "executed": not dry_run, "partitions": plan})
    elif dry_run:
        say("Dry run: nothing was changed.")
    elif not changed:
        say(f"Group {group} is there already: nothing was changed.")
    else:
        typer.echo(f"Reset {counted(len(changed), 'partition')} of group {group}")


def _move(cluster: Cluster, group: Group, offsets: Mapping[Partition, int]) -> None:
    if group.is_share:
        share_groups(cluster).move(group.id, offsets)
    else:
        cluster.commit(group.id, offsets)


def _require_idle(group: Group, *, doing: str) -> None:
    if group.members:
        raise GroupIsLive(group=group, doing=doing)


def _reset_partitions(
    cluster: Cluster, group: str, topics: list[str], committed: Mapping[Partition, int]
) -> list[Partition]:
    if not topics:
        existing = set(cluster.topic_names())
        wanted = sorted(part for part in committed if part.topic in existing)
        if not wanted:
            raise NothingCommitted(group=group)
        return wanted
    wanted = []
    for text in topics:
        name, numbers = parse_topic_partitions(text)
        wanted += cluster.choose_partitions([name], numbers)
    return sorted(set(wanted))


def parse_topic_partitions(text: str) -> tuple[str, list[int]]:
    """`orders` is all of it, `orders:0,2` two partitions. A topic's name has no colon."""
    name, colon, numbers = text.partition(":")
    if not name or (colon and not all(number.isdecimal() for number in numbers.split(","))):
        raise BadOption(option="--topic", value=text, allowed="TOPIC or TOPIC:P,P (orders:0,2)")
    return name, [int(number) for number in numbers.split(",")] if colon else []


def _plan_row(
    part: Partition,
    committed: Mapping[Partition, int],
    targets: Mapping[Partition, int],
    offsets: Mapping[Partition, OffsetRange],
) -> dict[str, Any]:
    old, new = committed.get(part), targets[part]
    return {
        "topic": part.topic,
        "partition": part.number,
        "committed": old,
        "new": new,
        "effect": effect(old, new, offsets[part]),
    }


def effect(old: int | None, new: int, available: OffsetRange) -> str:
    """What a reset does to the group: from where it would read, to where it will."""
    if old is None:
        return f"set to {new:,} (had none)"
    here = max(old, available.start)
    lost = here - old
    note = f" ({counted(lost, 'record')} lost to retention)" if lost else ""
    if new < here:
        return f"reads {counted(here - new, 'record')} again{note}"
    if new > here:
        return f"skips {counted(new - here, 'record')}{note}"
    return f"set to {new:,}{note}" if lost else "stays"


# --- delete ----------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def delete(
    groups: GroupNames, yes: Yes = False, brokers: Brokers = None, json: Json = False
) -> None:
    """Forget groups and where they were. They must have no live members.

    Example: millstream groups delete readers --yes
    """
    cluster = open_cluster(brokers)
    for group in require_groups(cluster, groups):
        _require_idle(group, doing="delete")
    names = f"group {groups[0]}" if len(groups) == 1 else f"groups {', '.join(groups)}"
    confirm(f"Delete {names} and its committed offsets? This is final.", yes=yes)
    for name in groups:
        cluster.delete_group(name)
    if json:
        print_json([{"group": name, "deleted": True} for name in groups])
    else:
        typer.echo(f"Deleted {names}")
