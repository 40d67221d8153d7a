"""`millstream topics`: list, create, describe, alter, delete, add partitions, trim."""

import time
from typing import Annotated

import typer

from millstream.base.errors import Rejected
from millstream.base.offsets import OffsetRange
from millstream.base.quantity import format_duration_ms, format_size
from millstream.commands.cluster import Cluster, ConfigValue, open_cluster, retention_from
from millstream.commands.connecting import Partition, RefusedByBroker, require_not_internal
from millstream.commands.options import BadUsage, Brokers, Config, Json, Yes, parse_topic_configs
from millstream.commands.output import confirm, counted, print_json, print_table, say
from millstream.commands.plain_help import PlainCommand
from millstream.commands.positions import AtOffset, AtTime, Latest, format_time_ms, parse_position

app = typer.Typer(no_args_is_help=True, help="List, create, change and delete topics.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more topics.")]


class NothingToDo(Rejected):
    pass


@app.command("list", cls=PlainCommand)
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Show the broker's own topics too.")
    ] = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """List topics with their partitions, records and retention.

    Records are counted as the offsets from the first to the last: compaction and transactions
    leave gaps, so that fewer may be there.

    Example: millstream topics list --json
    """
    cluster = open_cluster(brokers)
    names = [name for name in cluster.topic_names() if internal or not name.startswith("__")]
    offsets = cluster.available(cluster.partitions_of(names))
    configs = cluster.visible_configs(names)
    found = [_summary(name, offsets, configs.get(name)) for name in names]
    if json:
        print_json(found)
    elif not found:
        say("No topics yet. Create one with `millstream topics create NAME`.")
    else:
        rows = [
            [row["topic"], row["partitions"], row["records"], row["retention"] or "-"]
            for row in found
        ]
        print_table(["TOPIC", "PARTITIONS", "RECORDS", "RETENTION"], rows)
    if not json:
        _say_troubles(cluster)


def _say_troubles(cluster: Cluster) -> None:
    for trouble in cluster.troubles():
        say(f"warning: {trouble}")


@app.command(cls=PlainCommand)
def create(
    topics: Topics,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many. Otherwise the broker's default."),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Copies of each partition, on a Kafka cluster."),
    ] = None,
    config: Config = [],  # noqa: B006 - typer copies it
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="A topic that exists is left as it is.")
    ] = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Create topics.

    Example: millstream topics create clicks --partitions 3 --config retention.ms=30d
    """
    configs = parse_topic_configs(config)
    cluster = open_cluster(brokers)
    created = []
    for topic in topics:
        try:
            cluster.create_topic(
                topic, partitions=partitions or -1, replication=replication or -1, config=configs
            )
            created.append(topic)
        except RefusedByBroker as error:
            if not (if_missing and error.code == "TOPIC_ALREADY_EXISTS"):
                raise
    _report_created(cluster, topics, created, json=json)
    for topic in cluster.visible_topics(created) if replication else ():
        kept = len(cluster.layout(topic)[0].replicas)
        if kept != replication:
            say(f"Topic {topic}: --replication {replication} was asked, the broker keeps {kept}.")


def _report_created(cluster: Cluster, topics: list[str], created: list[str], *, json: bool) -> None:
    counts, configs = cluster.visible_topics(topics), cluster.visible_configs(topics)
    if json:
        print_json(
            [{"topic": t, "partitions": counts.get(t), "created": t in created} for t in topics]
        )
        return
    for topic in topics:
        did = "Created topic" if topic in created else "Topic exists already:"
        seen = [counted(counts[topic], "partition")] if topic in counts else []
        seen += [f"retention {retention_from(configs[topic])}"] if topic in configs else []
        typer.echo(f"{did} {topic}{': ' if seen else ''}{', '.join(seen)}")


@app.command(cls=PlainCommand)
def describe(
    topics: Topics,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Show defaults too, not only what the topic sets.")
    ] = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Show a topic's configs and partitions.

    Each partition with its offsets, its newest record, and where its copies are. Configs are left
    out where you may not see them (describe-configs).

    Example: millstream topics describe clicks
    """
    cluster = open_cluster(brokers)
    offsets = cluster.available(cluster.partitions_of(topics))
    newest = cluster.newest_times_ms(offsets)
    configs = cluster.visible_configs(topics)
    described = [
        _description(cluster, topic, offsets, newest, configs.get(topic)) for topic in topics
    ]
    if json:
        print_json(described)
        return
    for position, (topic, description) in enumerate(zip(topics, described, strict=True)):
        if position:
            typer.echo("")
        _print_description(description, configs.get(topic, {}), all_configs=all_configs)
    _say_troubles(cluster)


