"""What the report of an erasure says of events that a former version wrote."""

from datetime import UTC, datetime

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millstream.eventsourcing.forgetting import Erasure, is_guessable
from millstream.eventsourcing.sealing import to_text
from millstream.eventsourcing.stored_event import Command, StoredEvent
from tests.support.plain_keys import PlainKeys

NOW = datetime(2026, 11, 18, tzinfo=UTC)
PLACE = bytes(16)
KEY = PlainKeys().key_for("ada")


def stored(sealed: str, print: str | None) -> StoredEvent:
    return StoredEvent(
        seq=1,
        stream="User:ada",
        version=1,
        type="Told",
        type_version=1,
        id="e1",
        at=NOW,
        data=msgspec.Raw(msgspec.json.encode({"user": "ada", "smokes": sealed})),
        tags=(),
        command=None if print is None else Command(id="c1", print=print),
    )


def sealed_formerly(value: bytes) -> str:
    box = AESGCM(KEY.secret).encrypt(bytes(12), value, None)
    return f"sealed:1:{KEY.id}:{to_text(PLACE + bytes(12) + box)}"


@pytest.mark.parametrize("value", [b"true", b"x" * 64, b"x" * 65, b"x" * 5_000])
@pytest.mark.parametrize("print", [None, "keyed:1a2b3c4d:9f86d08112345678"])
def test_what_is_padded_and_has_no_old_print_cannot_be_guessed(
    value: bytes, print: str | None
) -> None:
    assert not is_guessable(stored(KEY.seal(value, PLACE), print))


def test_an_old_print_can_be_tried_out() -> None:
    assert is_guessable(stored(KEY.seal(b"true", PLACE), "9f86d08112345678"))


@pytest.mark.parametrize("size", [4, 63, 65, 127, 5_000])
def test_a_value_that_was_not_padded_can_be_told_by_its_length(size: int) -> None:
    assert is_guessable(stored(sealed_formerly(b"x" * size), None))


@pytest.mark.parametrize("size", [64, 128])
def test_a_value_as_long_as_a_padded_one_is_like_it(size: int) -> None:
    assert not is_guessable(stored(sealed_formerly(b"x" * size), None))


@pytest.mark.parametrize("count", [0, 3])
def test_the_report_says_how_many_there_are(count: int) -> None:
    erasure = Erasure(
        subject="s", at=NOW, by="", why="", is_repeat=False, had_key=True, guessable=count
    )
    assert ("guessable 3 events are of a former version" in str(erasure)) == bool(count)
    assert erasure.to_dict()["guessable"] == count
