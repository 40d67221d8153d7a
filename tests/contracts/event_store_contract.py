"""What an event store promises, whichever broker its topic is on. Subclasses say where that is."""

import asyncio
import errno
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millstream.base.errors import Rejected
from millstream.base.log_clients import LogNotReached
from millstream.base.offsets import OffsetRange
from millstream.eventsourcing import decision_queue, event_partition
from millstream.eventsourcing.decision_queue import StoreClosed
from millstream.eventsourcing.event_partition import NumbersLost
from millstream.eventsourcing.event_store import (
    EventStore,
    ScopeMissing,
    StoreForked,
    TimeWithoutZone,
)
from millstream.eventsourcing.partition_writer import DecisionWaits
from millstream.eventsourcing.placement import BadStreamName
from millstream.eventsourcing.query import Condition, ConditionFailed, Query
from millstream.eventsourcing.staging import (
    EVENT_BYTES_MAX,
    EVENT_DEPTH_MAX,
    CommandIdReused,
    EventTooLarge,
    StreamHead,
    UnfitEvent,
    WrongVersion,
)
from millstream.eventsourcing.stored_event import BadEventRecord, Command, NewEvent
from millstream.eventsourcing.subscription import EventsMissing, Token
from millstream.eventsourcing.transaction import FencedProducer
from tests.support.waiting import eventually, stays

WITHIN_S = 60.0


def fact(type: str = "Added", data: bytes = b"{}", *tags: str, id: str | None = None) -> NewEvent:
    return NewEvent(type=type, data=data, tags=tags, id=id)


def facts(count: int) -> list[NewEvent]:
    return [fact("Counted", b'{"n":%d}' % number) for number in range(count)]


