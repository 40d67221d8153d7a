"""The notes of a view in a topic, as records."""

import pytest

from millstream.schemas.declaration import schema_of
from millstream.views.receipts import KeptReceipt
from millstream.views.stores.topic.notes import (
    BadNote,
    KeptGeneration,
    TopicNotes,
    difference,
    note_of,
    note_of_book,
)
from millstream.views.view_book import GenerationState, ViewBook


def kept(batch: int) -> KeptGeneration:
    state = GenerationState(
        key=("url",),
        schema=schema_of("url STRING, count BIGINT"),
        epoch=3,
        receipt=KeptReceipt("q", batch, {"clicks": {0: 10, 1: 7}}),
    )
    return KeptGeneration(state, ends={0: 4, 2: 9})


def test_notes_come_back_as_they_were() -> None:
    notes = TopicNotes()
    book = ViewBook().claimed("job", 1, place="here").claimed("job", 2, place="here")
    for note in (note_of_book(book), note_of(1, kept(6)), note_of(1, kept(7)), note_of(2, kept(0))):
        notes.apply(*note)
    assert notes == TopicNotes(book, {1: kept(7), 2: kept(0)})


def test_a_tombstone_removes_a_generation() -> None:
    notes = TopicNotes(kept={1: kept(7), 2: kept(0)})
    notes.apply(*note_of(1, None))
    notes.apply(*note_of(1, None))
    assert set(notes.kept) == {2}


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"view", b"{"), (b"view", b"[]"), (b"other", b"{}"), (b"generation/1", b'{"key": []}')],
)
def test_what_is_no_note_is_named(key: bytes, value: bytes) -> None:
    with pytest.raises(BadNote, match=f"the note b'{key.decode()}'"):
        TopicNotes().apply(key, value)


def test_the_rows_of_a_batch_end_where_it_was_written_and_else_where_they_ended() -> None:
    assert kept(7).extended({1: 3, 2: 12}).ends == {0: 4, 1: 3, 2: 12}


def test_a_difference_makes_one_into_the_other() -> None:
    there = {b"a": b"1", b"b": b"1", b"c": b"1"}
    wanted = {b"a": b"1", b"b": b"2", b"d": b"1"}
    changes = list(difference("t", there, wanted))
    assert sorted(changes, key=str) == [
        ("t", b"b", b"2"),
        ("t", b"c", None),
        ("t", b"d", b"1"),
    ]
    assert list(difference("t", wanted, wanted)) == []
