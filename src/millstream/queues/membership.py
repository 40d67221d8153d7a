"""Membership in a share group: what the next heartbeat says, and what its answer means.

Pure. A member names itself, joins with epoch 0, repeats the epoch that it was told, and leaves with
-1. The broker assigns partitions; several members may have the same ones.
"""

from millstream.base.errors import Rejected
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from millstream.queues.acknowledgements import Partition, Place

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
# The coordinator has forgotten this member, or thinks it further: join again.
FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class RefusedByGroup(Rejected):
    def __init__(self, *, group: str, code: int, reason: str | None) -> None:
        name = error_name(code)
        super().__init__(
            f"the queue's group {group} refuses this worker: {reason or name} ({name})"
        )
        self.group, self.code = group, code


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def may_pass(code: int) -> bool:
    """Whether the same request may succeed later. A code that is not known here does not."""
    return code in ErrorCode._value2member_map_ and ErrorCode(code).is_retriable


class Membership:
    """One member of one group. Owned by the worker's loop."""

    def __init__(self, *, group: str, topic: str, member_id: str) -> None:
        self.group, self.topic, self.member_id = group, topic, member_id
        self.assigned: frozenset[Partition] = frozenset()
        self._epoch = JOINING_EPOCH

    @property
    def is_joined(self) -> bool:
        return self._epoch > 0

    def job_id(self, place: Place) -> str:
        """As the application knows it."""
        return f"{self.topic}-{place.partition.number}-{place.offset}"

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        """Names the topic only when it joins: null means what was said before."""
        topics = [self.topic] if self._epoch == JOINING_EPOCH else None
        return self._request(self._epoch, topics)

    def leave(self) -> ShareGroupHeartbeatRequest:
        return self._request(LEAVING_EPOCH, None)

    def _request(self, epoch: int, topics: list[str] | None) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
        )

    def take(self, answer: ShareGroupHeartbeatResponse) -> None:
        """Raises RefusedByGroup when trying again cannot help."""
        if answer.error_code == ErrorCode.NONE:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = frozenset(
                    Partition(topic.topic_id, number)
                    for topic in answer.assignment.topic_partitions
                    for number in topic.partitions
                )
        elif answer.error_code in FORGOTTEN:
            self._epoch = JOINING_EPOCH
        elif not may_pass(answer.error_code):
            raise RefusedByGroup(
                group=self.group, code=answer.error_code, reason=answer.error_message
            )
