# ShareFetch, versions 1-2.
#   Does:     opens, goes on with and closes share sessions; settles what it acknowledges first;
#             hands out whole batches with the records that are the member's now; waits for some
#             (long poll); acquire modes and renewals (2+).
#   Does not: wait for min_bytes: it answers as soon as there is a record (docs/not_supported.md).
#             Ask whether the member is in the group (as Kafka); but the group must share the
#             partition, or else it is unknown.

import asyncio
from collections.abc import Coroutine
from typing import Any

from millstream.base.errors import MillstreamError
from millstream.broker.apis.api_79_share_acknowledge import (
    InvalidShareRequest,
    member_of,
    settle,
)
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.partition import ServedPartition
from millstream.broker.share.acquisition import AcquireMode, Demand
from millstream.broker.share.share_sessions import (
    CLOSING_EPOCH,
    OPENING_EPOCH,
    SessionKey,
    SessionRequest,
)
from millstream.broker.sharing.served_share import ServedShare
from millstream.broker.sharing.share_reads import HandedOut, ReadBatches, ShareRead
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from millstream.log.segment import ReadWouldBlock

# However much a client asks for, one response holds no more than this (and one batch).
RESPONSE_BYTES_MAX = 4 << 20
# Opening one takes up to some 30 us: after so many, others have their turn.
OPENED_PER_TURN = 200


Places = tuple[TopicIdPartition, ...]


@handles(ApiKey.SHARE_FETCH, versions=range(1, 3), ends_with_connection=True)
def share_fetch(
    request: ShareFetchRequest, call: Call
) -> ShareFetchResponse | Coroutine[Any, Any, ShareFetchResponse]:
    try:
        _check(request)
        member = member_of(request, call)
        known, unknown = _named_places(request, call)
        session = _session_request(request, call, member, known)
        places = call.node.share_partitions.sessions.fetch(session) + unknown
    except MillstreamError as error:
        return ShareFetchResponse(error_code=error_code(error), error_message=error_message(error))
    return _ShareFetch(request, call, member, places).answer()


def _check(request: ShareFetchRequest) -> None:
    wants_records = request.max_records or request.max_bytes or request.max_wait_ms
    if request.is_renew_ack and (wants_records or request.min_bytes):
        raise InvalidShareRequest("it renews locks, and asks for records too")
    if request.share_acquire_mode not in tuple(AcquireMode):
        raise InvalidShareRequest(f"there is no acquire mode {request.share_acquire_mode}")


def _named_places(request: ShareFetchRequest, call: Call) -> tuple[Places, Places]:
    """Those that there are, for the session; and the others, which are told so once."""
    known: list[TopicIdPartition] = []
    unknown: list[TopicIdPartition] = []
    for topic in request.topics:
        for partition in topic.partitions:
            place = TopicIdPartition(topic.topic_id, partition.partition_index)
            is_there = call.node.share_partitions.is_there(place)
            (known if is_there else unknown).append(place)
    return tuple(known), tuple(unknown)


def _session_request(
    request: ShareFetchRequest, call: Call, member: SessionKey, added: Places
) -> SessionRequest:
    return SessionRequest(
        key=member,
        epoch=request.share_session_epoch,
        connection_id=id(call.peer),
        added=added,
        forgotten=frozenset(
            TopicIdPartition(topic.topic_id, number)
            for topic in request.forgotten_topics_data
            for number in topic.partitions
        ),
        has_acknowledgements=any(
            partition.acknowledgement_batches
            for topic in request.topics
            for partition in topic.partitions
        ),
    )


