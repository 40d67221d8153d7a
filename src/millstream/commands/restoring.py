"""What `topics restore` does: archived records into a new topic.

Finds the archive, makes the topic and says what came of it; `topic_restorer.py` writes.
"""

import time
from contextlib import closing

import typer

from millstream.archive.manifest import Manifest
from millstream.archive.parquet import require_pyarrow
from millstream.archive.reading import archived_topics, require_manifest
from millstream.archive.restored import RESTORING_CONFIG, restored_config, restored_records
from millstream.archive.selection import Selection, keeps_offsets
from millstream.archive.stores import Store, open_store
from millstream.base.errors import Rejected
from millstream.base.quantity import INT64_MAX
from millstream.commands.cluster import Cluster, open_cluster
from millstream.commands.connecting import Partition, require_not_internal
from millstream.commands.options import BadUsage, parse_topic_configs
from millstream.commands.output import counted, print_json, say, terminate_as_interrupt
from millstream.commands.positions import AtOffset, AtTime, parse_position
from millstream.commands.produce import Compression
from millstream.commands.progress import progress_of
from millstream.commands.topic_restorer import HoldsOtherRecords, Restorer

# Requests of a restore that was killed may still be on their way into the topic.
SETTLED_SECONDS = 1.0


class TooFewPartitions(Rejected):
    def __init__(self, *, topic: str, has: int, needs: int) -> None:
        super().__init__(
            f"Topic {topic} has {counted(has, 'partition')}, the archive {needs}: run `millstream "
            f"topics add-partitions {topic} --to {needs}`, or restore to a new topic with "
            "--to-topic"
        )
        self.topic, self.has, self.needs = topic, has, needs


