# DescribeLogDirs, versions 1-5.
#   Does:     the one data directory, its partitions and sizes, and the disk it is on: 0 bytes are
#             usable while writes find no space, whatever the file system says (a quota).

import os

from millstream.broker.handlers import Call, handles
from millstream.broker.topics import Topic
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@handles(ApiKey.DESCRIBE_LOG_DIRS, versions=range(1, 6))
def describe_log_dirs(request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    directory = call.node.directory
    path = directory.path
    wanted = None if request.topics is None else {t.topic: t.partitions for t in request.topics}
    disk = os.statvfs(path)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(path.absolute()),
                topics=[
                    _describe(topic, None if wanted is None else wanted[topic.name])
                    for topic in call.topics
                    if wanted is None or topic.name in wanted
                ],
                total_bytes=disk.f_blocks * disk.f_frsize,
                usable_bytes=0 if directory.space.is_full else disk.f_bavail * disk.f_frsize,
            )
        ]
    )


def _describe(topic: Topic, wanted: list[int] | None) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=number, partition_size=partition.log.size_bytes
            )
            for number, partition in enumerate(topic.partitions)
            if wanted is None or number in wanted
        ],
    )
