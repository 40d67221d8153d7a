"""The headers of a dead letter: the broker writes such letters, and so do the queues' clients."""

HISTORY_PREFIX = "__dlq.errors."
# The names of KIP-1191.
TOPIC_HEADER = "__dlq.errors.topic"
PARTITION_HEADER = "__dlq.errors.partition"
OFFSET_HEADER = "__dlq.errors.offset"
GROUP_HEADER = "__dlq.errors.group"
DELIVERY_COUNT_HEADER = "__dlq.errors.delivery.count"
MESSAGE_HEADER = "__dlq.errors.message"
# Our own: who had the record last, and the record's own time (ms since 1970, in digits).
MEMBER_HEADER = "__dlq.errors.member"
TIMESTAMP_HEADER = "__dlq.errors.timestamp"
