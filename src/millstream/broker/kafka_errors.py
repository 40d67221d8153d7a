"""Our errors in Kafka's numbers: the one table of this edge."""

from collections.abc import Mapping

from millstream.base.disk import DiskFailed, DiskFull, FileGone, TooManyOpenFiles, Unwritable
from millstream.base.errors import Corrupt, MillstreamError, Rejected, Retryable
from millstream.broker.access.permit import (
    ClusterDenied,
    GroupDenied,
    TopicDenied,
    TransactionalIdDenied,
)
from millstream.broker.auto_creation import NotYetCreated
from millstream.broker.fetch_sessions import (
    FetchSessionNotFound,
    FetchSessionTopicIds,
    InvalidFetchSessionEpoch,
)
from millstream.broker.share.acknowledgement import NotAcquired
from millstream.broker.share.share_group import NoShareGroup, NotShared, ShareGroupNotEmpty
from millstream.broker.share.share_sessions import (
    InvalidShareSessionEpoch,
    ShareSessionNotFound,
    TooManyShareSessions,
)
from millstream.broker.topic_config import InvalidConfig
from millstream.broker.topics import (
    InternalTopic,
    InvalidPartitionCount,
    InvalidTopicName,
    StrayPartition,
    TooManyPartitions,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from millstream.broker.transactions.transaction import (
    InvalidTransactionTimeout,
    NotInThisTransaction,
    ProducerFenced,
    TransactionEnding,
    UnknownProducer,
    WrongTransactionState,
)
from millstream.broker.wire import ErrorCode
from millstream.log.partition_log import (
    BatchTooLarge,
    LogReadOnly,
    OffsetOutOfRange,
    RecordsWithoutKey,
    TimestampOutOfRange,
)
from millstream.log.producer_state import (
    NotInTransaction,
    OutOfOrderSequence,
    StaleProducerEpoch,
)
from millstream.log.record_batch import CorruptBatch, InvalidBatch
from millstream.log.segment import DamagedSegment

KAFKA_ERROR_CODES: Mapping[type[MillstreamError], ErrorCode] = {
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    DamagedSegment: ErrorCode.CORRUPT_MESSAGE,
    UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    NotYetCreated: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    TooManyPartitions: ErrorCode.POLICY_VIOLATION,
    UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    TimestampOutOfRange: ErrorCode.INVALID_TIMESTAMP,
    TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    InvalidPartitionCount: ErrorCode.INVALID_PARTITIONS,
    InvalidConfig: ErrorCode.INVALID_CONFIG,
    NotAcquired: ErrorCode.INVALID_RECORD_STATE,
    FetchSessionNotFound: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    InvalidFetchSessionEpoch: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    FetchSessionTopicIds: ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ShareSessionNotFound: ErrorCode.SHARE_SESSION_NOT_FOUND,
    InvalidShareSessionEpoch: ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    TooManyShareSessions: ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    NoShareGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    NotShared: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ShareGroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    StrayPartition: ErrorCode.INVALID_TOPIC_EXCEPTION,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    NotInTransaction: ErrorCode.INVALID_TXN_STATE,
    UnknownProducer: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ProducerFenced: ErrorCode.PRODUCER_FENCED,
    WrongTransactionState: ErrorCode.INVALID_TXN_STATE,
    NotInThisTransaction: ErrorCode.INVALID_TXN_STATE,
    TransactionEnding: ErrorCode.CONCURRENT_TRANSACTIONS,
    InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    InvalidBatch: ErrorCode.INVALID_RECORD,
    RecordsWithoutKey: ErrorCode.INVALID_RECORD,
    LogReadOnly: ErrorCode.KAFKA_STORAGE_ERROR,
    DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
    DiskFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    Unwritable: ErrorCode.KAFKA_STORAGE_ERROR,
    TooManyOpenFiles: ErrorCode.KAFKA_STORAGE_ERROR,
    FileGone: ErrorCode.KAFKA_STORAGE_ERROR,
    TopicDenied: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GroupDenied: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ClusterDenied: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TransactionalIdDenied: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# A string of an answer has at most 32 KiB; what is longer than this helps nobody.
MESSAGE_LENGTH_MAX = 1_000

# For an error that has no line of its own: what its family means to a client.
FAMILY_CODES: Mapping[type[MillstreamError], ErrorCode] = {
    Retryable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    Rejected: ErrorCode.INVALID_REQUEST,
    Corrupt: ErrorCode.KAFKA_STORAGE_ERROR,
}


def coordinator_error_code(error: MillstreamError) -> ErrorCode:
    """The same where a client talks to its coordinator: it tries again, and nothing else, while
    the coordinator cannot store what it was told."""
    code = error_code(error)
    is_storage = code is ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_storage else code


def error_code(error: MillstreamError) -> ErrorCode:
    code = KAFKA_ERROR_CODES.get(type(error))
    if code is not None:
        return code
    for family, family_code in FAMILY_CODES.items():
        if isinstance(error, family):
            return family_code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def error_message(error: MillstreamError) -> str:
    return clipped(str(error))


def clipped(text: str) -> str:
    """What is said. A client's own words in it may be longer than an answer can carry."""
    return text if len(text) <= MESSAGE_LENGTH_MAX else f"{text[:MESSAGE_LENGTH_MAX]}..."
