"""Runs one capture until it is told to stop: starts runs, and starts them again.

A run that breaks because the database or the broker is away is followed by another, after a pause
that grows. It begins as the first one did: it fences whoever wrote before it, reads in `_captures`
how far the topics are, and goes on from there. What only a person can mend ends the runner, with
the command to use next. While a capture is paused its runner waits, and watches what the database
keeps for it.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from millstream.base.clock import Clock, system_clock
from millstream.base.errors import Corrupt, MillstreamError, Rejected, Retryable
from millstream.base.log_clients import Client, Topics, WriterFenced
from millstream.capture.approval import Approval, require_approved
from millstream.capture.beginning import Run, begin
from millstream.capture.captures_topic import CapturesTopic, write_wanted
from millstream.capture.change import CapturedTable
from millstream.capture.change_writer import ChangeWriter
from millstream.capture.debezium.records import DebeziumRecords
from millstream.capture.debezium.values import Modes
from millstream.capture.definition import BadDefinition, CaptureDefinition, resolve_url
from millstream.capture.envelope import Envelope
from millstream.capture.load.loading import Loading
from millstream.capture.load.sweep import SweptTopics
from millstream.capture.log_writer import LogWriter
from millstream.capture.opening import open_source
from millstream.capture.position_record import (
    TOPIC,
    CaptureRecords,
    forgetting_notes,
    run_topic,
    status_note,
    unwanted_notes,
)
from millstream.capture.source import Source, SourceInterrupted, TellsPosition
from millstream.capture.status import State, status_from_json, with_lag
from millstream.capture.streaming import End, Streaming
from millstream.capture.watch import Teller, Watch, act_on_limit, lag_if_told

if TYPE_CHECKING:
    from millstream.capture.avro_values import AvroSchemas

logger = logging.getLogger(__name__)

PAUSE_SECONDS_FIRST = 0.1
PAUSE_SECONDS_MAX = 10.0
DOUBLINGS_MAX = 10
# Who waits for an end gets one: 0.1 + 0.2 + ... + 6.4 s, and five times 10 s, after the first.
ONCE_FAILURES_MAX = 12
WATCH_SECONDS = 1.0
LOOKS_FOR_ANOTHER_RUN = 5
OVER: tuple[State, ...] = ("failed", "ended")  # how a run that is over has left its status


class CaptureUnknown(Rejected):
    def __init__(self, *, capture: str) -> None:
        super().__init__(
            f"there is no capture {capture}: `millstream capture add {capture} URL --table NAME` "
            "makes it, `millstream capture list` shows those that there are"
        )
        self.capture = capture


class CaptureTakenOver(Rejected):
    def __init__(self, *, capture: str, host: str, process: int) -> None:
        super().__init__(
            f"the capture {capture} is run by another process now ({process} on {host}). This one "
            "has stopped; nothing was written twice"
        )
        self.capture, self.host, self.process = capture, host, process


class CaptureBroken(Corrupt):
    """What nobody foresaw. Started again it would most likely break again, at the same change."""

    def __init__(self, *, capture: str, error: Exception) -> None:
        super().__init__(
            f"the capture {capture} stopped at an unexpected error, {type(error).__name__}: "
            f"{error}. All changes before it are in the topics, and none after it. Please report "
            f"it with the lines that the capture logged. `millstream capture run {capture}` tries "
            f"again, `millstream capture reload {capture}` loads all tables from scratch"
        )
        self.capture, self.error = capture, error


class OpensSource(Protocol):
    """`known`: the versions of tables that former runs have seen."""

    def __call__(
        self,
        definition: CaptureDefinition,
        *,
        url: str,
        known: Iterable[CapturedTable] = (),
    ) -> Source: ...


class CaptureRunner:
    """`approval`: what this runner's operator allows the capture to be. Without it, or if the topic
    says something else, nothing is opened. `url`: the approved one, with its password."""

    def __init__(
        self,
        client: Client,
        capture: str,
        *,
        approval: Approval | None = None,
        url: str | None = None,
        opens: OpensSource = open_source,
        now_ms: Clock = system_clock,
    ) -> None:
        self._client, self._capture = client, capture
        self._approval, self._url = approval, url
        self._opens, self._now_ms = opens, now_ms
        self._stopping = threading.Event()
        self._teller = Teller(now_ms)
        self._failures = 0
        self._has_begun = False

    def stop(self) -> None:
        """Let the run end after what it has begun; from another thread or a signal's handler."""
        self._stopping.set()

    def run(self, *, once: bool = False) -> End:
        """Why it ended. `once`: when all that is there now is written, or nothing is to be had."""
        while True:
            try:
                end = self._run(once=once)
            except Retryable as error:
                if once and self._failures >= ONCE_FAILURES_MAX:
                    raise
                end = self._wait_after(error)
            if end != "changed":
                return end

    def _wait_after(self, error: MillstreamError) -> End:
        seconds = pause_seconds(self._failures)
        self._failures += 1
        logger.warning("capture %s: %s. Again in %.1f s", self._capture, error, seconds)
        return "stopped" if self._stopping.wait(seconds) else "changed"

    # --- one run ------------------------------------------------------------------------------

    def _run(self, *, once: bool) -> End:
        if not self._has_begun:
            self._leave_run_of_another()
            self._has_begun = True
        with self._opened_log() as (writer, captures):
            records = captures.book.of(self._capture)
            if records.definition is None:
                raise CaptureUnknown(capture=self._capture)
            try:
                with self._opened_run(writer, captures, records, records.definition) as run:
                    return self._run_as_wanted(run, once=once)
            except WriterFenced as error:
                raise self._taken_over(captures, error) from None
            except MillstreamError as error:
                self._tell_error(writer, records, error)
                raise
            except Exception as error:
                logger.exception("capture %s: unexpected error", self._capture)
                broken = CaptureBroken(capture=self._capture, error=error)
                self._tell_error(writer, records, broken)
                raise broken from error

    def _leave_run_of_another(self) -> None:
        """Where this one may open nothing, it would only end a run that does its work."""
        if not {TOPIC, run_topic(self._capture)} <= Topics(self._client).partitions().keys():
            return
        with contextlib.closing(CapturesTopic(self._client, self._capture)) as captures:
            records = captures.read_to_end().of(self._capture)
        if records.definition and records.status and self._is_alive(records.status):
            require_approved(records.definition, self._approval)

    def _is_alive(self, told: Mapping[str, Any]) -> bool:
        status = status_from_json(told)
        return status.state not in OVER and not status.is_stale(now_ms=self._now_ms())

    def _run_as_wanted(self, run: Run, *, once: bool) -> End:
        if run.records.control.is_dropped:
            return self._drop(run)
        if run.records.control.is_paused:
            return self._leave_paused() if once else self._wait_while_paused(run)
        return self._stream(run, once=once)

    def _stream(self, run: Run, *, once: bool) -> End:
        told = self._teller.status("starting", run.records.position, error=last_error(run.records))
        position = begin(run, status_note(self._capture, told.to_json()))
        self._failures = 0
        watch = Watch(run.definition, run.source, run.captures, self._teller, self._stopping)
        with self._opened_loading(run) as loading:
            streaming = Streaming(
                self._capture,
                run.source,
                run.writer,
                run.changes,
                loading,
                watch,
                position=position,
                now_ms=self._now_ms,
            )
            end = streaming.follow(until=self._last_position(run) if once else None)
            if end in ("stopped", "caught up"):
                with contextlib.suppress(MillstreamError):  # all that counts is committed
                    run.writer.note([watch.ended(streaming)])
                    run.writer.commit()
            return end

    def _last_position(self, run: Run) -> str:
        """Where a run that is to end ends. Without tables: where it begins, at the latest."""
        if not run.source.tables():
            logger.warning(
                "capture %s: none of its tables is in the database any more: %s. `millstream "
                "capture drop %s` ends the capture",
                self._capture,
                ", ".join(run.definition.tables),
                self._capture,
            )
        return position_of_now(run.source) or ""

    def forget(self) -> None:
        """Drop the capture without its database: what it made there stays."""
        with self._opened_log() as (writer, captures):
            records = captures.book.of(self._capture)
            writer.note(forgetting_notes(self._capture, records))
            writer.commit()
        write_wanted(self._client, unwanted_notes(self._capture))

    # --- what else may be wanted --------------------------------------------------------------

    def _drop(self, run: Run) -> End:
        """The topics of its tables stay: they are the reader's."""
        run.source.drop()
        run.writer.note(forgetting_notes(self._capture, run.records))
        run.writer.commit()
        write_wanted(self._client, unwanted_notes(self._capture))
        return "dropped"

    def _leave_paused(self) -> End:
        name = self._capture
        told = "capture %s is paused, and wrote nothing: `millstream capture resume %s` goes on"
        logger.warning(told, name, name)
        return "stopped"

    def _wait_while_paused(self, run: Run) -> End:
        self._tell_paused(run)
        while self._is_paused(run):
            if self._teller.is_due():
                self._tell_paused(run)
            if self._stopping.wait(WATCH_SECONDS):
                return "stopped"
            while run.captures.follow():
                pass
        return "changed"

    def _is_paused(self, run: Run) -> bool:
        control = run.captures.book.of(self._capture).control
        return control.is_paused and not control.is_dropped

    def _tell_paused(self, run: Run) -> None:
        position = run.records.position
        status = self._teller.status("paused", position)
        lag = lag_if_told(run.source, position.resume) if position else None
        if lag is not None:
            status = with_lag(status, lag, run.definition)
            self._teller.warn(status.warnings)
            act_on_limit(run.definition, run.source, lag)
        run.writer.note([status_note(self._capture, status.to_json())])
        run.writer.commit()

    def _tell_error(
        self, writer: LogWriter, records: CaptureRecords, error: MillstreamError
    ) -> None:
        """If the log can be written: what broke may be the log itself."""
        state: State = "waiting" if isinstance(error, Retryable) else "failed"
        status = self._teller.status(state, records.position, error=str(error))
        with contextlib.suppress(MillstreamError):
            writer.abort()
            writer.note([status_note(self._capture, status.to_json())])
            writer.commit()

    def _taken_over(self, captures: CapturesTopic, error: WriterFenced) -> MillstreamError:
        """By whom; unless nobody has, and the broker gave up a transaction of ours."""
        for _ in range(LOOKS_FOR_ANOTHER_RUN):
            captures.follow(WATCH_SECONDS)
            told = captures.book.of(self._capture).status
            if told is not None and told.get("run") != self._teller.run:
                other = status_from_json(told)
                return CaptureTakenOver(
                    capture=self._capture, host=other.host, process=other.process
                )
        return SourceInterrupted(str(error))

    @contextlib.contextmanager
    def _opened_log(self) -> Iterator[tuple[LogWriter, CapturesTopic]]:
        """In this order: what is read after the others are fenced stays true."""
        writer = LogWriter(self._client, self._capture)
        with contextlib.closing(writer):
            writer.open()
            with contextlib.closing(CapturesTopic(self._client, self._capture)) as captures:
                captures.read_to_end()
                yield writer, captures

    @contextlib.contextmanager
    def _opened_run(
        self,
        writer: LogWriter,
        captures: CapturesTopic,
        records: CaptureRecords,
        definition: CaptureDefinition,
    ) -> Iterator[Run]:
        known = list(records.schemas.values())
        source = self._opens(definition, url=self._approved_url(definition), known=known)
        with contextlib.closing(source), self._opened_avro(definition) as avro:
            envelope = Envelope(capture=self._capture, kind=source.kind, database=source.database)
            changes = ChangeWriter(
                definition,
                envelope,
                writer,
                known=known,
                now_ms=self._now_ms,
                avro=avro,
                debezium=debezium_records(definition, source),
            )
            yield Run(definition, records, source, writer, captures, changes)

    def _approved_url(self, definition: CaptureDefinition) -> str:
        """Only here is a variable of the environment looked up, and only for what was approved."""
        approval = require_approved(definition, self._approval)
        return self._url or resolve_url(self._capture, approval.url, os.environ)

    @contextlib.contextmanager
    def _opened_avro(self, definition: CaptureDefinition) -> "Iterator[AvroSchemas | None]":
        if definition.encoding != "avro":
            yield None
            return
        from millstream.capture.avro_values import AvroSchemas  # needs fastavro and pyarrow

        with contextlib.closing(AvroSchemas(self._client)) as schemas:
            yield schemas

    @contextlib.contextmanager
    def _opened_loading(self, run: Run) -> Iterator[Loading]:
        with contextlib.closing(SweptTopics(self._client, flush=run.changes.flush)) as topics:
            tables = run.source.tables()
            loading = Loading(
                run.source.loader(),
                topics,
                tables=[run.changes.know(table).table for table in tables],
                states=run.records.loads,
                topic_key=run.changes.topic_key,
                gone=gone_tables(run, {table.name for table in tables}),
                is_past=run.source.is_past,
            )
            with contextlib.closing(loading):
                yield loading


