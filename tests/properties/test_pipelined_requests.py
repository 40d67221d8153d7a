"""Requests that come together on one connection do what they do one by one.

Random mixes of APIs are written at once, cut at random places, to one broker, and one by one, each
after the answer to the one before, to another broker. Both give the same answers, in the order of
the requests: an effect that is late, or early, shows in the answers to the questions after it. The
same questions are asked after every mix, for the effects of its last requests.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker import new_groups
from millstream.broker.fetch_sessions import FetchSessions
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import encode_request
from millstream.broker.wire.messages.init_producer_id import InitProducerIdRequest
from millstream.broker.wire.messages.produce import ProduceRequest
from tests.properties.pipelined_steps import FIXED_TOPICS, MIX, TAIL, UNWAITED, Script, Step
from tests.support.served_node import ServedNode
from tests.support.simulated_disk import SimulatedDisk
from tests.support.socketless_client import SocketlessClient

A_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Frame(NamedTuple):
    data: bytes
    is_answered: bool  # a write with acks=0 is not


@contextmanager
def opened() -> Iterator[tuple[ServedNode, Script]]:
    """A broker that draws no ids at random which a client would have to say again."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        (Path(directory) / "data").mkdir()
        disk = SimulatedDisk(Path(directory) / "data")  # as syncs of a real one take long
        served = ServedNode(Path(directory) / "data", disk=disk)
        member_ids = map(str, count(1))
        patch.setattr(new_groups, "_new_id", lambda: next(member_ids))
        served.node.fetch_sessions = FetchSessions(count(1).__next__)
        try:
            ids = {topic: served.create(topic).id for topic in (*FIXED_TOPICS, UNWAITED)}
            answer = served.ask(
                InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4
            )
            who = Identity(answer.producer_id, answer.producer_epoch)
            yield served, Script(who, ids)
        finally:
            served.settle()
            served.crash()


def frames_of(steps: list[Step], script: Script) -> list[Frame]:
    frames = []
    for number, (request, version) in enumerate(step(script) for step in steps):
        data = encode_request(request, version, correlation_id=number, client_id="ada")
        is_answered = not isinstance(request, ProduceRequest) or request.acks != 0
        frames.append(Frame(b"".join(data), is_answered))
    return frames


def comparable(answers: list[bytes], served: ServedNode, script: Script) -> list[bytes]:
    """Without what is drawn at random by each broker: ids of itself, of topics and members."""
    cleaned = []
    cluster_id = served.node.directory.cluster_id.encode()
    for answer in answers:
        for topic, topic_id in script.topic_ids.items():
            answer = answer.replace(topic_id, topic.ljust(16).encode())
            answer = answer.replace(topic_id.hex().encode(), topic.encode())  # within a message
        cleaned.append(A_UUID.sub(b"a uuid", answer.replace(cluster_id, b"a cluster")))
    return cleaned


def together(steps: list[Step], cuts: list[float]) -> list[bytes]:
    with opened() as (served, script):
        frames = frames_of(steps, script)
        data = b"".join(frame.data for frame in frames)
        places = sorted({round(cut * len(data)) for cut in cuts} | {0, len(data)})
        client = SocketlessClient(served)
        for start, end in pairwise(places):
            client.send_bytes(data[start:end])
        client.until_answered(sum(frame.is_answered for frame in frames))
        return comparable(answers_with_tail(client, served, script), served, script)


def one_by_one(steps: list[Step]) -> list[bytes]:
    with opened() as (served, script):
        client = SocketlessClient(served)
        send_in_turn(client, served, frames_of(steps, script))
        return comparable(answers_with_tail(client, served, script), served, script)


def send_in_turn(client: SocketlessClient, served: ServedNode, frames: list[Frame]) -> None:
    answered = len(client.answers())
    for frame in frames:
        client.send_bytes(frame.data)
        answered += frame.is_answered
        client.until_answered(answered)
        served.settle()


def answers_with_tail(client: SocketlessClient, served: ServedNode, script: Script) -> list[bytes]:
    served.settle()
    send_in_turn(client, served, frames_of(TAIL, script))
    return client.answers()


@settings(max_examples=60)
@given(
    steps=MIX,
    cuts=st.lists(st.floats(0, 1), max_size=4),
)
def test_requests_that_come_together_do_what_they_do_one_by_one(
    steps: list[Step], cuts: list[float]
) -> None:
    assert together(steps, cuts) == one_by_one(steps)
