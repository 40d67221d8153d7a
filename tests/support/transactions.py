"""A transactional producer and a `read_committed` reader, on a node without sockets.

    producer = Producer(served, "tx", flow=Flow.EPOCH_PER_TRANSACTION)
    producer.send("orders", b"a")
    producer.commit()
    assert read_committed(served, "orders") == [b"a"]

Both speak in requests, as clients do, in the older flow (partitions are added first) or the newer.
"""

from collections import defaultdict
from enum import Enum
from typing import Any

from millstream.base.record import Record
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from millstream.broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from millstream.broker.wire.messages.end_txn import EndTxnRequest
from millstream.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.broker.wire.messages.init_producer_id import InitProducerIdRequest
from millstream.broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from millstream.broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millstream.log.record_batch import (
    TRANSACTIONAL,
    decode_records,
    encode_batch,
    read_header,
    read_marker,
)
from tests.support.batches import split
from tests.support.served_node import ServedNode

READ_COMMITTED = 1
MIB = 1 << 20


class Flow(Enum):
    """The versions of Produce, EndTxn and TxnOffsetCommit that a client uses."""

    PARTITIONS_FIRST = (11, 4, 4)
    EPOCH_PER_TRANSACTION = (12, 5, 5)

    @property
    def adds_first(self) -> bool:
        return self is Flow.PARTITIONS_FIRST


class Producer:
    """Every call returns the error code of its answer (0 is none)."""

    def __init__(
        self,
        served: ServedNode,
        name: str = "tx",
        flow: Flow = Flow.EPOCH_PER_TRANSACTION,
        *,
        timeout_ms: int = 60_000,
    ) -> None:
        self.served, self.name, self.flow, self.timeout_ms = served, name, flow, timeout_ms
        self.who = Identity(-1, -1)
        self._sequences: dict[tuple[str, int], int] = defaultdict(int)

    def init(self, claimed: Identity = Identity(-1, -1)) -> int:  # noqa: B008 - a value
        answer = self.served.ask(
            InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=claimed.producer_id,
                producer_epoch=claimed.epoch,
            )
        )
        if not answer.error_code:
            self._go_on_as(answer)
        return int(answer.error_code)

    def _go_on_as(self, answer: Any) -> None:
        now = Identity(answer.producer_id, answer.producer_epoch)
        if now != self.who:
            self._sequences.clear()
        self.who = now

    def add(self, *topics: str, partition: int = 0) -> int:
        answer = self.served.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.who.producer_id,
                v3_and_below_producer_epoch=self.who.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=[partition]) for topic in topics
                ],
            )
        )
        result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return int(result.partition_error_code)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Adds the partition first, where the flow wants that."""
        code = self.add(topic, partition=partition) if self.flow.adds_first else 0
        return code or self.write(topic, *values, partition=partition)

    def write(self, topic: str, *values: bytes, partition: int = 0) -> int:
        key = (topic, partition)
        records = [Record(value=value, timestamp_ms=self.served.now_ms) for value in values]
        data = encode_batch(
            records,
            producer_id=self.who.producer_id,
            producer_epoch=self.who.epoch,
            base_sequence=self._sequences[key],
            attributes=TRANSACTIONAL,
        )
        place = PartitionProduceData(index=partition, records=data)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            topic_data=[TopicProduceData(name=topic, partition_data=[place])],
        )
        answer = self.served.ask(request, self.flow.value[0])
        code = int(answer.responses[0].partition_responses[0].error_code)
        if not code:
            self._sequences[key] += len(values)
        return code

    def send_offset(self, topic: str, offset: int, *, group: str = "readers") -> int:
        if self.flow.adds_first:
            code = self.served.ask(
                AddOffsetsToTxnRequest(
                    transactional_id=self.name,
                    producer_id=self.who.producer_id,
                    producer_epoch=self.who.epoch,
                    group_id=group,
                )
            ).error_code
            if code:
                return int(code)
        return self.write_offset(topic, offset, group=group)

    def write_offset(
        self, topic: str, offset: int, *, group: str = "readers", **member: Any
    ) -> int:
        place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.who.producer_id,
            producer_epoch=self.who.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
            **member,
        )
        answer = self.served.ask(request, self.flow.value[2])
        return int(answer.topics[0].partitions[0].error_code)

    def commit(self) -> int:
        return self.end(is_commit=True)

    def abort(self) -> int:
        return self.end(is_commit=False)

    def end(self, *, is_commit: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.who.producer_id,
            producer_epoch=self.who.epoch,
            committed=is_commit,
        )
        answer = self.served.ask(request, self.flow.value[1])
        if not answer.error_code and not self.flow.adds_first:
            self._go_on_as(answer)
        return int(answer.error_code)


def fetch(
    served: ServedNode,
    topic: str,
    *,
    partition: int = 0,
    offset: int = 0,
    isolation: int = 0,
) -> Any:
    """The answer for one partition."""
    place = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=MIB)
    request = FetchRequest(
        topics=[FetchTopic(topic=topic, partitions=[place])], isolation_level=isolation
    )
    return served.ask(request, 12).responses[0].partitions[0]


def read_committed(served: ServedNode, topic: str, *, partition: int = 0) -> list[bytes | None]:
    """The values that a `read_committed` consumer hands out, answer by answer."""
    log = served.node.topics.named(topic).partition(partition).log
    values: list[bytes | None] = []
    offset = log.start_offset
    while True:
        part = fetch(served, topic, partition=partition, offset=offset, isolation=READ_COMMITTED)
        assert part.error_code == 0, part
        if not part.records:
            return values
        values += _committed_values(part)
        offset = [read_header(batch).last_offset + 1 for batch in split(part.records)][-1]


def _committed_values(part: Any) -> list[bytes | None]:
    """Without those of aborted transactions, which the answer names (KIP-98)."""
    waiting = sorted(
        ((one.first_offset, one.producer_id) for one in part.aborted_transactions), reverse=True
    )
    aborted: set[int] = set()
    values: list[bytes | None] = []
    for batch in split(memoryview(part.records)):
        header = read_header(batch)
        while waiting and waiting[-1][0] <= header.last_offset:
            aborted.add(waiting.pop()[1])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            values += [record.value for record in decode_records(batch)]
    return values


def read_all(served: ServedNode, topic: str, *, partition: int = 0) -> list[bytes | None]:
    """The values that a `read_uncommitted` consumer hands out."""
    part = fetch(served, topic, partition=partition)
    return [
        record.value
        for batch in split(memoryview(part.records))
        if not read_header(batch).is_control
        for record in decode_records(batch)
    ]
