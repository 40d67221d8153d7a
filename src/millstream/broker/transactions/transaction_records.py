"""Records of the topic `__transaction_state`, in Kafka's layouts.

    key 0  TransactionLogKey    transactional id    -> TransactionLogValue, version 1

Each starts with its version as int16. A null value removes the id. Kafka's own formatter for this
topic reads them.
"""

from millstream.base.errors import Corrupt
from millstream.broker.transactions.transaction import Place, Transaction, TransactionState
from millstream.broker.wire import MalformedMessage, decode_versioned, encode_versioned
from millstream.broker.wire.message import Message, field

KEY_VERSION = 0
VALUE_VERSION = 1
EPOCH_PER_TRANSACTION_VERSION = 2

# Kafka's numbers for the states.
STATE_NUMBERS = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
STATE_OF_NUMBER = {number: state for state, number in STATE_NUMBERS.items()}


class TransactionLogKey(Message, versions="0"):
    transactional_id: str = field("string", "0+", default="")


class TransactionPartitions(Message):
    topic: str = field("string", "0+", default="")
    partition_ids: list[int] = field(["int32"], "0+", default_factory=list)


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = field("int64", "0+", default=0)
    previous_producer_id: int = field("int64", "1+", tag=0, default=-1)
    next_producer_id: int = field("int64", "1+", tag=1, default=-1)
    producer_epoch: int = field("int16", "0+", default=0)
    transaction_timeout_ms: int = field("int32", "0+", default=0)
    transaction_status: int = field("int8", "0+", default=0)
    transaction_partitions: list[TransactionPartitions] | None = field(
        [TransactionPartitions], "0+", nullable="0+", default_factory=list
    )
    transaction_last_update_timestamp_ms: int = field("int64", "0+", default=0)
    transaction_start_timestamp_ms: int = field("int64", "0+", default=0)
    client_transaction_version: int = field("int16", "1+", tag=2, default=0)


def transaction_key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def transaction_value(transaction: Transaction) -> bytes:
    has_own_epoch = transaction.has_epoch_per_transaction
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=STATE_NUMBERS[transaction.state],
        transaction_partitions=[
            TransactionPartitions(topic=topic, partition_ids=numbers)
            for topic, numbers in transaction.places_by_topic.items()
        ],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=EPOCH_PER_TRANSACTION_VERSION if has_own_epoch else 0,
    )
    return encode_versioned(value, VALUE_VERSION)


def read_transaction(key: bytes, data: bytes) -> Transaction:
    try:
        _, name = decode_versioned(TransactionLogKey, key)
        _, value = decode_versioned(TransactionLogValue, data)
        state = STATE_OF_NUMBER[value.transaction_status]
    except (MalformedMessage, KeyError) as error:
        raise Corrupt(f"__transaction_state: a record cannot be read: {error}") from error
    version = value.client_transaction_version
    return Transaction(
        transactional_id=name.transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        places=frozenset(
            Place(one.topic, number)
            for one in value.transaction_partitions or ()
            for number in one.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        has_epoch_per_transaction=version >= EPOCH_PER_TRANSACTION_VERSION,
    )
