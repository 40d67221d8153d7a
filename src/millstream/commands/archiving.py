"""What `topics archive` and `archived` do: a topic's history into Parquet files, and a look.

Reads as a client of any Kafka broker. What the archive is made of is in `archive/`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import typer

from millstream.archive.archiver import PartitionRun, WantsTail, archive_range
from millstream.archive.layout import topic_folder
from millstream.archive.manifest import ArchivedPartition, Manifest
from millstream.archive.parquet import Columns, require_pyarrow
from millstream.archive.plan import (
    FILE_BYTES_MAX,
    FILE_RECORDS_MAX,
    FileLimits,
    Source,
    left_to_archive,
    must_write_tail,
    tail_age_ms_max,
)
from millstream.archive.reading import archived_topics, read_checked, require_manifest
from millstream.archive.stores import Store, open_store
from millstream.archive.topic_archive import TopicArchive
from millstream.base.offsets import OffsetRange
from millstream.base.quantity import parse_size
from millstream.commands.cluster import Cluster, open_cluster
from millstream.commands.connecting import Partition
from millstream.commands.options import BadOption
from millstream.commands.output import counted, print_json, print_table, say, terminate_as_interrupt
from millstream.commands.positions import format_time_ms
from millstream.commands.progress import progress_of
from millstream.commands.topic_reader import TopicReader

Advance = Callable[[int], None]


def archive_topic(
    topic: str,
    *,
    to: str,
    limits: FileLimits,
    all_records: bool,
    allow_gaps: bool,
    brokers: str | None,
    json: bool,
) -> None:
    require_pyarrow()
    store = open_store(to)
    cluster = open_cluster(brokers)
    source = read_source(cluster, topic)
    started = time.monotonic()
    try:
        with terminate_as_interrupt(), store.hold(topic_folder(topic)):
            topic_archive = TopicArchive(store, topic)
            _begin(topic_archive, source, allow_gaps=allow_gaps)
            wants_tail = _wants_tail(cluster, topic, all_records=all_records)
            runs = _archive(cluster, topic_archive, source, limits, wants_tail)
    except KeyboardInterrupt:
        say("Stopped. What was archived so far is kept: the next run goes on from there.")
        raise
    seconds = time.monotonic() - started
    _report(store, topic_archive.manifest, runs, seconds=seconds, json=json)


def _begin(topic_archive: TopicArchive, source: Source, *, allow_gaps: bool) -> None:
    is_first = topic_archive.is_new
    _say_gaps(source.topic, topic_archive.begin(source, allow_gaps=allow_gaps))
    _say_spare(topic_archive.spare)
    if is_first:
        _say_late_starts(source)


def _say_spare(places: list[str]) -> None:
    """Only in object stores: what one of two writers at once, or a broken upload, left."""
    for place in places:
        say(
            f"{place} adds nothing to the archive, but programs that read the bare files see it. "
            "Remove it when no archive command runs."
        )


def file_limits(size: str | None, records: int | None) -> FileLimits:
    try:
        bytes_max = FILE_BYTES_MAX if size is None else max(1, parse_size(size))
    except ValueError:
        allowed = "a size such as 128MiB"
        raise BadOption(option="--file-bytes", value=str(size), allowed=allowed) from None
    return FileLimits(records_max=records or FILE_RECORDS_MAX, bytes_max=bytes_max)


def read_source(cluster: Cluster, topic: str) -> Source:
    partitions = cluster.partitions_of([topic])
    config = cluster.configs([topic])[topic]
    return Source(
        topic=topic,
        topic_id=cluster.topic_id(topic),
        config={name: entry.value for name, entry in config.items() if entry.own},
        available={
            part.number: within
            for part, within in cluster.available(partitions, uncommitted=False).items()
        },
    )


def _wants_tail(cluster: Cluster, topic: str, *, all_records: bool) -> WantsTail:
    values = {name: entry.value for name, entry in cluster.configs([topic])[topic].items()}
    age_ms_max = 0 if all_records else tail_age_ms_max(values)
    now_ms = time.time_ns() // 1_000_000
    return lambda first_time_ms: (
        all_records or must_write_tail(first_time_ms, age_ms_max=age_ms_max, now_ms=now_ms)
    )


def _archive(
    cluster: Cluster,
    topic_archive: TopicArchive,
    source: Source,
    limits: FileLimits,
    wants_tail: WantsTail,
) -> list[PartitionRun]:
    left = left_to_archive(topic_archive.manifest, source)
    offsets = sum(map(len, left.values()))
    with closing(TopicReader(cluster)) as reader, progress_of(offsets, "offsets") as advance:
        return [
            archive_range(
                topic_archive,
                number,
                within,
                _counted(reader.read(Partition(source.topic, number), within), within, advance),
                limits=limits,
                wants_tail=wants_tail,
            )
            for number, within in left.items()
        ]


def _counted(chunks: Iterator[Columns], within: OffsetRange, advance: Advance) -> Iterator[Columns]:
    """The same, with word to the progress bar."""
    at = within.start
    for columns in chunks:
        yield columns
        advance(columns.offsets[-1] + 1 - at)
        at = columns.offsets[-1] + 1


def _say_gaps(topic: str, gaps: Mapping[int, OffsetRange]) -> None:
    for number, gap in sorted(gaps.items()):
        lost = counted(len(gap), "offset")
        say(f"GAP: {topic}[{number}] {gap}: {lost} deleted before being archived.")


def _say_late_starts(source: Source) -> None:
    for number, within in sorted(source.available.items()):
        if within.start:
            say(
                f"{source.topic}[{number}] is archived from offset {within.start}: what was before "
                "had been deleted."
            )


def _report(
    store: Store, manifest: Manifest, runs: list[PartitionRun], *, seconds: float, json: bool
) -> None:
    waiting = sum(run.waiting for run in runs)
    if json:
        print_json(_run_to_json(store, manifest, runs) | {"seconds": round(seconds, 3)})
        return
    records = counted(sum(run.records for run in runs), "record")
    files = counted(sum(len(run.files) for run in runs), "file")
    size = format_size_roughly(sum(run.size_bytes for run in runs))
    typer.echo(f"Archived {records} of {manifest.topic} to {store.place}: {files}, {size}")
    if waiting:
        say(f"{counted(waiting, 'record')} wait for a full file; --all writes them now.")


def _run_to_json(store: Store, manifest: Manifest, runs: list[PartitionRun]) -> dict[str, object]:
    return {
        "topic": manifest.topic,
        "place": store.place,
        "records": sum(run.records for run in runs),
        "files": sum(len(run.files) for run in runs),
        "bytes": sum(run.size_bytes for run in runs),
        "waiting": sum(run.waiting for run in runs),
        "partitions": [
            {
                "partition": run.partition,
                "start": run.offsets.start,
                "end": run.offsets.end,
                "records": run.records,
                "files": len(run.files),
                "bytes": run.size_bytes,
                "waiting": run.waiting,
            }
            for run in runs
        ],
        "gaps": [
            {"partition": number, "start": gap.start, "end": gap.end}
            for number, partition in sorted(manifest.partitions.items())
            for gap in partition.gaps
        ],
    }


def format_size_roughly(size_bytes: int) -> str:
    """Three digits are enough to be told: 1.42 MiB."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.4g} TiB"


