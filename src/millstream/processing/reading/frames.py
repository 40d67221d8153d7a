"""Declared topics and tables as DataFrames: the only maker of frames for jobs, tests and benches.

A topic's frame has the columns of its schema, or the raw ones of a record when it has none; with
event time it has a watermark. A table's frame is a changelog: its columns, `_change` ("upsert" or
"delete") and `_order`, which rises with every change of a key. Starts no query.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import BadDeclaration, DeclaredTable, DeclaredTopic, EventTime
from millstream.base.schema import Scalar, Schema
from millstream.processing.operators.changelog import mark_key
from millstream.processing.operators.version_time import mark_version_time
from millstream.processing.reading.event_time import mark_event_time
from millstream.processing.reading.heartbeats import BEAT
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.reading.topic_source import read_topics, stream_topics
from millstream.values.decoder import Decoder

Declared = DeclaredTopic | DeclaredTable


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Who reads, and from where.

    `job` names dead letters and late events, `run` the checkpoint that they were counted for.
    `checkpoint` is where the job's watermark is found: without it nothing is late. `uses_file` says
    which events the job's operators can use; without it each event is judged by its own time.
    `used`: the columns of captured tables that the job looks at, None for all.
    """

    brokers: str
    client: Mapping[str, str] = field(default_factory=dict)
    job: str = ""
    run: str = ""
    checkpoint: str | None = None
    uses_file: str = ""
    records_max: int | None = None
    starting: str = "earliest"
    ending: str = "latest"
    on_bad: str = "dead"
    used: frozenset[str] | None = None


def stream_frame(
    session: SparkSession, declared: Declared, reading: Reading, *, name: str | None = None
) -> DataFrame:
    """The topic as a stream. `name` tells the sources of a job apart in its checkpoint."""
    named = source_name(name or declared.name)
    read = stream_read(declared, reading, source=named)
    frame = _marked(stream_topics(session, read, name=named), declared)
    if read.event_time is None:
        return frame
    return _with_watermark(frame, read.event_time)


def batch_frame(session: SparkSession, declared: Declared, reading: Reading) -> DataFrame:
    """All that is in the topic now, or before `ending`."""
    read = replace(topic_read(declared, reading), ending=reading.ending, on_bad=reading.on_bad)
    frame = _marked(read_topics(session, read), declared)
    return frame if read.event_time is None else mark_event_time(frame, read.event_time.column)


def _marked(frame: DataFrame, declared: Declared) -> DataFrame:
    """A table's frame says what its key is, and since when a row holds: joins need not be told."""
    if isinstance(declared, DeclaredTopic):
        return frame
    keyed = mark_key(frame, declared.key)
    return mark_version_time(keyed, declared.version_time) if declared.version_time else keyed


def stream_read(declared: Declared, reading: Reading, *, source: str) -> TopicRead:
    """A table has no limit: its first batch holds all of it, and joins wait for that."""
    read = topic_read(declared, reading)
    is_table = isinstance(declared, DeclaredTable)
    return replace(
        read,
        records_max=None if is_table else reading.records_max,
        starting="earliest" if is_table else reading.starting,
        beats=read.event_time is not None,
        checkpoint=reading.checkpoint or "",
        uses_file=reading.uses_file,
        source=source,
    )


def topic_read(declared: Declared, reading: Reading) -> TopicRead:
    event_time = declared.event_time if isinstance(declared, DeclaredTopic) else None
    if event_time is not None:
        _require_moment(declared, event_time)
    return TopicRead(
        brokers=reading.brokers,
        topics=(declared.name,),
        decoder=decoder_for(declared, reading.used),
        job=reading.job,
        run=reading.run,
        table_key=declared.key if isinstance(declared, DeclaredTable) else (),
        event_time=event_time,
        on_loss=declared.on_loss if isinstance(declared, DeclaredTopic) else "fail",
        archive=declared.archive if isinstance(declared, DeclaredTopic) else "",
        client=reading.client,
    )


def _require_moment(declared: Declared, event_time: EventTime) -> None:
    found = declared.schema and declared.schema.field(event_time.column)
    if found and found.type is not Scalar.TIMESTAMP:
        raise BadDeclaration(
            f"{declared.name}: event_time={event_time.column!r} is {found.type}: declare it as "
            "TIMESTAMP (in JSON that is ISO 8601 text, or milliseconds since 1970)"
        )


def _with_watermark(frame: DataFrame, event_time: EventTime) -> DataFrame:
    """Heartbeats move the watermark, and are gone after that."""
    marked = mark_event_time(frame, event_time.column, late=event_time.late)
    delayed = marked.withWatermark(
        event_time.column, f"{event_time.watermark_delay_ms} milliseconds"
    )
    return delayed.filter(_is_event(event_time.column)).drop(BEAT)


def _is_event(column: str) -> Column:
    """A condition that Spark moves nowhere, and no other one past it.

    Filters of a job, and those that joins imply (a key that is not null), would else be moved below
    the watermark, and let no heartbeat reach it. Those do not pass what is not deterministic, which
    the number of a task is for Spark.
    """
    is_beat = F.col(f"`{column}`").eqNullSafe(F.col(BEAT))
    return ~is_beat & (F.spark_partition_id() >= 0)


def source_name(name: str) -> str:
    """Spark takes letters, digits and underscores; names that differ must not become the same."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if plain == name else f"{plain}_{zlib.crc32(name.encode()):08x}"


def decoder_for(declared: Declared, used: frozenset[str] | None = None) -> Decoder | None:
    """None for a topic without a schema: its values stay bytes."""
    if declared.schema is None:
        return None
    if declared.encoding == "debezium" and used is not None:
        return _debezium(declared, declared.schema, used | set(declared.key))
    return DECODERS[declared.encoding](declared, declared.schema)


def _json(_declared: Declared, schema: Schema) -> Decoder:
    from millstream.values.json_decoder import JsonDecoder

    return JsonDecoder(schema)


def _avro(_declared: Declared, schema: Schema) -> Decoder:
    from millstream.values.avro_decoder import AvroDecoder  # needs an extra

    return AvroDecoder(schema)


def _raw(declared: Declared, schema: Schema) -> Decoder:
    from millstream.values.raw_decoder import RawDecoder

    column, *others = schema
    if others or column.type not in (Scalar.STRING, Scalar.BINARY):
        raise BadDeclaration(
            f"{declared.name}: raw values are one column, STRING or BINARY, not {schema.ddl}"
        )
    return RawDecoder(column.name, text=column.type is Scalar.STRING)


def _protobuf(declared: Declared, schema: Schema) -> Decoder:
    from millstream.values.protobuf_decoder import ProtobufDecoder  # needs an extra

    assert declared.message is not None, "declared with its message"
    return ProtobufDecoder(declared.message.files, declared.message.name, schema)


def _debezium(declared: Declared, schema: Schema, used: frozenset[str] | None = None) -> Decoder:
    from millstream.values.envelope_decoder import EnvelopeDecoder

    if isinstance(declared, DeclaredTopic):
        raise BadDeclaration(
            f"{declared.name}: encoding='debezium' is of tables: declare it with app.table(...)"
        )
    return EnvelopeDecoder(schema, declared.debezium, used, declared.versions)


DECODERS = {
    "json": _json,
    "avro": _avro,
    "raw": _raw,
    "protobuf": _protobuf,
    "debezium": _debezium,
}
