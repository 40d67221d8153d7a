"""Messages of pgoutput to whole transactions."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from millstream.capture.change import Change, Message, Transaction
from millstream.capture.postgres.transactions import PULSE_EVERY, Transactions
from millstream.capture.postgres.wire import BadMessage
from tests.unit.capture.postgres.known_tables import ITEMS, ITEMS_RELATION, KnownTables
from tests.unit.capture.postgres.messages import (
    INT4,
    STREAM_STOP,
    TEXT,
    UNSENT,
    begin,
    commit,
    delete,
    insert,
    message,
    relation,
    stream_abort,
    stream_commit,
    stream_start,
    streamed,
    truncate,
    update,
)

WIDER_RELATION = relation(ITEMS, ("id", INT4), ("name", TEXT), ("note", TEXT))


def transactions() -> Transactions:
    return Transactions(KnownTables(), pulse=lambda: None)


def read(messages: Iterable[bytes], into: Transactions | None = None) -> list[list[Any]]:
    """The changes of each transaction, as (op, key, row)."""
    reading = into or transactions()
    found = [reading.put(one) for one in messages]
    return [[short(one) for one in each.changes] for each in found if each is not None]


def short(change: Change | Message) -> Any:
    if isinstance(change, Message):
        return change
    row = None if change.after is None else list(json.loads(change.after).values())
    return change.op, change.key, row


def test_a_transaction_has_its_place_its_number_and_its_time() -> None:
    reading = transactions()
    for one in (begin(99), ITEMS_RELATION, insert(ITEMS, "1", "tea")):
        assert reading.put(one) is None
        assert reading.is_inside
    found = reading.put(commit(0x16_B374D848, at=1_000_000))
    assert found is not None
    assert not reading.is_inside
    assert (found.commit, found.resume, found.id) == ("16/B374D848", "16/B374D850", "99")
    assert found.at_ms == 946_684_801_000


def test_changes_come_in_order() -> None:
    assert read([
        begin(1),
        ITEMS_RELATION,
        insert(ITEMS, "1", "tea"),
        update(ITEMS, "1", "rye"),
        update(ITEMS, "2", "rye", key=["1", None]),
        delete(ITEMS, "2", None),
        truncate(ITEMS),
        message("outbox:x", b"paid"),
        commit(8),
    ]) == [[
        ("c", b'{"id":1}', [1, "tea"]),
        ("u", b'{"id":1}', [1, "rye"]),
        ("d", b'{"id":1}', None),
        ("c", b'{"id":2}', [2, "rye"]),
        ("d", b'{"id":2}', None),
        ("t", None, None),
        Message("outbox:x", b"paid"),
    ]]  # fmt: skip


def test_a_value_that_was_not_sent_is_taken_from_the_old_row() -> None:
    (plain, full) = _changes([
        update(ITEMS, "1", UNSENT),
        update(ITEMS, "1", UNSENT, old=["1", "tea"]),
    ])  # fmt: skip
    assert (plain.after, plain.unavailable) == (b'{"id":1}', ("name",))
    assert (full.after, full.unavailable) == (b'{"id":1,"name":"tea"}', ())


def test_a_key_that_was_not_sent_is_taken_from_the_old_key() -> None:
    (change,) = _changes([update(ITEMS, UNSENT, UNSENT, key=["1", None])])
    assert (change.op, change.key, change.unavailable) == ("u", b'{"id":1}', ("name",))


def _changes(messages: list[bytes]) -> list[Change]:
    reading = transactions()
    found = [reading.put(one) for one in [begin(1), ITEMS_RELATION, *messages, commit(8)]]
    assert found[-1] is not None
    return [one for one in found[-1].changes if isinstance(one, Change)]


def test_transactions_in_progress_are_kept_apart_until_they_end() -> None:
    assert read([
        stream_start(1), streamed(1, ITEMS_RELATION), streamed(1, insert(ITEMS, "1", "a")),
        STREAM_STOP,
        stream_start(2), streamed(2, ITEMS_RELATION), streamed(2, insert(ITEMS, "2", "b")),
        STREAM_STOP,
        begin(3), ITEMS_RELATION, insert(ITEMS, "3", "c"), commit(8),
        stream_start(1), streamed(1, insert(ITEMS, "4", "a")), STREAM_STOP,
        stream_commit(2, 16),
        stream_commit(1, 24),
    ]) == [
        [("c", b'{"id":3}', [3, "c"])],
        [("c", b'{"id":2}', [2, "b"])],
        [("c", b'{"id":1}', [1, "a"]), ("c", b'{"id":4}', [4, "a"])],
    ]  # fmt: skip


def test_what_was_rolled_back_inside_is_left_out_but_its_table_counts() -> None:
    """The server describes a table once in a transaction: also when that part is rolled back."""
    assert read([
        stream_start(1),
        streamed(2, ITEMS_RELATION),
        streamed(2, insert(ITEMS, "1", "gone")),
        streamed(1, insert(ITEMS, "2", "stays")),
        STREAM_STOP,
        stream_abort(1, 2),
        stream_commit(1, 8),
    ]) == [[("c", b'{"id":2}', [2, "stays"])]]  # fmt: skip


def test_a_transaction_that_is_rolled_back_leaves_nothing() -> None:
    reading = transactions()
    assert read([
        stream_start(1), streamed(1, ITEMS_RELATION), streamed(1, insert(ITEMS, "1", "a")),
        STREAM_STOP,
        stream_abort(1, 1),
        begin(3), ITEMS_RELATION, insert(ITEMS, "3", "c"), commit(8),
    ], reading) == [[("c", b'{"id":3}', [3, "c"])]]  # fmt: skip
    reading.close()


def test_a_table_that_changes_counts_from_there_on() -> None:
    assert read([
        begin(1),
        ITEMS_RELATION,
        insert(ITEMS, "1", "a"),
        WIDER_RELATION,
        insert(ITEMS, "2", "b", "new"),
        commit(8),
    ]) == [[("c", b'{"id":1}', [1, "a"]), ("c", b'{"id":2}', [2, "b", "new"])]]  # fmt: skip


def test_a_transaction_without_changes_is_not_handed_over_but_its_tables_count() -> None:
    assert read([
        begin(1), ITEMS_RELATION, message("millstream:flush", b""), commit(8),
        begin(2), insert(ITEMS, "1", "a"), commit(16),
    ]) == [[("c", b'{"id":1}', [1, "a"])]]  # fmt: skip


def rewrite(table: str) -> bytes:
    return message("millstream:rewrite", table.encode())


def test_rewritten_tables_are_named_once_but_not_what_was_rolled_back() -> None:
    reading = transactions()
    messages = [
        stream_start(1),
        streamed(1, rewrite("public.items")),
        streamed(1, rewrite("public.items")),
        streamed(2, rewrite("public.other")),
        STREAM_STOP,
        stream_abort(1, 2),
        stream_commit(1, 8),
    ]
    found = [reading.put(one) for one in messages][-1]
    assert isinstance(found, Transaction)
    assert found.reloads == ("public.items",)


def dropped(table: str) -> bytes:
    return message("millstream:dropped", table.encode())


def test_a_table_that_is_dropped_is_truncated_at_its_place_among_the_changes() -> None:
    found = read([
        begin(1), ITEMS_RELATION, insert(ITEMS, "1", "a"), commit(8),
        begin(2), insert(ITEMS, "2", "b"), dropped("public.items"), commit(9),
    ])  # fmt: skip
    assert [[change[0] for change in one] for one in found] == [["c"], ["c", "t"]]


def test_a_drop_of_another_table_or_one_that_was_rolled_back_is_no_change() -> None:
    known = [begin(1), ITEMS_RELATION, insert(ITEMS, "1", "a"), commit(8)]
    assert len(read([*known, begin(2), dropped("public.other"), commit(9)])) == 1
    found = read([
        *known,
        stream_start(3),
        streamed(3, insert(ITEMS, "2", "b")),
        streamed(4, dropped("public.items")),
        STREAM_STOP,
        stream_abort(3, 4),
        stream_commit(3, 10),
    ])  # fmt: skip
    assert [[change[0] for change in one] for one in found] == [["c"], ["c"]]


def test_a_message_outside_of_a_transaction_is_passed_over() -> None:
    assert read([message("outbox:x", b"", transactional=False)]) == []


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(BadMessage, match="outside of a transaction"):
        transactions().put(insert(ITEMS, "1", "a"))
    with pytest.raises(BadMessage, match="without a begin"):
        transactions().put(commit(8))
    with pytest.raises(BadMessage, match="not known"):
        read([begin(1), b"?", commit(8)])


def test_reading_a_long_transaction_comes_up_for_air() -> None:
    pulses: list[int] = []
    reading = Transactions(KnownTables(), pulse=lambda: pulses.append(1))
    many = [insert(ITEMS, "1", "a")] * (3 * PULSE_EVERY)
    read([begin(1), ITEMS_RELATION, *many, commit(8)], reading)
    assert len(pulses) == 3
