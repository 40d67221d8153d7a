# Fetch, versions 4-18.
#   Does:     whole batches of visible records, up to the limits of the request but always one
#             batch (KIP-74); waits for min_bytes (long poll); topic ids (13+); leader epochs;
#             read_committed: up to the last stable offset, with the aborted transactions.
#             fetch sessions (KIP-227, fetch_sessions.py), of which permits are asked each time.
#   Does not: fetches by followers (docs/not_supported.md).

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeAlias

from millstream.base.errors import MillstreamError
from millstream.broker.fetch_sessions import CLOSING_EPOCH, OPENING_EPOCH, FetchSession
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code
from millstream.broker.partition import ServedPartition
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.log.partition_log import end_of_batches
from millstream.log.segment import ReadWouldBlock
from millstream.log.transaction_index import AbortedTransaction as LogAbortedTransaction

# However much a client asks for, one response holds no more than this (and one batch). Larger
# ones cost more per byte (fresh memory for each), and hold it until the client has taken them.
RESPONSE_BYTES_MAX = 4 << 20
READ_COMMITTED = 1
HAS_TOPIC_IDS = 13
NO_RECORDS = memoryview(b"")


@handles(ApiKey.FETCH, versions=range(4, 19), ends_with_connection=True)
def fetch(request: FetchRequest, call: Call) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    try:
        session = _session_of(request, call)
    except MillstreamError as error:
        return FetchResponse(error_code=error_code(error))
    attempt = _Attempt(request, call, session)
    try:
        attempt.read(must_not_block=True)
    except ReadWouldBlock:
        return _read_in_thread(request, call, session)
    if attempt.is_enough or request.max_wait_ms <= 0 or not request.topics:
        return attempt.answer()
    # What was read is let go here, not when the coroutine first runs: many may come at a time.
    return _wait_for_more(request, call, session, attempt.seen, attempt.missing_bytes)


def _session_of(request: FetchRequest, call: Call) -> FetchSession | None:
    """The session that the request opens or goes on with; then it names all partitions of it."""
    sessions, owner, now_ms = call.node.fetch_sessions, call.principal, call.node.now_ms()
    has_ids = call.version >= HAS_TOPIC_IDS
    if request.session_epoch in (OPENING_EPOCH, CLOSING_EPOCH):
        sessions.close(request.session_id, owner=owner)
        if request.session_epoch == CLOSING_EPOCH:
            return None
        return sessions.open(request, owner=owner, has_topic_ids=has_ids, now_ms=now_ms)
    session = sessions.resume(request, owner=owner, has_topic_ids=has_ids, now_ms=now_ms)
    request.topics = session.topics() if session is not None else []
    return session


async def _read_in_thread(
    request: FetchRequest, call: Call, session: FetchSession | None
) -> FetchResponse:
    """The bytes come from the device: let a thread wait for them."""
    loop = asyncio.get_running_loop()
    attempt = _Attempt(request, call, session)
    await loop.run_in_executor(call.node.read_threads, attempt.read)
    return attempt.answer()


async def _wait_for_more(
    request: FetchRequest,
    call: Call,
    session: FetchSession | None,
    seen: list["Seen"],
    missing_bytes: int,
) -> FetchResponse:
    """Answer when min_bytes have arrived, or when the client's patience ends."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    while True:
        await _wait_for_bytes(seen, missing_bytes, deadline - loop.time())
        attempt = _Attempt(request, call, session)
        try:
            attempt.read(must_not_block=True)
        except ReadWouldBlock:
            return await _read_in_thread(request, call, session)
        if attempt.is_enough or loop.time() >= deadline:
            return attempt.answer()
        seen, missing_bytes = attempt.seen, attempt.missing_bytes
        del attempt  # what is there by now is read again after the wait, and takes no memory


async def _wait_for_bytes(seen: list["Seen"], missing_bytes: int, seconds: float) -> None:
    """Return when so many bytes became visible, a partition is gone, or the time is up."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()
    missing = missing_bytes

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def watch(new_bytes: int) -> None:
        nonlocal missing
        missing -= new_bytes
        if missing <= 0 or new_bytes == 0:
            wake()

    timer = loop.call_later(seconds, wake)
    for partition, high_watermark in seen:
        partition.watchers.add(watch)
        if partition.is_closed or partition.log.high_watermark > high_watermark:
            wake()  # it happened between the read and this wait
    try:
        await woken
    finally:
        timer.cancel()
        for partition, _ in seen:
            partition.watchers.discard(watch)


# A partition that was read, and the high watermark that it had then.
Seen: TypeAlias = tuple[ServedPartition, int]


