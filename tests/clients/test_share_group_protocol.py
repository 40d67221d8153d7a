"""Share groups (KIP-932), request by request: what no client lets a test do."""

import base64
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient

from millstream.broker.share.acknowledgement import AcknowledgeType
from millstream.broker.share.share_sessions import CLOSING_EPOCH
from millstream.broker.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from millstream.broker.wire.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from millstream.broker.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.clients.share_group_steps import configure_group
from tests.clients.steps import create_topic, eventually, numbered, produce
from tests.support.raw_client import RawClient

LEAVING_EPOCH = -1
LOCK_MS = "60000"  # nothing of what these tests see is a lock that ran out


class Member:
    """Heartbeats over one connection, records over another, as clients have it."""

    def __init__(self, beats: RawClient, records: RawClient, group: str, topic: str) -> None:
        self._beats, self._records = beats, records
        self._group, self._topic = group, topic
        self._topic_id = self._records.metadata(topic).topics[0].topic_id
        self._id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._fetch_epoch = 0
        self._beat(0)

    def _beat(self, epoch: int) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=epoch,
            subscribed_topic_names=[self._topic],
        )
        answer = self._beats.call_coordinator(
            request, ShareGroupHeartbeatResponse, 1, group=self._group
        )
        assert answer.error_code == 0, answer.error_message
        return answer

    def leave(self) -> None:
        self._beat(LEAVING_EPOCH)

    def fetch(self) -> list[tuple[int, int, int]]:
        """What is this member's now: first and last offset, and how often it was handed out."""
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=self._fetch_epoch,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=100,
            batch_size=100,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[FetchPartition()])],
        )
        answer = self._records.call(request, ShareFetchResponse, 1)
        assert answer.error_code == 0, answer.error_message
        self._fetch_epoch += 1
        return [
            (batch.first_offset, batch.last_offset, batch.delivery_count)
            for topic in answer.responses
            for partition in topic.partitions
            for batch in partition.acquired_records
        ]

    def accept_and_close(self, first: int, last: int) -> list[int]:
        """The last request of the share session; the error code of each partition."""
        accepted = AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=[AcknowledgeType.ACCEPT]
        )
        partition = AcknowledgePartition(acknowledgement_batches=[accepted])
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=CLOSING_EPOCH,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        answer = self._records.call(request, ShareAcknowledgeResponse, 1)
        assert answer.error_code == 0, answer.error_message
        return [one.error_code for topic in answer.responses for one in topic.partitions]


@pytest.fixture
def members(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> Iterator[tuple[Member, Member]]:
    """Of a group whose topic has three records."""
    create_topic(admin, topic, partitions=1)
    produce(bootstrap, topic, numbered(3))
    configure_group(
        bootstrap,
        group,
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms=LOCK_MS,
    )
    with ExitStack() as opened:
        a, b, c, d = (opened.enter_context(RawClient(bootstrap)) for _ in range(4))
        yield Member(a, b, group, topic), Member(c, d, group, topic)


def fetched(member: Member, count: int) -> list[tuple[int, int, int]]:
    """Until it has so many records; a new group may need some turns."""
    found: list[tuple[int, int, int]] = []

    def has_them() -> bool:
        found.extend(member.fetch())
        return sum(last - first + 1 for first, last, _ in found) >= count

    eventually(has_them, what=f"{count} records")
    return found


def test_acknowledgements_that_are_on_their_way_when_a_member_leaves_count(
    members: tuple[Member, Member],
) -> None:
    ada, bob = members
    assert {count for _, _, count in fetched(ada, 3)} == {1}
    ada.leave()
    assert bob.fetch() == [], "leaving the group gives nothing back"
    assert ada.accept_and_close(0, 1) == [0]
    assert fetched(bob, 1) == [(2, 2, 2)], "the end of its session gives back what it held"