def last_error(records: CaptureRecords) -> str:
    """Of the run before: it is shown until this one has written something, as it may break too."""
    return str((records.status or {}).get("error", ""))


def debezium_records(definition: CaptureDefinition, source: Source) -> DebeziumRecords | None:
    if definition.format != "debezium":
        return None
    if source.kind != "postgresql":
        raise BadDefinition(
            f"the capture {definition.name} cannot write {source.kind} as Debezium does: "
            "format='debezium' is of PostgreSQL. Leave it out: `millstream capture add`"
        )
    return DebeziumRecords(
        name=definition.prefix,
        database=source.database,
        modes=Modes(definition.time_mode, definition.decimal_mode),
        has_schemas=definition.has_schemas,
    )


def gone_tables(run: Run, there: set[str]) -> list[CapturedTable]:
    """Those of the capture that former runs knew, and that are not there now.

    Their topics are emptied, and the names of these come from a topic: so only the capture's own.
    """
    own = f"{run.definition.prefix}."
    return [
        table
        for name, table in run.records.tables.items()
        if name not in there
        and run.definition.has_table(name)
        and table.topic.startswith(own)
        and run.writer.has_topic(table.topic)
    ]


def position_of_now(source: Source) -> str | None:
    """What was committed before is before it: so a loader's chunk says. All tables may be gone;
    None: then the database does not tell."""
    tables = sorted(source.tables(), key=lambda table: not table.key)
    if not tables:
        return source.position_now() if isinstance(source, TellsPosition) else None
    with contextlib.closing(source.loader()) as loader:
        return loader.read(tables[0], None, None, 1).closes_at


def pause_seconds(failures: int) -> float:
    """Before a run after this many that failed in a row."""
    return min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_FIRST * 2.0 ** min(failures, DOUBLINGS_MAX))
