# AlterReplicaLogDirs, versions 1-2.
#   Does:     agrees that partitions are in the one data directory there is.
#   Does not: move anything: another directory is LOG_DIR_NOT_FOUND.

from collections.abc import Callable

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@handles(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    versions=range(1, 3),
    refuse=lambda request, code: _answer(request, lambda path, topic, number: code),
)
def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, call: Call
) -> AlterReplicaLogDirsResponse:
    data = str(call.node.directory.path.absolute())
    counts = {topic.name: len(topic.partitions) for topic in call.topics}

    def code(path: str, topic: str, number: int) -> ErrorCode:
        if not 0 <= number < counts.get(topic, 0):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if path.rstrip("/") == data else ErrorCode.LOG_DIR_NOT_FOUND

    return _answer(request, code)


def _answer(
    request: AlterReplicaLogDirsRequest, code: Callable[[str, str, int], ErrorCode]
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=number, error_code=code(wanted.path, topic.name, number)
                    )
                    for number in topic.partitions
                ],
            )
            for wanted in request.dirs
            for topic in wanted.topics
        ]
    )