def show_archived(at: str, topics: list[str] | None, *, verify: bool, json: bool) -> None:
    store = open_store(at)
    manifests = [require_manifest(store, topic) for topic in topics or archived_topics(store)]
    if verify:
        _verify(store, manifests)
    if json:
        print_json([_manifest_to_json(manifest) for manifest in manifests])
    elif not manifests:
        say(f"{store.place} holds no archive. `millstream topics archive TOPIC --to` writes one.")
    else:
        _print_manifests(manifests)
        if verify:
            say("Every file is as it was written.")


def _verify(store: Store, manifests: list[Manifest]) -> None:
    files = [
        (manifest.topic, number, file)
        for manifest in manifests
        for number, partition in sorted(manifest.partitions.items())
        for file in partition.files
    ]
    with progress_of(len(files), "files") as advance:
        for topic, number, file in files:
            read_checked(store, topic, number, file)
            advance(1)


def _print_manifests(manifests: list[Manifest]) -> None:
    rows = [
        [
            manifest.topic,
            number,
            partition.offsets.start,
            partition.offsets.end,
            partition.records,
            len(partition.files),
            format_size_roughly(partition.size_bytes),
            *_times(partition),
            ", ".join(map(str, partition.gaps)) or None,
        ]
        for manifest in manifests
        for number, partition in sorted(manifest.partitions.items())
    ]
    header = ["TOPIC", "PARTITION", "START", "END", "RECORDS", "FILES", "SIZE"]
    print_table([*header, "OLDEST", "NEWEST", "GAPS"], rows)


def _times(partition: ArchivedPartition) -> tuple[str | None, str | None]:
    oldest = [file.time_min_ms for file in partition.files if file.time_min_ms is not None]
    newest = [file.time_max_ms for file in partition.files if file.time_max_ms is not None]
    return (
        format_time_ms(min(oldest)) if oldest else None,
        format_time_ms(max(newest)) if newest else None,
    )


def _manifest_to_json(manifest: Manifest) -> dict[str, object]:
    return {
        "topic": manifest.topic,
        "topic_id": manifest.topic_id,
        "configs": dict(manifest.config),
        "records": manifest.records,
        "partitions": [
            {
                "partition": number,
                "start": partition.offsets.start,
                "end": partition.offsets.end,
                "records": partition.records,
                "files": len(partition.files),
                "bytes": partition.size_bytes,
                "oldest": _times(partition)[0],
                "newest": _times(partition)[1],
                "gaps": [{"start": gap.start, "end": gap.end} for gap in partition.gaps],
            }
            for number, partition in sorted(manifest.partitions.items())
        ],
    }
