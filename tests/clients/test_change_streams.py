"""The changes of a captured table, read from its topic: committed, once, from any token on."""

import asyncio

import pytest
from confluent_kafka.admin import AdminClient

from millstream.capture.change_stream import ChangesGone, ChangeStream, NothingCaptured
from millstream.capture.recorded_change import BadToken, NotAnEnvelope, RecordedChange
from tests.clients.steps import Sent, create_topic, produce, unique_name
from tests.clients.transaction_steps import open_producer
from tests.support.captured_records import CapturedRecords

SOON_S = 60.0


@pytest.fixture
def orders(bootstrap: str, admin: AdminClient) -> CapturedRecords:
    topic = unique_name("shop.orders")
    create_topic(admin, topic, partitions=2, config={"cleanup.policy": "compact"})
    return CapturedRecords(open_producer(bootstrap, f"capture-{topic}"), topic)


def stream(bootstrap: str, topic: str, since: str | None = None, **terms: object) -> ChangeStream:
    return ChangeStream({"bootstrap.servers": bootstrap}, topic, since=since, **terms)  # type: ignore[arg-type]


def there(bootstrap: str, topic: str, since: str | None = None) -> list[RecordedChange]:
    with stream(bootstrap, topic, since, follow=False) as changes:
        return list(changes)


def told(changes: list[RecordedChange]) -> set[tuple[str, int]]:
    return {(change.op, (change.key or {})["id"]) for change in changes}


def test_every_committed_change_comes_once_and_tombstones_are_none(
    bootstrap: str, orders: CapturedRecords
) -> None:
    orders.commit(("c", {"id": 1}), ("c", {"id": 2}), ("c", {"id": 3}))
    orders.abort(("c", {"id": 4}))
    orders.commit(("u", {"id": 1}), ("d", {"id": 2}))
    changes = there(bootstrap, orders.topic)
    assert len(changes) == 5
    assert told(changes) == {("c", 1), ("c", 2), ("c", 3), ("u", 1), ("d", 2)}
    assert len({(change.commit, change.seq) for change in changes}) == 5
    assert [one.op for one in changes if one.key == {"id": 1}] == ["c", "u"]
    assert all(change.table == "orders" for change in changes)


def test_each_token_goes_on_behind_its_change(bootstrap: str, orders: CapturedRecords) -> None:
    orders.commit(*[("c", {"id": number}) for number in range(10)])
    changes = there(bootstrap, orders.topic)
    for place, change in enumerate(changes):
        rest = there(bootstrap, orders.topic, change.token)
        assert told(rest) == told(changes[place + 1 :])


def test_from_now_on_only_what_comes_then(bootstrap: str, orders: CapturedRecords) -> None:
    orders.commit(("c", {"id": 1}))
    with stream(bootstrap, orders.topic, "now", timeout_s=SOON_S) as changes:
        changes.poll(0)
        orders.commit(("c", {"id": 2}))
        assert next(changes).key == {"id": 2}


def test_a_follower_waits_for_changes_and_for_the_topic(bootstrap: str, admin: AdminClient) -> None:
    topic = unique_name("shop.later")
    with stream(bootstrap, topic, timeout_s=SOON_S) as changes:
        assert changes.poll(0) is None
        create_topic(admin, topic)
        producer = open_producer(bootstrap, f"capture-{topic}")
        CapturedRecords(producer, topic).commit(("c", {"id": 7}))
        assert next(changes).key == {"id": 7}


def test_a_follower_ends_when_its_patience_does(bootstrap: str, orders: CapturedRecords) -> None:
    orders.commit(("c", {"id": 1}))
    with stream(bootstrap, orders.topic, timeout_s=1.0) as changes:
        assert [change.key for change in changes] == [{"id": 1}]


def test_the_end_of_what_is_there_is_found_behind_an_aborted_transaction(
    bootstrap: str, orders: CapturedRecords
) -> None:
    orders.abort(("c", {"id": 1}), ("c", {"id": 2}))
    assert there(bootstrap, orders.topic) == []


def test_a_stream_can_be_waited_for_in_a_loop_of_asyncio(
    bootstrap: str, orders: CapturedRecords
) -> None:
    orders.commit(("c", {"id": 1}))

    async def first() -> RecordedChange:
        changes = stream(bootstrap, orders.topic)
        try:
            return await asyncio.wait_for(anext(changes), SOON_S)
        finally:
            await changes.aclose()

    assert asyncio.run(first()).key == {"id": 1}


def test_a_topic_that_no_capture_made_is_an_error_that_says_so(bootstrap: str) -> None:
    with pytest.raises(NothingCaptured, match=r"no topic shop\.nothing yet"):
        there(bootstrap, "shop.nothing")


def test_a_token_of_another_table_or_of_a_longer_topic_is_refused(
    bootstrap: str, orders: CapturedRecords
) -> None:
    with pytest.raises(BadToken):
        there(bootstrap, orders.topic, "shop.customers@0:1")
    with pytest.raises(BadToken):
        there(bootstrap, orders.topic, f"{orders.topic}@9:0")
    with pytest.raises(ChangesGone, match="start without a token"):
        there(bootstrap, orders.topic, f"{orders.topic}@0:99,1:0")


def test_a_record_of_another_program_is_named(bootstrap: str, orders: CapturedRecords) -> None:
    produce(bootstrap, orders.topic, [Sent(key=b"1", value=b"hello", partition=1)])
    with pytest.raises(NotAnEnvelope, match=r"\[1\]: the record at offset 0 is no captured change"):
        there(bootstrap, orders.topic)