def _summary(
    topic: str, offsets: dict[Partition, OffsetRange], config: dict[str, ConfigValue] | None
) -> dict[str, object]:
    """`config` is None where the caller may not see it."""
    own = [within for part, within in offsets.items() if part.topic == topic]
    retention = None if config is None else retention_from(config)
    return {
        "topic": topic,
        "partitions": len(own),
        "records": sum(map(len, own)),
        "retention": str(retention) if retention else None,
        "retention_ms": retention.retention_ms if retention else None,
        "retention_bytes": retention.retention_bytes if retention else None,
        "cleanup_policy": retention.cleanup_policy if retention else None,
    }


def _description(
    cluster: Cluster,
    topic: str,
    offsets: dict[Partition, OffsetRange],
    newest: dict[Partition, int | None],
    config: dict[str, ConfigValue] | None,
) -> dict[str, object]:
    layout = cluster.layout(topic)
    parts = []
    for place in layout:
        within, at = offsets[Partition(topic, place.number)], newest[Partition(topic, place.number)]
        parts.append(
            {
                "partition": place.number,
                "start": within.start,
                "end": within.end,
                "records": len(within),
                "newest": None if at is None else format_time_ms(at),
                "leader": place.leader,
                "replicas": list(place.replicas),
                "in_sync": list(place.in_sync),
            }
        )
    return _summary(topic, offsets, config) | {
        "configs": None if config is None else _own_values(config),
        "partition_details": parts,
    }


def _own_values(config: dict[str, ConfigValue]) -> dict[str, str]:
    return {name: entry.value for name, entry in sorted(config.items()) if entry.own}


def _print_description(
    description: dict[str, object], config: dict[str, ConfigValue], *, all_configs: bool
) -> None:
    typer.secho(f"Topic {description['topic']}", bold=True)
    typer.echo(f"  records    {description['records']:,}")
    typer.echo(f"  retention  {description['retention'] or '-'}")
    for name, entry in sorted(config.items()):
        if entry.own or all_configs:
            mark = "" if entry.own else "  (default)"
            typer.echo(f"  {name} = {in_words(name, entry.value)}{mark}")
    typer.echo("")
    details = description["partition_details"]
    assert isinstance(details, list)  # ours, from _description
    rows = [
        [
            part["partition"],
            part["start"],
            part["end"],
            part["records"],
            part["newest"],
            part["leader"],
            ",".join(map(str, part["replicas"])),
            ",".join(map(str, part["in_sync"])) or "none",
        ]
        for part in details
    ]
    header = ["PARTITION", "START", "END", "RECORDS", "NEWEST", "LEADER", "REPLICAS", "IN SYNC"]
    print_table(header, rows)


def in_words(name: str, value: str | None) -> str:
    """A config's value as a person would say it; what has no unit stays as it is."""
    if value is None or not name.endswith((".ms", ".bytes")):
        return value or "-"
    if value == "-1":
        return "forever" if name.endswith(".ms") else "unlimited"
    if not value.isdigit() or int(value) >= 2**62:  # -2 and the like: Kafka's special values
        return value
    return format_duration_ms(int(value)) if name.endswith(".ms") else format_size(int(value))


