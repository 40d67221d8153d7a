"""The book of idempotency keys: kept for their time, and never forgotten early."""

from dataclasses import replace
from hashlib import sha256

import pytest

from millstream.queues.outbox import Receipt
from millstream.web.key_journal import (
    ENTRY_BYTES,
    KeyBook,
    KeyUse,
    RequestPrinter,
    require_same,
    use_from,
)
from millstream.web.problems import Problem

PRINTER = RequestPrinter(bytes(32))
USE = KeyUse("clicks", PRINTER.print_of(b"{}"), (Receipt("clicks", 0, 41), Receipt("clicks", 3, 7)))


def book(*, keep_ms: int = 100, bytes_max: int = 1 << 20) -> KeyBook:
    return KeyBook(keep_ms=keep_ms, bytes_max=bytes_max)


def test_a_use_is_read_back_as_it_was_written() -> None:
    assert use_from(USE.to_value()) == USE


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"topic": "t", "receipts": [1]}', b"\xff"])
def test_what_is_no_use_is_told(value: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        use_from(value)


def test_a_key_is_known_as_long_as_it_is_kept_and_not_longer() -> None:
    keys = book(keep_ms=100)
    keys.add("a", USE.to_value(), at_ms=1_000)
    keys.forget_before(1_100)
    assert keys.find("a") == USE
    keys.forget_before(1_101)
    assert keys.find("a") is None
    assert (len(keys), keys.size_bytes) == (0, 0)


def test_the_oldest_are_forgotten_first() -> None:
    keys = book(keep_ms=100)
    for number in range(5):
        keys.add(f"{number}", USE.to_value(), at_ms=1_000 + number)
    keys.forget_before(1_102)
    assert [keys.find(f"{number}") is not None for number in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_a_full_book_refuses_a_new_key_and_keeps_the_old() -> None:
    size = ENTRY_BYTES + 1 + len(USE.to_value())
    keys = book(bytes_max=2 * size)
    keys.add("a", USE.to_value(), at_ms=0)
    keys.require_room()
    keys.add("b", USE.to_value(), at_ms=0)
    with pytest.raises(Problem, match="2 idempotency keys are kept"):
        keys.require_room()
    assert keys.find("a") == USE


def test_a_key_that_is_written_again_counts_once() -> None:
    keys = book()
    keys.add("a", USE.to_value(), at_ms=0)
    size = keys.size_bytes
    keys.add("a", USE.to_value(), at_ms=1)
    assert (len(keys), keys.size_bytes) == (1, size)


def test_a_key_stands_for_one_topic_and_one_body() -> None:
    require_same("a", USE, topic="clicks", request=PRINTER.print_of(b"{}"))
    for topic, body in (("orders", b"{}"), ("clicks", b"{ }")):
        with pytest.raises(Problem, match="'a' was used for other rows, into topic clicks"):
            require_same("a", USE, topic=topic, request=PRINTER.print_of(body))


def test_another_process_takes_a_repeat_for_the_same_rows_and_never_for_another_topic() -> None:
    asked = RequestPrinter(bytes([1] * 32)).print_of(b"{ }")
    require_same("a", USE, topic="clicks", request=asked)
    of_former_versions = replace(USE, request=sha256(b"{}").hexdigest())
    require_same("a", of_former_versions, topic="clicks", request=asked)
    with pytest.raises(Problem):
        require_same("a", USE, topic="orders", request=asked)


def test_a_print_of_rows_cannot_be_made_again_without_the_process() -> None:
    """The attack: all of a record is known, and the rows are one of two."""
    stored = USE.to_value().decode()
    assert not any(sha256(body).hexdigest() in stored for body in (b"{}", b"{ }"))
    assert RequestPrinter(bytes([1] * 32)).print_of(b"{}") != USE.request