class _Attempt:
    """One pass over the requested partitions."""

    __slots__ = (
        "_call",
        "_has_error",
        "_is_full",
        "_read",
        "_request",
        "_session",
        "response",
        "seen",
        "size_bytes",
    )

    def __init__(self, request: FetchRequest, call: Call, session: FetchSession | None) -> None:
        self._request = request
        self._session = session
        self._call = call
        self._has_error = False
        self._is_full = False  # a partition had records, and there was no room for them
        self.seen: list[Seen] = []
        self._read: list[tuple[FetchPartition, memoryview, int]] = []
        self.size_bytes = 0
        self.response = FetchResponse()

    @property
    def is_committed_only(self) -> bool:
        return self._request.isolation_level == READ_COMMITTED

    @property
    def is_enough(self) -> bool:
        return self._has_error or self.size_bytes >= self._request.min_bytes or self._is_cut

    @property
    def _is_cut(self) -> bool:
        """Whether a limit of the request kept something back: then waiting brings no more."""
        return any(
            end_of_batches(records, wanted.fetch_offset) < end_offset
            for wanted, records, end_offset in self._read
        )

    def answer(self) -> FetchResponse:
        """The response, counted for each partition: what was read and dropped is not."""
        for (partition, _), (_, records, _) in zip(self.seen, self._read, strict=True):
            partition.sent_bytes += len(records)
        if self._session is not None:
            self.response.session_id = self._session.session_id
            news = self._session.news(self.response.responses, is_full=self._is_full)
            if self._request.session_epoch != OPENING_EPOCH:
                self.response.responses = news
        return self.response

    @property
    def missing_bytes(self) -> int:
        """What must become visible before another look is worth it."""
        if self.is_committed_only:
            return 1  # a marker is small, and can show much that came before it
        return max(1, self._request.min_bytes - self.size_bytes)

    def read(self, *, must_not_block: bool = False) -> None:
        for topic in self._request.topics:
            self.response.responses.append(
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=list(self._read_topic(topic, must_not_block)),
                )
            )

    def _read_topic(self, topic: FetchTopic, must_not_block: bool) -> Iterator[PartitionData]:
        for wanted in topic.partitions:
            # Never null, as Kafka: librdkafka cannot read an answer without records, error or not.
            answer = PartitionData(
                partition_index=wanted.partition, high_watermark=-1, records=NO_RECORDS
            )
            try:
                self._read_partition(topic, wanted, answer, must_not_block)
            except MillstreamError as error:
                self._has_error = True
                answer.error_code = error_code(error)
            yield answer

    def _read_partition(
        self, topic: FetchTopic, wanted: FetchPartition, answer: PartitionData, must_not_block: bool
    ) -> None:
        topics = self._call.topics
        has_id = self._call.version >= HAS_TOPIC_IDS
        found = topics.with_id(topic.topic_id) if has_id else topics.named(topic.topic)
        partition = found.partition(wanted.partition)
        log = partition.log
        answer.error_code = check_leader_epoch(wanted.current_leader_epoch, log.leader_epoch)
        if answer.error_code:
            self._has_error = True
            return
        limit = min(self._request.max_bytes, RESPONSE_BYTES_MAX) - self.size_bytes
        answer.last_stable_offset = stable = log.last_stable_offset
        answer.high_watermark = log.high_watermark
        end_offset = stable if self.is_committed_only else answer.high_watermark
        answer.log_start_offset = log.start_offset
        taken = NO_RECORDS
        aborted: list[LogAbortedTransaction] = []
        if limit > 0 or self.size_bytes == 0:
            bytes_max = min(wanted.partition_max_bytes, max(limit, 0))
            if self.is_committed_only:
                records, aborted = log.read_stable(
                    wanted.fetch_offset,
                    bytes_max=bytes_max,
                    end_offset=end_offset,
                    must_not_block=must_not_block,
                )
            else:
                records = log.read(
                    wanted.fetch_offset, bytes_max=bytes_max, must_not_block=must_not_block
                )
            # Only the first batch of a response may be larger than what is left.
            if len(records) <= limit or self.size_bytes == 0:
                answer.records = taken = records
                self.size_bytes += len(records)
            else:
                self._is_full = True
        else:
            self._is_full = True
        self.seen.append((partition, answer.high_watermark))
        self._read.append((wanted, taken, end_offset))
        answer.aborted_transactions = None
        if self.is_committed_only:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in aborted
            ]


def check_leader_epoch(claimed: int, current: int) -> int:
    """What a client believes about our epoch: -1 is nothing at all."""
    if claimed in (-1, current):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if claimed < current else ErrorCode.UNKNOWN_LEADER_EPOCH
