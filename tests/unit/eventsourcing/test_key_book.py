from datetime import UTC, datetime

import pytest

from millstream.eventsourcing.key_book import (
    BadKeyRecord,
    KeyBook,
    Note,
    Remark,
    Ring,
    Subject,
    SubjectForgotten,
    announcement,
    completion,
    decision,
    due,
    first_key,
    key_id,
    renewal,
    rewrapping,
    ring_note,
    subject_note,
    succession,
)

NOW = Remark(datetime(2026, 11, 18, tzinfo=UTC), by="ada", why="she asked")


def wrap(key_id: str, wrapping: str) -> str:
    return f"{key_id} in {wrapping}"


def rewrap(key_id: str, _subject: Subject, wrapping: str) -> str:
    return wrap(key_id, wrapping)


def book_of(*notes: Note) -> KeyBook:
    book = KeyBook()
    take(book, list(notes))
    return book


def take(book: KeyBook, notes: list[Note]) -> None:
    for key, value in notes:
        book.apply(key, value, place="here")


def forget(book: KeyBook, hash: str) -> None:
    take(book, announcement(book, check="c", name="w2"))
    take(book, decision(book, [hash], NOW, coming="w2"))


@pytest.fixture
def book() -> KeyBook:
    book = book_of(ring_note(Ring(check="c", current="w1")))
    for hash in ("a", "b", "c"):
        take(book, first_key(book, hash, wrap))
    return book


def test_a_new_subject_has_a_key_in_the_current_wrapping_key(book: KeyBook) -> None:
    assert book.subject("a") == Subject(generation=1, wrapping="w1", key="a.1 in w1")
    assert first_key(book, "a", wrap) == []
    assert book.has_key(key_id("a", 1))
    assert not book.has_key(key_id("a", 2))


def test_an_erasure_is_announced_decided_rewrapped_and_completed(book: KeyBook) -> None:
    take(book, announcement(book, check="c", name="w2"))
    assert announcement(book, check="c", name="w3") == []
    take(book, decision(book, ["a", "b"], NOW, coming="w2"))
    assert book.ring == Ring(check="c", current="w2", retiring=("w1",))
    assert book.is_unfinished
    assert book.subject("a") == Subject(generation=1, forgotten=NOW)
    assert book.erasures == 2
    assert book.wrapped_otherwise() == ["c"]
    take(book, rewrapping(book, ["a", "c"], rewrap))
    assert book.subject("c") == Subject(generation=1, wrapping="w2", key="c.1 in w2")
    assert rewrapping(book, ["c"], rewrap) == []
    take(book, completion(book, destroyed=["w1"]))
    assert book.ring == Ring(check="c", current="w2")
    assert completion(book, destroyed=["w1"]) == []


def test_a_decision_waits_for_the_wrapping_key_that_is_announced(book: KeyBook) -> None:
    assert decision(book, ["a"], NOW, coming="w2") == []
    assert decision(book, ["a"], NOW, coming="") == []
    take(book, announcement(book, check="c", name="w2"))
    assert decision(book, ["a"], NOW, coming="w3") == []
    assert succession(book, coming="") == []


def test_a_second_erasure_before_the_first_has_ended_retires_both_keys(book: KeyBook) -> None:
    for hash, name in (("a", "w2"), ("b", "w3")):
        take(book, announcement(book, check="c", name=name))
        take(book, decision(book, [hash], NOW, coming=name))
    assert book.ring == Ring(check="c", current="w3", retiring=("w1", "w2"))
    take(book, completion(book, destroyed=["w1"]))
    assert book.ring == Ring(check="c", current="w3", retiring=("w2",))


def test_who_had_no_key_is_forgotten_with_a_change_of_the_wrapping_key_too(book: KeyBook) -> None:
    forget(book, "z")
    assert book.subject("z") == Subject(generation=0, forgotten=NOW)
    assert book.ring == Ring(check="c", current="w2", retiring=("w1",))
    assert due(book, ["a", "z", "a"]) == ["a"]
    take(book, announcement(book, check="c", name="w3"))
    assert decision(book, ["z"], NOW, coming="w3") == []  # it was done


def test_who_was_forgotten_gets_a_key_by_consent_only(book: KeyBook) -> None:
    forget(book, "z")
    with pytest.raises(SubjectForgotten, match=r"subject z .* app\.consent"):
        first_key(book, "z", wrap)
    take(book, renewal(book, "z", NOW, wrap))
    assert book.subject("z") == Subject(generation=1, wrapping="w2", key="z.1 in w2", consent=NOW)
    assert renewal(book, "z", NOW, wrap) == []
    assert renewal(book, "a", NOW, wrap) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"ring", b"{}"),
        (b"ring", None),
        (b"subject:a", b"no json"),
        (b"subject:a", None),
        (b"subject:a", b'{"generation":"x"}'),
        (b"else", b"{}"),
        (None, b"{}"),
    ],
)
def test_a_record_that_is_none_is_told_with_its_place(key: bytes, value: bytes | None) -> None:
    with pytest.raises(BadKeyRecord, match=r"shop\.keys\[0\] at offset 5"):
        KeyBook().apply(key, value, place="shop.keys[0] at offset 5")


def test_the_records_are_as_the_format_says() -> None:
    assert ring_note(Ring(check="c", current="w2", retiring=("w1",))) == (
        b"ring",
        b'{"check":"c","current":"w2","retiring":["w1"]}',
    )
    assert subject_note("a", Subject(generation=1, forgotten=NOW)) == (
        b"subject:a",
        b'{"generation":1,"forgotten":{"at":"2026-11-18T00:00:00Z","by":"ada","why":"she asked"}}',
    )