class _ShareFetch:
    """One request on its way: what it settles, then what it gets."""

    def __init__(
        self,
        request: ShareFetchRequest,
        call: Call,
        member: SessionKey,
        places: Places,
    ) -> None:
        self._request = request
        self._call = call
        self._groups = call.groups(member.group_id)
        self._shares = call.node.share_partitions
        self._member = member
        self._places = places
        self._answers: dict[TopicIdPartition, PartitionData] = {}
        self._has_records = False
        self._records_left = request.max_records
        self._bytes_left = min(request.max_bytes, RESPONSE_BYTES_MAX)
        # What there is to wait for, if there is nothing to be had.
        self._seen: list[tuple[ServedShare, ServedPartition]] = []

    async def answer(self) -> ShareFetchResponse:
        request = self._request
        settlements = settle(
            self._call, self._member, request.topics, is_renewal=request.is_renew_ack
        )
        if request.share_session_epoch == CLOSING_EPOCH:
            self._shares.close_session(self._member)
        elif request.max_records > 0:
            await self._fetch()
        for settlement in settlements:
            error = await settlement.error()
            answer = self._answer_of(settlement.place)
            if error is not None:
                answer.acknowledge_error_code = error_code(error)
                answer.acknowledge_error_message = error_message(error)
        return self._response()

    def _response(self) -> ShareFetchResponse:
        if self._request.share_session_epoch == OPENING_EPOCH:
            for place in self._places:
                self._answer_of(place)
        by_topic: dict[bytes, list[PartitionData]] = {}
        for place, answer in self._answers.items():
            by_topic.setdefault(place.topic_id, []).append(answer)
        terms = self._groups.configs.share_terms_of(self._member.group_id)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=terms.lock_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic.items()
            ],
        )

    def _answer_of(self, place: TopicIdPartition) -> PartitionData:
        answer = self._answers.get(place)
        if answer is None:
            answer = self._answers[place] = PartitionData(partition_index=place.partition)
        return answer

    # --- records ------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        """Answer when there is something, or when the client's patience ends."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.max_wait_ms / 1000
        await self._fetch_from_all()
        try:
            while self._must_wait and (seconds := deadline - loop.time()) > 0:
                await self._wait_for_more(seconds)
                await self._fetch_from_all()
        finally:  # also if nobody waits for the answer any more
            for share, partition in self._seen:
                self._shares.wake_if_more(share, partition)

    @property
    def _must_wait(self) -> bool:
        return not self._answers and bool(self._seen) and self._is_open

    async def _fetch_from_all(self) -> None:
        await self._open_all()
        for share, partition in self._seen:
            if self._records_left <= 0 or self._bytes_left <= 0 or not self._is_open:
                return
            try:
                await self._fetch_from(share, partition)
            except MillstreamError as error:
                self._tell(share.place, error)

    async def _open_all(self) -> None:
        self._seen = []
        for number, place in enumerate(self._places, 1):
            seen = self._open(place)
            if seen is not None:
                self._seen.append(seen)
            if number % OPENED_PER_TURN == 0:
                await asyncio.sleep(0)

    def _open(self, place: TopicIdPartition) -> tuple[ServedShare, ServedPartition] | None:
        group_id = self._member.group_id
        try:
            partition = self._call.topics.with_id(place.topic_id).partition(place.partition)
            self._groups.shares.check_shared(group_id, place)
            return self._shares.open(group_id, place, partition), partition
        except MillstreamError as error:
            self._tell(place, error)
            return None

    def _tell(self, place: TopicIdPartition, error: MillstreamError) -> None:
        answer = self._answer_of(place)
        answer.error_code, answer.error_message = error_code(error), error_message(error)

    @property
    def _is_open(self) -> bool:
        """A member whose session has ended meanwhile, or goes on elsewhere, gets nothing here."""
        return self._shares.sessions.is_open(self._member, id(self._call.peer))

    async def _fetch_from(self, share: ServedShare, partition: ServedPartition) -> None:
        await self._shares.until_ready(share)
        while (read := self._next_read(share, partition)) is not None:
            batches = await self._run(read)
            is_too_much = len(batches.span) > self._bytes_left and self._has_records
            if is_too_much or not self._is_open:
                return
            handed_out = self._shares.hand_out(share, batches, self._demand)
            if handed_out is not None:
                partition.sent_bytes += len(handed_out.records)
                self._take(share.place, handed_out)
                return

    def _next_read(self, share: ServedShare, partition: ServedPartition) -> ShareRead | None:
        return self._shares.next_read(
            share, partition, records_max=self._records_left, bytes_max=self._bytes_left
        )

    async def _run(self, read: ShareRead) -> ReadBatches:
        try:
            return read.run(must_not_block=True)
        except ReadWouldBlock:  # the bytes come from the device: let a thread wait for them
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._call.node.read_threads, read.run)

    @property
    def _demand(self) -> Demand:
        return Demand(
            member_id=self._member.member_id,
            records_max=self._records_left,
            batch_size=self._request.batch_size,
            mode=AcquireMode(self._request.share_acquire_mode),
        )

    def _take(self, place: TopicIdPartition, handed_out: HandedOut) -> None:
        answer = self._answer_of(place)
        answer.records = handed_out.records
        self._has_records = True
        answer.acquired_records = [
            AcquiredRecords(
                first_offset=one.offsets.start,
                last_offset=one.offsets.end - 1,
                delivery_count=one.delivery_count,
            )
            for one in handed_out.acquired
        ]
        self._records_left -= sum(len(one.offsets) for one in handed_out.acquired)
        self._bytes_left -= len(handed_out.records)

    async def _wait_for_more(self, seconds: float) -> None:
        """Return when a log has grown, a record came back, or the time is up."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = loop.call_later(seconds, wake)
        for share, partition in self._seen:
            share.wait(wake, partition)
            if share.is_gone or partition.is_closed or self._shares.has_more(share, partition):
                wake()  # it happened between the read and this wait
        try:
            await woken
        finally:
            timer.cancel()
            for share, partition in self._seen:
                share.wait_no_more(wake, partition)
