"""`millstream topics archive`, `archived` and `restore`.

Only the options are here: what they do is in `archiving.py` and `restoring.py`, which need more
imports than a command that starts quickly should have.
"""

from typing import Annotated

import typer

from millstream.commands.options import Brokers, Config, Json
from millstream.commands.produce import Compression


def archive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="A directory, or an address: s3://bucket/folder, gs://bucket/folder.",
        ),
    ],
    all_records: Annotated[
        bool,
        typer.Option("--all", help="Write what is there now, even if it does not fill a file."),
    ] = False,
    allow_gaps: Annotated[
        bool,
        typer.Option(
            "--allow-gaps",
            help="Go on after records that were deleted before they were archived.",
        ),
    ] = False,
    file_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="A file is full with that much, before compression.  [default: 128MiB]",
        ),
    ] = None,
    file_records: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="A file is full with that many records.  [default: 1000000]",
        ),
    ] = None,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Write a topic's new records to Parquet files.

    Each run goes on where the last one ended, wherever that was interrupted. Full files are
    written; the rest waits for the next run, until it is a day old (or half the topic's
    retention), so that a run now and then is enough.

    Example: millstream topics archive clicks --to ./archive --all
    """
    from millstream.commands.archiving import archive_topic, file_limits

    archive_topic(
        topic,
        to=to,
        limits=file_limits(file_bytes, file_records),
        all_records=all_records,
        allow_gaps=allow_gaps,
        brokers=brokers,
        json=json,
    )


def archived(
    at: Annotated[
        str, typer.Option("--at", metavar="PLACE", help="Where the archive is, as for --to.")
    ],
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Otherwise all that are there.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file and compare its checksum.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what an archive holds, and its gaps.

    Needs no broker.

    Example: millstream topics archived clicks --at ./archive --verify
    """
    from millstream.commands.archiving import show_archived

    show_archived(at, topics, verify=verify, json=json)


def restore(
    place: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="Where the archive is, as for --to.")
    ],
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="The archived topic, where there are several."),
    ] = None,
    to_topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="The new topic. Otherwise the same name.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help='Only from here on: an offset, or a time ("7d ago").'),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Only what is before: an offset, or a time."),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Copies of each partition, on a Kafka cluster."),
    ] = None,
    config: Config = [],  # noqa: B006 - typer copies it
    compression: Annotated[
        Compression, typer.Option(metavar="|".join(Compression), help="How batches are packed.")
    ] = Compression.ZSTD,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Write archived records to a new topic.

    It gets the partitions and configs of the archived one, but keeps everything: retention would
    delete old records at once. Order, keys, values, headers and times are as they were; where
    offsets cannot be, a header millstream.offset has the old one. Interrupted, the same command
    goes on where it was.

    Example: millstream topics restore clicks --from ./archive --to-topic clicks-again
    """
    from millstream.commands.restoring import restore_topic

    restore_topic(
        topic,
        place=place,
        to_topic=to_topic,
        since=since,
        until=until,
        replication=replication,
        config=config,
        compression=compression,
        brokers=brokers,
        json=json,
    )
