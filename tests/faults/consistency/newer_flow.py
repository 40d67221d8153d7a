"""A transactional producer of the newer flow (KIP-890), by hand: librdkafka has only the older one.

A write adds its partition to the transaction, and each transaction has an epoch of its own, which
the end of the one before it names. Every request is sent again, as it was, until it is answered:
a broker that was killed in between must take that for the retry it is. Blocking, one request at a
time. It reads nothing and sends no offsets.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from millstream.base.record import Record
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import ErrorCode, Message
from millstream.broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.broker.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.broker.wire.messages.produce import ProduceResponse
from millstream.log.record_batch import TRANSACTIONAL, encode_batch
from tests.faults.consistency.history import Send
from tests.support.raw_client import ConnectionClosed, RawClient, produce_request

M = TypeVar("M", bound=Message)

INIT_PRODUCER_ID_VERSION, PRODUCE_VERSION, END_TXN_VERSION = 5, 12, 5
RETRY_SECONDS = 0.02
ANSWER_SECONDS_MAX = 30.0

TRY_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class Refused(Exception):
    """The broker will not do it: another producer has taken over, or the state is wrong."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"refused with {ErrorCode(code).name}")
        self.code = code


class NewerProducer:
    """One transactional id. `who` is its identity, which changes with each transaction."""

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._client: RawClient | None = None
        self._sequences: Counter[str] = Counter()
        answer = self._ask(
            InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            ),
            InitProducerIdResponse,
            INIT_PRODUCER_ID_VERSION,
        )
        self._who = Identity(answer.producer_id, answer.producer_epoch)

    def send(self, sends: Sequence[Send]) -> list[Send]:
        """Write the records, a batch per partition; returns them with their offsets."""
        partitions = dict.fromkeys(send.partition for send in sends)
        return [
            sent
            for partition in partitions
            for sent in self._send(partition, [one for one in sends if one.partition == partition])
        ]

    def _send(self, name: str, sends: Sequence[Send]) -> Iterable[Send]:
        topic, _, partition = name.partition("/")
        request = produce_request(topic, self._batch(name, sends), partition=int(partition))
        request.transactional_id = self._transactional_id
        answer = self._ask(request, ProduceResponse, PRODUCE_VERSION)
        self._sequences[name] += len(sends)
        base_offset = answer.responses[0].partition_responses[0].base_offset
        return [send._replace(offset=base_offset + n) for n, send in enumerate(sends)]

    def _batch(self, name: str, sends: Sequence[Send]) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        records = [Record(value=send.value.encode(), timestamp_ms=now_ms) for send in sends]
        return bytes(
            encode_batch(
                records,
                producer_id=self._who.producer_id,
                producer_epoch=self._who.epoch,
                base_sequence=self._sequences[name],
                attributes=TRANSACTIONAL,
            )
        )

    def end(self, *, is_commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._who.producer_id,
            producer_epoch=self._who.epoch,
            committed=is_commit,
        )
        answer = self._ask(request, EndTxnResponse, END_TXN_VERSION)
        self._who = Identity(answer.producer_id, answer.producer_epoch)
        self._sequences.clear()

    def _ask(self, request: Message, response_class: type[M], version: int) -> M:
        """The answer, over as many connections as it takes."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                answer = self._connected().call(request, response_class, version)
            except (ConnectionClosed, OSError):
                self._client = None
                code = int(ErrorCode.NOT_COORDINATOR)
            else:
                code = _error_code(answer)
                if code == ErrorCode.NONE:
                    return answer
            if code not in TRY_AGAIN or time.monotonic() > deadline:
                raise Refused(code=code)
            time.sleep(RETRY_SECONDS)

    def _connected(self) -> RawClient:
        if self._client is None:
            self._client = RawClient(self._bootstrap)
        return self._client


def _error_code(answer: Message) -> int:
    if isinstance(answer, ProduceResponse):
        return answer.responses[0].partition_responses[0].error_code
    assert isinstance(answer, InitProducerIdResponse | EndTxnResponse)
    return answer.error_code