def restore_topic(
    topic: str | None,
    *,
    place: str,
    to_topic: str | None,
    since: str | None,
    until: str | None,
    replication: int | None,
    config: list[str],
    compression: Compression,
    brokers: str | None,
    json: bool,
) -> None:
    require_pyarrow()
    selection = select(since, until, now_ms=time.time_ns() // 1_000_000)
    configs = parse_topic_configs(config)
    store = open_store(place)
    manifest = require_manifest(store, topic or _only_topic(store))
    target = to_topic or manifest.topic
    require_not_internal([target])
    cluster = open_cluster(brokers)
    ends = prepare(cluster, manifest, target, config=configs, replication=replication or -1)
    started = time.monotonic()
    try:
        with terminate_as_interrupt(), closing(Restorer(cluster, target, compression)) as restorer:
            _restore(restorer, store, manifest, selection, ends)
    except KeyboardInterrupt:
        say(f"Stopped. What reached {target} so far is kept: the same command goes on from there.")
        raise
    seconds = time.monotonic() - started
    _report(store, manifest, target, selection, ends, restorer, seconds=seconds, json=json)


def select(since: str | None, until: str | None, *, now_ms: int) -> Selection:
    start, since_ms = _bound(since, option="--since", now_ms=now_ms)
    end, until_ms = _bound(until, option="--until", now_ms=now_ms)
    last = INT64_MAX if end is None else end
    return Selection(start=start or 0, end=last, since_ms=since_ms, until_ms=until_ms)


def _bound(text: str | None, *, option: str, now_ms: int) -> tuple[int | None, int | None]:
    """An offset or a time in milliseconds; at most one of them is given."""
    if text is None:
        return None, None
    place = parse_position(text, option=option, allowed=(AtOffset, AtTime), now_ms=now_ms)
    if isinstance(place, AtOffset):
        return place.offset, None
    return None, place.time_ms if isinstance(place, AtTime) else None


def _only_topic(store: Store) -> str:
    topics = archived_topics(store)
    if len(topics) == 1:
        return topics[0]
    if topics:
        raise BadUsage(f"{store.place} holds {', '.join(topics)}: say which, `restore TOPIC`")
    raise BadUsage(f"{store.place} holds no archive")


# The target


def prepare(
    cluster: Cluster, manifest: Manifest, target: str, *, config: dict[str, str], replication: int
) -> dict[int, int]:
    """Create the topic if it is not there; returns where each partition ends."""
    needs = max(manifest.partitions, default=0) + 1
    if target not in cluster.topic_names():
        wanted = restored_config(manifest.config) | config
        cluster.create_topic(target, partitions=needs, replication=replication, config=wanted)
        _say_changed_configs(manifest, wanted, target)
        return dict.fromkeys(range(needs), 0)
    has = cluster.require_topics([target])[target]
    if has < needs:
        raise TooFewPartitions(topic=target, has=has, needs=needs)
    _say_retention(cluster, target)
    return settled_ends(cluster, target)


def _say_changed_configs(manifest: Manifest, wanted: dict[str, str], target: str) -> None:
    changed = [name for name in RESTORING_CONFIG if wanted[name] != manifest.config.get(name)]
    before = [
        f"--config {name}={manifest.config[name]}" for name in changed if name in manifest.config
    ]
    if before:
        say(
            f"{target} keeps every record. To give it its old rules when it is restored: "
            f"`millstream topics alter {target} {' '.join(before)}`."
        )


def _say_retention(cluster: Cluster, target: str) -> None:
    retention = cluster.retentions([target])[target]
    if retention.by_time:
        say(
            f"{target} was there before, with retention {retention}: older records go soon. To "
            f"keep them: `millstream topics alter {target} --config retention.ms=-1`."
        )


def settled_ends(cluster: Cluster, target: str) -> dict[int, int]:
    """The end of each partition, once nothing is on its way into them any more."""
    before, ends = None, _ends(cluster, target)
    while ends != before:
        time.sleep(SETTLED_SECONDS)
        before, ends = ends, _ends(cluster, target)
    return ends


def _ends(cluster: Cluster, target: str) -> dict[int, int]:
    offsets = cluster.available(cluster.partitions_of([target]))
    return {part.number: within.end for part, within in offsets.items()}


# The records


def _restore(
    restorer: "Restorer",
    store: Store,
    manifest: Manifest,
    selection: Selection,
    ends: dict[int, int],
) -> None:
    """Every partition is compared before the first record is written."""
    for number in sorted(ends):
        if ends[number] and number not in manifest.partitions:
            part = Partition(restorer.target, number)
            raise HoldsOtherRecords(partition=part, reason="the archive has no such partition")
    with progress_of(manifest.records, "records") as advance:
        for number in sorted(manifest.partitions):
            records = restored_records(store, manifest, number, selection)
            restorer.check(number, records, done=ends[number], advance=advance)
        for number in sorted(manifest.partitions):
            records = restored_records(store, manifest, number, selection)
            restorer.restore(number, records, done=ends[number], advance=advance)
        restorer.flush()


def _report(
    store: Store,
    manifest: Manifest,
    target: str,
    selection: Selection,
    ends: dict[int, int],
    restorer: Restorer,
    *,
    seconds: float,
    json: bool,
) -> None:
    if restorer.moved_times:
        moved = counted(restorer.moved_times, "record")
        say(f"{moved} without a time, or of 1970-01-01T00:00:00.000Z, got one millisecond later.")
    same_offsets = {n: keeps_offsets(p, selection) for n, p in manifest.partitions.items()}
    before = sum(ends[number] for number in manifest.partitions)
    if json:
        print_json(
            {
                "topic": target,
                "archived_topic": manifest.topic,
                "place": store.place,
                "restored": restorer.restored,
                "were_there": before,
                "seconds": round(seconds, 3),
                "partitions": [
                    {
                        "partition": number,
                        "start": ends[number],
                        "end": restorer.due[number],
                        "same_offsets": same_offsets[number],
                    }
                    for number in sorted(manifest.partitions)
                ],
            }
        )
        return
    there = f" ({before:,} were there already)" if before else ""
    typer.echo(f"Restored {counted(restorer.restored, 'record')} to {target}{there}")
    if not all(same_offsets.values()):
        say("Offsets are new; the header millstream.offset of each record has the old one.")