@app.command(cls=PlainCommand)
def alter(
    topic: Topic,
    config: Config = [],  # noqa: B006 - typer copies it
    unset: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Go back to the broker's default. Repeatable."),
    ] = [],  # noqa: B006 - typer copies it
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Change a topic's configs.

    Example: millstream topics alter clicks --config retention.ms=7d --unset segment.bytes
    """
    changes: dict[str, str | None] = {**parse_topic_configs(config), **dict.fromkeys(unset)}
    if not changes:
        raise BadUsage("Nothing to change: give --config or --unset")
    cluster = open_cluster(brokers)
    cluster.require_topics([topic])
    before = cluster.configs([topic])[topic]
    cluster.alter_config(topic, changes)
    after = cluster.configs([topic])[topic]
    rows = [
        {
            "config": name,
            "before": _value_of(before, name),
            "after": value or _value_of(after, name),
        }
        for name, value in changes.items()
    ]
    if json:
        print_json({"topic": topic, "changes": rows})
        return
    for row in rows:
        name = str(row["config"])
        typer.echo(f"{topic}: {name} = {in_words(name, row['before'])} -> ", nl=False)
        typer.echo(in_words(name, row["after"]))


def _value_of(config: dict[str, ConfigValue], name: str) -> str | None:
    return config[name].value if name in config else None


@app.command(cls=PlainCommand)
def delete(topics: Topics, yes: Yes = False, brokers: Brokers = None, json: Json = False) -> None:
    """Delete topics with all their records.

    Example: millstream topics delete clicks --yes
    """
    require_not_internal(topics)
    cluster = open_cluster(brokers)
    offsets = cluster.available(cluster.partitions_of(topics))
    records = sum(map(len, offsets.values()))
    names = f"topic {topics[0]}" if len(topics) == 1 else f"topics {', '.join(topics)}"
    confirm(f"Delete {names} with {counted(records, 'record')}? This is final.", yes=yes)
    for topic in topics:
        cluster.delete_topic(topic)
    if json:
        print_json([{"topic": topic, "deleted": True} for topic in topics])
    else:
        typer.echo(f"Deleted {names} with {counted(records, 'record')}")


@app.command("add-partitions", cls=PlainCommand)
def add_partitions(
    topic: Topic,
    to: Annotated[
        int, typer.Option("--to", min=1, metavar="N", help="How many it shall have in total.")
    ],
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Give a topic more partitions. There is no way back to fewer.

    Example: millstream topics add-partitions clicks --to 6
    """
    cluster = open_cluster(brokers)
    before = cluster.require_topics([topic])[topic]
    if to <= before:
        raise NothingToDo(
            f"Topic {topic} has {counted(before, 'partition')} already: give more with --to"
        )
    cluster.add_partitions(topic, total=to)
    if json:
        print_json({"topic": topic, "before": before, "after": to})
        return
    typer.echo(f"Topic {topic}: {before} -> {to} partitions")
    say("New records with a key may go to another partition than older ones with that key.")


@app.command(cls=PlainCommand)
def trim(
    topic: Topic,
    before: Annotated[
        str, typer.Option(metavar="PLACE", help='An offset, "latest", or a time ("7d ago").')
    ],
    partition: Annotated[
        list[int], typer.Option(min=0, metavar="P", help="Only this partition. Repeatable.")
    ] = [],  # noqa: B006 - typer copies it
    yes: Yes = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Delete the records before an offset or a time.

    Example: millstream topics trim clicks --before 2026-07-01
    """
    place = parse_position(
        before,
        option="--before",
        allowed=(AtOffset, Latest, AtTime),
        now_ms=time.time_ns() // 1_000_000,
    )
    cluster = open_cluster(brokers)
    offsets = cluster.available(cluster.choose_partitions([topic], partition))
    starts = cluster.resolve(place, offsets)
    gone = {part: starts[part] - within.start for part, within in offsets.items()}
    if not json:
        rows = [[p.number, offsets[p].start, starts[p], gone[p]] for p in offsets]
        print_table(["PARTITION", "START", "NEW START", "DELETES"], rows)
    if any(gone.values()):
        total = counted(sum(gone.values()), "record")
        confirm(f"Delete {total} from {topic}? This is final.", yes=yes)
        cluster.trim({part: starts[part] for part in offsets if gone[part]})
    if json:
        print_json(
            [
                {"topic": topic, "partition": p.number, "start": starts[p], "deleted": gone[p]}
                for p in offsets
            ]
        )
    else:
        typer.echo(f"Deleted {counted(sum(gone.values()), 'record')} from {topic}")