def nested(depth: int) -> bytes:
    """With the record around it, one level deeper."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


class EventStoreContract:
    """A subclass has a fixture `brokers`: the address of its broker."""

    @pytest.fixture
    def topic(self) -> str:
        return f"contract-{uuid.uuid4().hex[:8]}.events"

    @pytest.fixture
    def open_store(self, brokers: str, topic: str) -> Iterator[Callable[..., EventStore]]:
        """Each call is what another process would have."""
        opened: list[EventStore] = []

        def open(**options: Any) -> EventStore:
            options.setdefault("partitions", 1)
            opened.append(EventStore({"bootstrap.servers": brokers}, topic, **options))
            return opened[-1]

        yield open
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, open_store: Callable[..., EventStore]) -> EventStore:
        return open_store()

    # --- append and read ----------------------------------------------------------------------

    def test_what_is_appended_is_read_in_order(self, store: EventStore) -> None:
        first = store.append("Cart:1", [fact("Added"), fact("Removed")], meta={"by": "ada"})
        second = store.append("Cart:1", [fact("Paid")])
        read = list(store.read("Cart:1"))
        assert [event.type for event in read] == ["Added", "Removed", "Paid"]
        assert [event.version for event in read] == [1, 2, 3]
        assert [event.seq for event in read] == [1, 2, 3]
        assert [event.meta for event in read] == [{"by": "ada"}, {"by": "ada"}, {}]
        assert (first.version, second.version, second.seq) == (2, 3, 3)
        assert first.events + second.events == tuple(event.id for event in read)

    def test_a_receipt_names_the_last_record(self, store: EventStore, brokers: str) -> None:
        store.append("Cart:1", facts(3))
        receipt = store.append("Cart:2", facts(2))
        with store.subscribe(follow=False) as all_events:
            assert [event.seq for event in all_events] == [1, 2, 3, 4, 5]
            assert all_events.token.places[receipt.partition].offset == receipt.offset + 1

    def test_a_stream_that_is_not_there_is_empty(self, store: EventStore) -> None:
        assert list(store.read("Cart:none")) == []
        assert store.version("Cart:none") == 0

    def test_streams_are_listed_with_their_versions(self, open_store: Any) -> None:
        store = open_store(partitions=3)
        for number in range(7):
            store.append(f"Cart:{number}", facts(number + 1))
        store.append("Order:1", facts(1))
        assert sorted(store.streams("Cart:")) == [(f"Cart:{n}", n + 1) for n in range(7)]
        assert len(list(store.streams())) == 8

    def test_an_empty_append_changes_nothing(self, store: EventStore) -> None:
        store.append("Cart:1", facts(2))
        receipt = store.append("Cart:1", [])
        assert (receipt.version, receipt.seq, receipt.events) == (2, 2, ())
        assert store.append("Cart:2", []).version == 0

    def test_parts_of_a_stream_are_read_by_version_position_and_time(self, open_store: Any) -> None:
        clock = [datetime(2026, 1, 1, tzinfo=UTC)]
        store = open_store(now=lambda: clock[0])
        for _ in range(6):
            clock[0] += timedelta(minutes=1)
            store.append("Cart:1", facts(1))
            store.append("Cart:other", facts(1))
        read = list(store.read("Cart:1"))

        def versions(**part: Any) -> list[int]:
            return [event.version for event in store.read("Cart:1", **part)]

        assert versions(after=2) == [3, 4, 5, 6]
        assert versions(upto=2) == [1, 2]
        assert versions(after=2, upto=4) == [3, 4]
        assert versions(after=6) == versions(upto=0) == versions(after=9, upto=3) == []
        assert versions(position=read[2].seq) == versions(position=read[2].seq + 1) == [1, 2, 3]
        assert versions(at=read[3].at) == [1, 2, 3, 4]
        assert versions(at=read[0].at - timedelta(seconds=1)) == []

    def test_time_does_not_go_back_though_a_clock_does(self, open_store: Any) -> None:
        moments = iter(datetime(2026, 1, day, tzinfo=UTC) for day in (3, 1, 2, 4))
        store = open_store(now=lambda: next(moments))
        for _ in range(4):
            store.append("Cart:1", facts(1))
        assert [event.at.day for event in store.read("Cart:1")] == [3, 3, 3, 4]

    def test_a_clock_that_is_far_behind_is_told_once(self, open_store: Any, caplog: Any) -> None:
        times = [(9, 9), (8, 9), (8, 8), (1, 0)]
        moments = iter(datetime(2026, 1, 1, 12, *time, tzinfo=UTC) for time in times)
        store = open_store(now=lambda: next(moments))
        for told in (0, 0, 1, 1):
            store.append("Cart:1", facts(1))
            assert caplog.text.count("the clock of this process is") == told

    def test_another_process_reads_what_was_just_written(self, open_store: Any) -> None:
        writer, reader = open_store(), open_store()
        for number in range(1, 20):
            writer.append("Cart:1", facts(1))
            assert reader.version("Cart:1") == number
            assert len(list(reader.read("Cart:1"))) == number

    # --- terms --------------------------------------------------------------------------------

    def test_an_expected_version_that_is_not_found_is_refused(self, store: EventStore) -> None:
        store.append("Cart:1", facts(1), expect=0)
        with pytest.raises(WrongVersion) as refused:
            store.append("Cart:1", facts(1), expect=0)
        assert (refused.value.expected, refused.value.found) == (0, 1)
        assert store.append("Cart:1", facts(1), expect=1).version == 2

    def test_of_fifty_that_expect_the_same_version_one_wins(self, store: EventStore) -> None:
        def reserve(client: int) -> bool:
            try:
                store.append("Seat:1A", [fact("Reserved", b'{"by":%d}' % client)], expect=0)
            except WrongVersion:
                return False
            return True

        with ThreadPoolExecutor(50) as pool:
            assert sum(pool.map(reserve, range(50))) == 1
        assert store.version("Seat:1A") == 1

    def test_a_condition_is_refused_by_an_event_that_was_not_seen(self, store: EventStore) -> None:
        store.append("Course:1", [fact("Joined", b"{}", "course:1", "student:7")])
        seen = store.position()
        full = Query(types=["Joined"], tags=["course:1"])
        store.append("Course:1", [fact("Joined", b"{}", "course:2")])
        condition = Condition(fail_if=full, after=seen)
        joined = fact("Joined", b"{}", "course:1", "student:8")
        store.append("Course:1", [joined], condition=condition)
        with pytest.raises(ConditionFailed) as refused:
            store.append("Course:1", [fact("Joined", b"{}", "course:1")], condition=condition)
        assert refused.value.seq == 3

    def test_queries_find_by_types_and_tags_over_streams(self, store: EventStore) -> None:
        store.append("A", [fact("X", b"{}", "a"), fact("Y", b"{}", "a", "b")])
        store.append("B", [fact("X", b"{}", "b"), fact("Z")])

        def found(query: Query, after: int = 0) -> list[int]:
            return [event.seq for event in store.query(query, after=after)]

        assert found(Query()) == [1, 2, 3, 4]
        assert found(Query(types=["X"])) == [1, 3]
        assert found(Query(types=["X", "Z"], tags=["b"])) == [3]
        assert found(Query(tags=["a", "b"])) == [2]
        assert found(Query(types=["Z"]) | Query(tags=["a"])) == [1, 2, 4]
        assert found(Query(tags=["a"]), after=1) == [2]
        assert found(Query(tags=["none"])) == []

    def test_a_command_that_comes_again_has_the_same_receipt(self, open_store: Any) -> None:
        store = open_store()
        command = Command(id="req-1", print="p")
        first = store.append("Cart:1", facts(3), command=command)
        store.append("Cart:1", facts(1))
        for again in (store, open_store()):
            receipt = again.append("Cart:1", facts(3), command=command)
            assert receipt.is_repeat
            assert (receipt.events, receipt.offset) == (first.events, first.offset)
            assert (receipt.version, receipt.seq) == (first.version, first.seq)
        assert store.version("Cart:1") == 4

    @pytest.mark.parametrize(("stream", "print"), [("Cart:1", "other"), ("Cart:2", "p")])
    def test_a_command_id_of_another_command_is_refused(
        self, store: EventStore, stream: str, print: str
    ) -> None:
        store.append("Cart:1", facts(1), command=Command(id="req-1", print="p"))
        with pytest.raises(CommandIdReused):
            store.append(stream, facts(1), command=Command(id="req-1", print=print))

    def test_only_so_many_command_ids_are_remembered(self, open_store: Any) -> None:
        store = open_store(command_ids_max=3)
        for number in range(4):
            store.append("Cart:1", facts(1), command=Command(id=f"req-{number}"))
        assert store.append("Cart:1", facts(1), command=Command(id="req-1")).is_repeat
        assert not store.append("Cart:1", facts(1), command=Command(id="req-0")).is_repeat

    def test_a_retry_whose_events_are_gone_is_answered_and_fails_nobody(
        self, open_store: Any, brokers: str, topic: str
    ) -> None:
        store, command = open_store(recent_bytes_max=10), Command(id="req-1", print="p")
        first = store.append("Cart:1", facts(2), command=command)
        store.append("Cart:1", facts(1))
        delete_before(brokers, topic, store.append("Cart:2", facts(1)).offset)
        with held(store):
            asked = [
                store.submit("Cart:3", lambda _head: facts(1)),
                store.submit("Cart:1", lambda _head: facts(2), command=command),
                store.submit("Cart:4", lambda _head: facts(1)),
            ]
        before, again, after = [one.result(WITHIN_S) for one in asked]
        assert (before.seq, after.seq) == (5, 6)
        assert (again.version, again.seq, again.offset) == (2, 2, first.offset)
        assert (again.is_repeat, again.events) == (True, ())

    def test_a_receipt_that_cannot_be_read_fails_alone(
        self, open_store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, command = open_store(recent_bytes_max=10), Command(id="req-1", print="p")
        store.append("Cart:1", facts(1), command=command)

        def away(_seqs: Any) -> Any:
            raise LogNotReached(brokers="", doing="read", reason="it starts again")

        with held(store):
            monkeypatch.setattr(store._partition(0), "events", away)
            asked = [
                store.submit("Cart:2", lambda _head: facts(1)),
                store.submit("Cart:1", lambda _head: facts(1), command=command),
                store.submit("Cart:3", lambda _head: facts(1)),
            ]
        wait(asked, WITHIN_S)
        errors = [type(one.exception()) for one in asked]
        assert errors == [type(None), LogNotReached, type(None)]

    def test_streams_of_one_scope_are_in_one_partition(self, open_store: Any) -> None:
        store = open_store(partitions=5)
        receipts = [store.append(f"S:{n}", [fact("X", b"{}", "t")], scope="all") for n in range(10)]
        assert len({receipt.partition for receipt in receipts}) == 1
        assert len(list(store.query(Query(tags=["t"]), scope="all"))) == 10
        assert store.version("S:3", scope="all") == 1

    def test_with_several_partitions_a_question_over_streams_says_which(
        self, open_store: Any
    ) -> None:
        store, taken = open_store(partitions=4), Query(tags=["seat:7a"])
        condition = Condition(fail_if=taken)
        asks: list[Callable[[], object]] = [
            lambda: list(store.query(taken)),
            lambda: store.position(),
            lambda: store.append("Booking:1", facts(1), condition=condition),
            lambda: store.decide("Booking:1", lambda _head: facts(1), condition=condition),
            lambda: store.submit("Booking:1", lambda _head: facts(1), condition=condition),
        ]
        for ask in asks:
            with pytest.raises(ScopeMissing, match="scope="):
                ask()
        for partition in (-1, 4):
            with pytest.raises(Rejected, match="has 4 partitions"):
                store.position(partition=partition)
        booked = fact("Booked", b"{}", "seat:7a")
        store.append("Booking:1", [booked], condition=condition, scope="show")
        with pytest.raises(ConditionFailed):
            store.append("Booking:2", [booked], condition=condition, scope="show")
        assert store.position(scope="show") == len(list(store.query(taken, scope="show"))) == 1

    def test_a_stream_under_two_scopes_is_found(self, open_store: Any) -> None:
        store = open_store(partitions=4)
        other = next(f"s{n}" for n in range(99) if store.partition_of("Cart:1", f"s{n}") != 0)
        scope = next(f"s{n}" for n in range(99) if store.partition_of("Cart:1", f"s{n}") == 0)
        store.append("Cart:1", facts(1), scope=scope)
        late = store.append("Cart:1", facts(2), scope=other)
        (finding,) = store.verify()
        assert (finding.partition, finding.offset) == (late.partition, late.offset - 1)
        assert finding.reason == "the stream is in partition 0 as well: under another scope?"

    # --- decisions ----------------------------------------------------------------------------

    def test_decisions_see_all_events_before_them(self, store: EventStore) -> None:
        def next_one(head: StreamHead) -> Iterator[NewEvent]:
            known = [event.version for event in head.events()]
            assert known == list(range(1, head.version + 1))
            yield fact("Counted", b'{"n":%d}' % len(known))

        asked = [store.submit("Counter:1", next_one) for _ in range(200)]
        versions = [future.result(WITHIN_S).version for future in asked]
        assert versions == list(range(1, 201))
        read = [bytes(event.data) for event in store.read("Counter:1")]
        assert read == [b'{"n":%d}' % number for number in range(200)]

    def test_a_decision_that_fails_fails_alone(self, store: EventStore) -> None:
        def half(_head: StreamHead) -> Iterator[NewEvent]:
            yield fact("Half")
            raise ZeroDivisionError("in the middle")

        asked = [
            store.submit("Cart:1", half if n % 2 else lambda _head: facts(1)) for n in range(20)
        ]
        wait(asked, WITHIN_S)
        assert [type(one.exception()) for one in asked] == [type(None), ZeroDivisionError] * 10
        assert [event.type for event in store.read("Cart:1")] == ["Counted"] * 10

    def test_a_decision_looks_over_streams(self, store: EventStore) -> None:
        taken = Query(types=["Reserved"], tags=["seat:1"])

        def reserve(head: StreamHead) -> Iterator[NewEvent]:
            if any(True for _ in head.query(taken)):
                raise Rejected("it is taken")
            yield fact("Reserved", b"{}", "seat:1")

        asked = [store.submit(f"Booking:{n}", reserve) for n in range(10)]
        wait(asked, WITHIN_S)
        assert sum(one.exception() is None for one in asked) == 1

    def test_a_decision_that_would_wait_for_itself_is_refused(self, store: EventStore) -> None:
        def nested(_head: StreamHead) -> list[NewEvent]:
            store.append("Cart:1", facts(1))
            return []

        with pytest.raises(DecisionWaits):
            store.decide("Cart:1", nested)

    def test_large_decisions_take_more_than_one_transaction(self, store: EventStore) -> None:
        large = fact("Large", b'{"x":"%s"}' % (b"y" * 900_000))
        asked = [store.submit("Cart:1", lambda _head: [large]) for _ in range(25)]
        assert [one.result(WITHIN_S).version for one in asked] == list(range(1, 26))
        assert len(list(store.read("Cart:1"))) == 25

    def test_a_decision_that_was_given_up_before_its_turn_is_not_made(
        self, store: EventStore
    ) -> None:
        with held(store):
            given_up = store.submit("Cart:1", lambda _head: [fact("Given up")])
            kept = store.submit("Cart:1", lambda _head: [fact("Kept")])
            assert given_up.cancel()
        assert kept.result(WITHIN_S).version == 1
        assert [event.type for event in store.read("Cart:1")] == ["Kept"]

    def test_who_asks_for_more_than_may_wait_is_held_up(
        self, store: EventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(decision_queue, "WAITING_MAX", 5)
        asked: list[Any] = []

        def ask() -> None:
            for _ in range(7):
                asked.append(store.submit("Cart:1", lambda _head: facts(1)))  # noqa: PERF401

        asking = threading.Thread(target=ask)
        with held(store):
            asking.start()
            eventually(lambda: len(asked) == 5, what="five wait", within_s=WITHIN_S)
            stays(lambda: len(asked) == 5, what="no more than five wait")
        asking.join(WITHIN_S)
        assert [one.result(WITHIN_S).version for one in asked] == list(range(1, 8))

    # --- takeovers ----------------------------------------------------------------------------

    def test_writers_that_take_turns_lose_and_repeat_nothing(self, open_store: Any) -> None:
        stores = [open_store(), open_store()]
        for turn in range(8):
            receipt = stores[turn % 2].append("Cart:1", facts(2))
            assert receipt.version == receipt.seq == 2 * turn + 2
        assert [event.version for event in open_store().read("Cart:1")] == list(range(1, 17))

    def test_writers_at_the_same_time_lose_and_repeat_nothing(self, open_store: Any) -> None:
        stores = [open_store(), open_store()]

        def write(number: int) -> list[int]:
            return [stores[number].append("Cart:1", facts(1)).version for _ in range(5)]

        with ThreadPoolExecutor(2) as pool:
            answered = [version for found in pool.map(write, range(2)) for version in found]
        assert sorted(answered) == list(range(1, 11))
        assert [event.version for event in stores[0].read("Cart:1")] == list(range(1, 11))

    def test_who_was_taken_over_refuses_nothing_by_what_it_knew(self, open_store: Any) -> None:
        old, new = open_store(), open_store()
        old.append("Cart:1", facts(1))
        new.append("Cart:1", facts(4))
        with pytest.raises(WrongVersion) as refused:
            old.append("Cart:1", facts(1), expect=1)
        assert refused.value.found == 5
        assert old.append("Cart:1", facts(1), expect=5).version == 6

    @pytest.mark.parametrize("has_come_through", [True, False])
    @pytest.mark.parametrize("is_taken_over", [True, False])
    def test_a_commit_that_was_not_answered_is_looked_up(
        self,
        open_store: Any,
        monkeypatch: pytest.MonkeyPatch,
        has_come_through: bool,
        is_taken_over: bool,
    ) -> None:
        store, other = open_store(), open_store()
        store.append("Cart:1", [fact("First")])
        commit, calls = FencedProducer.commit, []

        def lose_one(producer: FencedProducer) -> None:
            calls.append(producer)
            if len(calls) > 1:
                return commit(producer)
            if has_come_through:
                commit(producer)
            if is_taken_over:
                other.append("Cart:1", [fact("Others")])
            raise LogNotReached(brokers="", doing="commit", reason="no answer")

        monkeypatch.setattr(FencedProducer, "commit", lose_one)
        receipt = store.append("Cart:1", [fact("Ours"), fact("Ours")])
        read = list(other.read("Cart:1"))
        ours = [event for event in read if event.type == "Ours"]
        assert tuple(event.id for event in ours) == receipt.events
        assert (ours[-1].version, ours[-1].seq) == (receipt.version, receipt.seq)
        assert len(read) == 3 + is_taken_over
        assert (receipt.version == 3) == (has_come_through or not is_taken_over)
        assert store.append("Cart:1", [fact()], expect=len(read)).version == len(read) + 1

    # --- subscriptions ------------------------------------------------------------------------

    def test_a_subscription_has_what_was_and_what_comes(self, store: EventStore) -> None:
        store.append("Cart:1", facts(3))
        with store.subscribe(timeout=WITHIN_S) as events:
            assert [next(events).seq for _ in range(3)] == [1, 2, 3]
            late = threading.Timer(0.2, lambda: store.append("Cart:2", facts(2)))
            late.start()
            assert [next(events).stream for _ in range(2)] == ["Cart:2", "Cart:2"]
            late.join()

    def test_a_subscription_goes_on_behind_its_token(self, store: EventStore) -> None:
        store.append("Cart:1", facts(5))
        with store.subscribe(follow=False) as events:
            assert [next(events).seq for _ in range(2)] == [1, 2]
            token = str(events.token)
        store.append("Cart:1", facts(1))
        with store.subscribe(after=Token.read(token), follow=False) as events:
            assert [event.seq for event in events] == [3, 4, 5, 6]

    def test_a_token_moves_on_over_what_is_left_out(self, store: EventStore) -> None:
        store.append("Cart:1", [fact("Rare"), *facts(50)])
        with store.subscribe(where=Query(types=["Rare"]), timeout=0.5) as events:
            assert [event.type for event in events] == ["Rare"]
            eventually(
                lambda: next(events, None) is None and events.token.places[0].seq == 51,
                what="the token is at the last event",
                within_s=WITHIN_S,
            )

    def test_a_subscription_from_now_on_has_nothing_that_was(self, store: EventStore) -> None:
        store.append("Cart:1", facts(5))
        with store.subscribe(after=store.token(), timeout=WITHIN_S) as events:
            store.append("Cart:1", facts(1))
            assert next(events).seq == 6

    def test_a_subscription_behind_a_number_that_is_not_there_yet_waits_for_it(
        self, store: EventStore
    ) -> None:
        store.append("Cart:1", facts(3))
        behind = store.token_behind(5)
        store.append("Cart:1", facts(1))
        with store.subscribe(after=Token.read(str(behind)), follow=False) as events:
            assert list(events) == []
            token = str(events.token)
        store.append("Cart:1", facts(3))
        for after in (behind, Token.read(token), store.token_behind(5)):
            with store.subscribe(after=after, follow=False) as events:
                assert [event.seq for event in events] == [6, 7]
                assert str(events.token).startswith("0:7@")
                assert ">" not in str(events.token)

    def test_a_subscription_behind_events_that_are_gone_is_told(
        self, open_store: Any, brokers: str, topic: str
    ) -> None:
        store = open_store()
        store.append("Cart:1", facts(4))
        delete_before(brokers, topic, store.append("Cart:2", facts(1)).offset)
        for _ in range(3):
            store.append("Cart:2", facts(1))
        late = open_store()
        with late.subscribe(after=late.token_behind(4), follow=False) as events:
            assert [event.seq for event in events] == [5, 6, 7, 8]
        with (
            late.subscribe(after=late.token_behind(2), timeout=WITHIN_S) as events,
            pytest.raises(EventsMissing),
        ):
            next(events)

    def test_a_subscription_has_all_partitions(self, open_store: Any) -> None:
        store = open_store(partitions=4)
        for number in range(40):
            store.append(f"Cart:{number}", facts(1))
        with store.subscribe(follow=False) as events:
            assert {event.stream for event in events} == {f"Cart:{n}" for n in range(40)}

    def test_a_subscription_is_an_async_iterator(self, store: EventStore) -> None:
        store.append("Cart:1", facts(3))

        async def read() -> list[int]:
            with store.subscribe(timeout=0.5) as events:
                found = [(await anext(events)).seq for _ in range(3)]
                store.append("Cart:1", facts(2))
                return found + [event.seq async for event in events]

        assert asyncio.run(read()) == [1, 2, 3, 4, 5]

    def test_a_token_of_another_topic_is_told(self, store: EventStore) -> None:
        store.append("Cart:1", facts(2))
        with (
            store.subscribe(after=Token.read("0:7@1"), timeout=WITHIN_S) as events,
            pytest.raises(EventsMissing),
        ):
            next(events)

    # --- what is derived ----------------------------------------------------------------------

    def test_a_store_starts_from_its_index_file(
        self, open_store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with indexed(open_store(index_dir=tmp_path)) as store:
            for number in range(1_200):
                store.submit(f"Cart:{number % 40}", lambda _head: facts(1))
            store.append("Cart:1", facts(1), command=Command(id="req-1"))
        assert len(list(tmp_path.iterdir())) == 1
        later = open_store()
        later.append("Cart:1", facts(1))
        store = open_store(index_dir=tmp_path)
        assert store.version("Cart:1") == 32
        assert [event.version for event in store.read("Cart:1")] == list(range(1, 33))
        assert store.append("Cart:1", facts(1), command=Command(id="req-1")).is_repeat
        assert "made again" not in caplog.text

    @pytest.mark.parametrize("at", [0, 20, 60, -1])
    def test_a_damaged_index_is_made_again(
        self, open_store: Any, tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        with indexed(open_store(index_dir=tmp_path)) as store:
            store.append("Cart:1", facts(1_200))
        (path,) = tmp_path.iterdir()
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        assert open_store(index_dir=tmp_path).version("Cart:1") == 1_200
        assert "made again from the log" in caplog.text

    def test_an_index_of_another_log_is_made_again(
        self, open_store: Any, brokers: str, topic: str, tmp_path: Path, caplog: Any
    ) -> None:
        other = EventStore({"bootstrap.servers": brokers}, "other." + topic, partitions=1)
        with indexed(open_store(index_dir=tmp_path)) as store:
            store.append("Cart:1", facts(1_200))
        (path,) = tmp_path.iterdir()
        with other:
            other.append("Cart:1", facts(1_100))
            impostor = EventStore(
                {"bootstrap.servers": brokers}, other.topic, index_dir=tmp_path / "other"
            )
            (tmp_path / "other").mkdir()
            forged = path.read_bytes()
            (tmp_path / "other" / f"{other.topic}-0.events").write_bytes(forged)
            with impostor:
                assert impostor.version("Cart:1") == 1_100
        assert "made again" in caplog.text

    def test_a_writer_keeps_its_index_file_while_it_writes(
        self, open_store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(event_partition, "INDEX_FILE_EVENTS", 100)
        store = open_store(index_dir=tmp_path / "new")
        store.append("Cart:1", facts(99))
        assert not (tmp_path / "new").exists()
        store.append("Cart:1", facts(1))
        assert len(list((tmp_path / "new").iterdir())) == 1

    def test_an_index_that_cannot_be_kept_stops_nobody(
        self, open_store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        monkeypatch.setattr(event_partition, "INDEX_FILE_EVENTS", 100)
        (tmp_path / "file").write_text("no directory")
        for folder in (tmp_path / "file", tmp_path / "full"):
            with indexed(open_store(index_dir=folder)) as store:
                monkeypatch.setattr(os, "fdatasync", full_disk)
                before = store.version("Cart:1")
                assert store.append("Cart:1", facts(1_100)).version == before + 1_100
        assert list((tmp_path / "full").iterdir()) == []
        assert caplog.text.count("The store goes on without it") >= 2
        assert caplog.text.count("The log is read") == 1

    def test_numbers_do_not_begin_again_when_all_events_are_gone(
        self, open_store: Any, brokers: str, topic: str
    ) -> None:
        store = open_store()
        store.append("Cart:1", facts(3))
        delete_before(brokers, topic, store._log.committed(0).end)
        late = open_store()
        assert list(late.read("Cart:1")) == []
        for _ in range(2):
            with pytest.raises(NumbersLost, match=rf"{topic}\[0\]"):
                late.append("Cart:1", facts(1))
        assert store.append("Cart:1", facts(1)).version == 4
        assert late.append("Cart:1", facts(1), expect=4).seq == 5

    def test_old_events_of_scattered_streams_are_read_from_the_log(self, open_store: Any) -> None:
        store = open_store()
        asked = [
            store.submit(f"Cart:{number % 7}", lambda _head: facts(1)) for number in range(3_000)
        ]
        wait(asked, WITHIN_S)
        reader = open_store(recent_bytes_max=10_000)
        for number in range(7):
            read = [event.version for event in reader.read(f"Cart:{number}")]
            assert read == list(range(1, len(read) + 1))
            assert len(read) == store.version(f"Cart:{number}")

    @pytest.mark.parametrize("end", [3, 5, 10, 17])
    def test_a_range_is_read_to_its_end_and_no_further(self, store: EventStore, end: int) -> None:
        for _ in range(20):
            store.append("Cart:1", facts(2))  # at 0 and 1, a marker at 2
        log, within = store._log, OffsetRange(start=1, end=end)
        read = list(log.scan(0, within))
        offsets = [offset for records, _ in read for offset in records.offsets]
        assert offsets == [at for at in range(1, end) if at % 3 != 2]
        assert read[-1][1] in (end, end + 1)  # behind a marker, if one must be there
        assert read[-1][1] == end or end % 3 == 2

    def test_chains_hold_and_one_that_does_not_is_found(
        self, store: EventStore, brokers: str, topic: str
    ) -> None:
        store.append("Cart:1", facts(3))
        store.append("Cart:2", facts(3))
        assert list(store.verify()) == list(store.verify("Cart:1")) == []
        last = list(store.read("Cart:1"))[-1]
        forged = b'{"seq":7,"stream":"Cart:1","version":4,"type":"Paid","type_version":1,"id":"x",'
        forged += b'"at":"2026-01-01T00:00:00Z","data":{},"hash":"%s"}' % last.hash.encode()
        put(brokers, topic, b"Cart:1", forged)
        (finding,) = store.verify()
        assert (finding.stream, finding.version, finding.partition) == ("Cart:1", 4, 0)
        assert [one.version for one in store.verify("Cart:1")] == [4]

    def test_a_record_under_the_key_of_another_stream_is_found(
        self, store: EventStore, brokers: str, topic: str
    ) -> None:
        with EventStore({"bootstrap.servers": brokers}, "other." + topic, partitions=1) as other:
            other.append("Cart:1", facts(1))
            (records,) = other._partition(0).records([1])
        put(brokers, topic, b"Cart:2", records.values[0])
        assert [one.reason for one in store.verify()] == ["its key is that of another stream"]

    def test_a_record_that_is_no_event_is_told_with_its_place(
        self, open_store: Any, brokers: str, topic: str
    ) -> None:
        open_store().append("Cart:1", facts(1))
        put(brokers, topic, b"Cart:1", b"hello")
        with pytest.raises(BadEventRecord, match=rf"{topic}\[0\], offset 2"):
            open_store().version("Cart:1")
        other = open_store()
        for _ in range(2):
            with pytest.raises(BadEventRecord, match=rf"{topic}\[0\], offset 2"):
                other.append("Cart:1", facts(1))

    # --- bad input ----------------------------------------------------------------------------

    @pytest.mark.parametrize("name", ["", "a\nb", "a\x00", "\ud800", "x" * 1_001])
    def test_a_stream_name_that_cannot_be_is_refused(self, store: EventStore, name: str) -> None:
        for use in (lambda: store.append(name, facts(1)), lambda: list(store.read(name))):
            with pytest.raises(BadStreamName):
                use()

    @pytest.mark.parametrize("name", [" ", "Warenkorb:ä/ö?#%", '"\\', "سلام:۷", "🛒" * 250])
    def test_a_stream_name_may_have_odd_letters(self, store: EventStore, name: str) -> None:
        store.append(name, facts(2))
        assert [event.stream for event in store.read(name)] == [name, name]

    @pytest.mark.parametrize(
        "event",
        [
            NewEvent(type="X", data=b"[]"),
            NewEvent(type="X", data=b'{"a":'),
            NewEvent(type="X", data=b'{}},{"a":{}'),
            NewEvent(type="X", data=b'{"a":"\xff"}'),
            NewEvent(type="X", data='{"a":1}'),  # type: ignore[arg-type]
            NewEvent(type="X", data=nested(5_000)),
            NewEvent(type="X", data=nested(EVENT_DEPTH_MAX)),
            NewEvent(type="", data=b"{}"),
            NewEvent(type="X", data=b"{}", tags=(1,)),  # type: ignore[arg-type]
            NewEvent(type="X", data=b"{}", tags="ab"),  # type: ignore[arg-type]
            NewEvent(type="X", data=b"{}", id=7),  # type: ignore[arg-type]
            "X",
        ],
    )
    def test_an_event_that_nobody_could_read_is_refused(
        self, store: EventStore, event: Any
    ) -> None:
        with pytest.raises(UnfitEvent):
            store.append("Cart:1", [fact(), event])
        assert store.append("Cart:1", [fact()]).version == 1

    def test_an_event_may_be_as_deep_as_the_limit(self, store: EventStore) -> None:
        data = nested(EVENT_DEPTH_MAX - 1)
        wide = b'{"a":[%s],"b":"%s"}' % (b",".join([b"{}"] * 1_000), rb"\"[[[{{{" * 1_000)
        store.append("Cart:1", [fact("Deep", data), fact("Wide", wide)])
        assert [bytes(event.data) for event in store.read("Cart:1")] == [data, wide]

    def test_metadata_that_are_no_json_are_refused(self, store: EventStore) -> None:
        deep: list[Any] = []
        for _ in range(EVENT_DEPTH_MAX):
            deep = [deep]
        for meta in ({"by": object()}, {"by": deep}):
            with pytest.raises(UnfitEvent):
                store.append("Cart:1", [fact()], meta=meta)

    def test_an_event_may_be_as_large_as_the_limit_and_no_larger(self, store: EventStore) -> None:
        small = store.append("Cart:1", [fact("X", b'{"x":""}')])
        assert small.version == 1
        around = len(next(store._partition(0).records([1])).values[0])
        room = EVENT_BYTES_MAX - around
        store.append("Cart:1", [fact("X", b'{"x":"%s"}' % (b"y" * room))])
        with pytest.raises(EventTooLarge) as refused:
            store.append("Cart:1", [fact("X", b'{"x":"%s"}' % (b"y" * (room + 1)))])
        assert refused.value.size_bytes == EVENT_BYTES_MAX + 1

    def test_a_time_without_a_zone_is_refused(self, store: EventStore) -> None:
        store.append("Cart:1", facts(1))
        with pytest.raises(TimeWithoutZone):
            list(store.read("Cart:1", at=datetime(2026, 1, 1)))

    def test_a_store_of_before_a_fork_says_so(
        self, store: EventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.append("Cart:1", facts(1))
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            for use in (
                lambda: store.append("Cart:1", facts(1)),
                lambda: store.version("Cart:1"),
                lambda: store.subscribe(),
                lambda: list(store.verify()),
            ):
                with pytest.raises(StoreForked):
                    use()
            store.close()  # what it has is the parent's
        assert store.append("Cart:1", facts(1)).version == 2

    def test_a_closed_store_says_so(self, open_store: Any) -> None:
        store = open_store()
        store.append("Cart:1", facts(1))
        store.close()
        for use in (
            lambda: store.append("Cart:1", facts(1)),
            lambda: list(store.read("Cart:1")),
            lambda: store.subscribe(),
        ):
            with pytest.raises(StoreClosed):
                use()


@contextmanager
def held(store: EventStore) -> Iterator[None]:
    """Meanwhile its writer is in a decision, and all others wait."""
    has_begun, may_end = threading.Event(), threading.Event()

    def decision(_head: StreamHead) -> list[NewEvent]:
        has_begun.set()
        assert may_end.wait(WITHIN_S)
        return []

    asked = store.submit("Held", decision)
    assert has_begun.wait(WITHIN_S)
    try:
        yield
    finally:
        may_end.set()
    assert asked.result(WITHIN_S).version == 0


@contextmanager
def indexed(store: EventStore) -> Iterator[EventStore]:
    """Closed at the end, when it writes its index."""
    with store:
        yield store


def full_disk(_file: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def delete_before(brokers: str, topic: str, offset: int) -> None:
    """As retention would."""
    admin = AdminClient({"bootstrap.servers": brokers})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    deleted.result(WITHIN_S)


def put(brokers: str, topic: str, key: bytes, value: bytes) -> None:
    """As something else would."""
    producer = Producer({"bootstrap.servers": brokers})
    producer.produce(topic, value, key, 0)
    assert producer.flush(WITHIN_S) == 0
