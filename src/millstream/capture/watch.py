"""What a run of a capture does besides writing changes: it listens to what is wanted of it, looks
at how much the database keeps for it, and tells how it is.
"""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError, Rejected
from millstream.capture.captures_topic import CapturesTopic
from millstream.capture.definition import CaptureDefinition
from millstream.capture.position_record import (
    ALL_TABLES,
    CaptureRecords,
    Note,
    Position,
    is_asked_anew,
    status_note,
)
from millstream.capture.source import Lag, Source
from millstream.capture.status import (
    STATUS_EVERY_MS,
    Rate,
    State,
    Status,
    is_over_limit,
    with_lag,
)
from millstream.capture.streaming import End, Streaming

logger = logging.getLogger(__name__)


class RetainedTooMuch(Rejected):
    """The hard limit is reached. Either the database keeps its log until somebody acts, or it was
    declared that the capture is given up instead."""

    def __init__(self, *, capture: str, retained_bytes: int, limit: int, is_dropped: bool) -> None:
        done = (
            f"What the database kept for it was dropped: `millstream capture reload {capture}` "
            "loads everything anew"
            if is_dropped
            else "It has stopped; the database goes on keeping. Raise the limit: `millstream "
            f"capture add {capture} URL --table ... --retained-max SIZE`; or `millstream capture "
            f"drop {capture}`"
        )
        super().__init__(
            f"the database keeps {retained_bytes:,} bytes of its log for the capture {capture}, "
            f"whose limit is {limit:,}. {done}"
        )
        self.capture, self.retained_bytes, self.limit = capture, retained_bytes, limit
        self.is_dropped = is_dropped


@dataclass(slots=True)
class Teller:
    """Makes the status of one process's runs. `run` is its own from start to end."""

    now_ms: Clock
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    began_ms: int = 0
    told_ms: int = 0
    warned: Sequence[str] = ()
    rate: Rate = field(default_factory=Rate)

    def status(self, state: State, position: Position | None, error: str = "") -> Status:
        self.told_ms = self.now_ms()
        self.began_ms = self.began_ms or self.told_ms
        return Status(
            state=state,
            run=self.run,
            host=socket.gethostname(),
            process=os.getpid(),
            at_ms=self.told_ms,
            since_ms=self.began_ms,
            position=position.resume if position else "",
            commit=position.commit if position else "",
            error=error,
        )

    def is_due(self) -> bool:
        """A clock may be put back."""
        return not 0 <= self.now_ms() - self.told_ms < STATUS_EVERY_MS

    def warn(self, warnings: Sequence[str]) -> None:
        """Once, until it is over."""
        for warning in warnings:
            if not self.warned:
                logger.warning("%s", warning)
        self.warned = warnings


class Watch:
    """The chores of a run."""

    def __init__(
        self,
        definition: CaptureDefinition,
        source: Source,
        captures: CapturesTopic,
        teller: Teller,
        stopping: threading.Event,
    ) -> None:
        self._definition, self._source = definition, source
        self._captures, self._teller, self._stopping = captures, teller, stopping
        self._is_told = False
        self._lag: Lag | None = None

    def look(self, streaming: Streaming) -> End | None:
        if self._stopping.is_set():
            return "stopped"
        while self._captures.follow():
            pass
        records = self._captures.book.of(self._definition.name)
        if must_change(records, self._definition, streaming.position):
            return "changed"
        self._take_up_reloads(records, streaming)
        return None

    def notes(self, streaming: Streaming) -> list[Note]:
        if self._is_told and not self._teller.is_due():
            return []
        self._is_told = True
        return [status_note(self._definition.name, self._status(streaming).to_json())]

    def ended(self, streaming: Streaming) -> Note:
        """So that nobody takes it for one that still runs. The database may be gone by now."""
        told = self._counted("ended", streaming)
        if self._lag is not None:
            told = with_lag(told, self._lag, self._definition)
        return status_note(self._definition.name, told.to_json())

    def _take_up_reloads(self, records: CaptureRecords, streaming: Streaming) -> None:
        for table, request in records.control.reloads.items():
            if table != ALL_TABLES and streaming.position.reloads.get(table) != request:
                logger.info("capture %s: loads %s anew", self._definition.name, table)
                streaming.reload(table, request=request)

    def _status(self, streaming: Streaming) -> Status:
        told = self._counted("streaming" if streaming.loading.is_done else "loading", streaming)
        lag = self._lag = self._source.lag(streaming.position.resume)
        told = with_lag(told, lag, self._definition)
        self._teller.warn(told.warnings)
        act_on_limit(self._definition, self._source, lag)
        return told

    def _counted(self, state: State, streaming: Streaming) -> Status:
        counts = streaming.counts
        return replace(
            self._teller.status(state, streaming.position),
            behind_ms=streaming.behind_ms,
            changes=counts.changes,
            transactions=counts.transactions,
            rows_loaded=counts.rows_loaded,
            changes_per_s=self._teller.rate.at(
                counts.changes + counts.rows_loaded, now_ms=self._teller.now_ms()
            ),
            load=[asdict(one) for one in streaming.loading.progress().tables],
        )


def must_change(records: CaptureRecords, definition: CaptureDefinition, position: Position) -> bool:
    """Whether something is wanted that only another run can be."""
    return (
        records.control.is_dropped
        or records.control.is_paused
        or records.definition != definition
        or is_asked_anew(records.control, position)
    )


def act_on_limit(definition: CaptureDefinition, source: Source, lag: Lag) -> None:
    """As declared; a warning was told before."""
    if not is_over_limit(lag, definition) or definition.at_retained_max == "warn":
        return
    is_dropped = definition.at_retained_max == "drop"
    if is_dropped:
        source.drop()
    raise RetainedTooMuch(
        capture=definition.name,
        retained_bytes=lag.retained_bytes or 0,
        limit=definition.retained_bytes_max or 0,
        is_dropped=is_dropped,
    )


def lag_if_told(source: Source, position: str) -> Lag | None:
    """None while the database cannot be asked."""
    try:
        return source.lag(position)
    except MillstreamError:
        return None
