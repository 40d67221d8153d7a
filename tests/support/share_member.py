"""A member of a share group without a client: it asks a served node for records and settles them.

    ada = ShareMember(served, "workers", "ada")
    ada.fetch()                                # [(0, b"a", 1)]: offset, value, delivery count
    ada.acknowledge((0, 0, ACCEPT))

It joins no group, which shares the partition all the same: fetching asks for that and for a share
session, not for members (api_78_share_fetch.py). Each call fails
the test unless the whole request was understood; what became of a partition is in the answer.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

from millstream.base.record import Record
from millstream.broker.groups.group_state import GroupKind
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.handlers import Peer
from millstream.broker.share.acknowledgement import AcknowledgeType
from millstream.broker.share.share_state import NO_START_OFFSET
from millstream.broker.topics import Topic
from millstream.broker.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from millstream.broker.wire.messages.share_fetch import (
    AcknowledgementBatch as FetchAcknowledgementBatch,
)
from millstream.broker.wire.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from millstream.log.record_batch import decode_records, read_header
from tests.support.served_node import ServedNode

ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)
Said = tuple[int, int, AcknowledgeType]  # first offset, last offset, what became of them
Got = tuple[int, bytes | None, int]  # offset, value, delivery count


class ShareMember:
    """One member, one partition of one topic, one session."""

    def __init__(
        self,
        served: ServedNode,
        group_id: str = "workers",
        member_id: str = "ada",
        *,
        topic: Topic | None = None,
        partition: int = 0,
    ) -> None:
        self.served = served
        self.group_id, self.member_id = group_id, member_id
        self.topic = topic or served.node.topics.named("orders")
        self.partition = partition
        self.peer = Peer("192.0.2.7", 50_000, "127.0.0.1", 9092)
        self.epoch = 0
        share_partitions(served, group_id, self.topic)

    # --- fetch --------------------------------------------------------------------------------

    def fetch(self, *said: Said, **wanted: Any) -> list[Got]:
        """The records that are this member's now."""
        return got(self.fetched(*said, **wanted))

    def fetched(self, *said: Said, **wanted: Any) -> PartitionData:
        answer = self.served.run(self.fetching(*said, **wanted))
        assert answer.error_code == 0, answer.error_message
        return data_of(answer)

    def fetch_soon(self, *said: Said, **wanted: Any) -> "asyncio.Task[ShareFetchResponse]":
        """Ask, and go on."""
        return self.served.start(self.fetching(*said, max_wait_ms=60_000, **wanted))

    async def fetching(self, *said: Said, **wanted: Any) -> ShareFetchResponse:
        request = self.fetch_request(*said, **wanted)
        if self.epoch != -1:
            self.epoch += 1
        answer = await self.served.answer(request, version=2, peer=self.peer)
        return cast(ShareFetchResponse, answer)

    def fetch_request(self, *said: Said, **wanted: Any) -> ShareFetchRequest:
        wanted = {"max_records": 100, "max_bytes": 1 << 20, "batch_size": 100} | wanted
        batches = [
            FetchAcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=[kind]
            )
            for first, last, kind in said
        ]
        partition = FetchPartition(partition_index=self.partition, acknowledgement_batches=batches)
        return ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=self.topic.id, partitions=[partition])],
            **wanted,
        )

    # --- settle -------------------------------------------------------------------------------

    def acknowledge(self, *said: Said, is_renewal: bool = False) -> int:
        """The error code of the partition."""
        answer = self.served.run(self.acknowledging(*said, is_renewal=is_renewal))
        assert answer.error_code == 0, answer.error_message
        [topic] = answer.responses
        [partition] = topic.partitions
        return partition.error_code

    def acknowledge_soon(self, *said: Said) -> "asyncio.Task[ShareAcknowledgeResponse]":
        return self.served.start(self.acknowledging(*said))

    def acknowledge_request(self, *said: Said, is_renewal: bool = False) -> ShareAcknowledgeRequest:
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in said
        ]
        partition = AcknowledgePartition(
            partition_index=self.partition, acknowledgement_batches=batches
        )
        return ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            is_renew_ack=is_renewal,
            topics=[AcknowledgeTopic(topic_id=self.topic.id, partitions=[partition])],
        )

    async def acknowledging(
        self, *said: Said, is_renewal: bool = False
    ) -> ShareAcknowledgeResponse:
        request = self.acknowledge_request(*said, is_renewal=is_renewal)
        if self.epoch != -1:
            self.epoch += 1
        answer = await self.served.answer(request, version=2, peer=self.peer)
        return cast(ShareAcknowledgeResponse, answer)

    def disconnect(self) -> None:
        """The connection is gone."""
        self.served.node.share_partitions.disconnect(id(self.peer))
        self.served.turn()


def share_partitions(served: ServedNode, group_id: str, topic: Topic) -> None:
    """The group shares the topic from now on, if not already; a group of another kind cannot."""
    shares = served.node.groups.shares
    places = [TopicIdPartition(topic.id, number) for number in range(len(topic.partitions))]
    new = [place for place in places if place not in shares.positions(group_id)]
    if new and served.node.groups.kind_of(group_id) in (None, GroupKind.SHARE):
        served.run(shares.set_start(group_id, dict.fromkeys(new, NO_START_OFFSET)))


def set_group_config(served: ServedNode, group_id: str = "workers", **values: str) -> None:
    """Underscores stand for dots."""
    named = {name.replace("_", "."): value for name, value in values.items()}
    served.run(served.node.groups.change_config(group_id, lambda before: before | named))


def letters_in(served: ServedNode, topic: str) -> list[bytes | None]:
    """The values in a dead-letter topic of one partition."""
    log = served.node.topics.named(topic).partitions[0].log
    return [record.value for record in _records_in(log.read(0, bytes_max=1 << 20))]


def data_of(answer: ShareFetchResponse) -> PartitionData:
    """Of the one partition; an answer without it says that there was nothing."""
    for topic in answer.responses:
        return topic.partitions[0]
    return PartitionData()


def got(data: PartitionData) -> list[Got]:
    """What is the member's of the batches that it got, as a client would see it."""
    values = {record.offset: record.value for record in _records(data)}
    return [
        (offset, values[offset], run.delivery_count)
        for run in data.acquired_records
        for offset in range(run.first_offset, run.last_offset + 1)
        if offset in values
    ]


def _records(data: PartitionData) -> Iterator[Record]:
    return _records_in(memoryview(bytes(cast(bytes, data.records or b""))))


def _records_in(span: memoryview) -> Iterator[Record]:
    position = 0
    while position < len(span):
        size = read_header(span, position).size_bytes
        yield from decode_records(span[position : position + size])
        position += size
