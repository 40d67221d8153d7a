from collections import namedtuple
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millstream.eventsourcing.personal import FORGOTTEN, PersonalField
from millstream.eventsourcing.sealing import (
    BadFields,
    NotSealable,
    SealBroken,
    open_fields,
    open_snapshot,
    padded_bytes,
    place_of,
    reveal,
    seal_fields,
    seal_snapshot,
    subject_hash,
    take_apart,
    to_text,
)
from tests.support.plain_keys import PlainKeys

FIELDS = (PersonalField("email", "user"), PersonalField("friend_email", "friend"))
DATA = {"user": "ada", "friend": "bob", "email": "ada@x.org", "friend_email": "bob@x.org", "n": 1}
STREAM, EVENT = "Account:ada", "e1"
Row = namedtuple("Row", ["id", "email"])


@pytest.fixture
def keys() -> PlainKeys:
    return PlainKeys()


def sealed(keys: PlainKeys, **changed: Any) -> dict[str, Any]:
    return seal_fields(DATA | changed, FIELDS, keys, stream=STREAM, event_id=EVENT)[0]


def opened(keys: PlainKeys, data: dict[str, Any], event_id: str = EVENT) -> dict[str, Any]:
    return open_fields(data, keys, stream=STREAM, event_id=event_id)[0]


def test_what_is_personal_is_a_text_that_does_not_tell_it(keys: PlainKeys) -> None:
    data, tags = seal_fields(DATA, FIELDS, keys, stream=STREAM, event_id=EVENT)
    assert data["email"].startswith(f"sealed:1:{keys.hash_of('ada')}.1:")
    assert "x.org" not in str(data)
    assert (data["user"], data["n"]) == ("ada", 1)
    assert set(tags) == {f"personal:{keys.hash_of(one)}" for one in ("ada", "bob")}


def test_it_is_opened_with_the_keys_of_its_subjects(keys: PlainKeys) -> None:
    data, used = open_fields(sealed(keys), keys, stream=STREAM, event_id=EVENT)
    assert data == DATA
    assert used == {keys.key_for("ada").id, keys.key_for("bob").id}


def test_the_same_value_is_sealed_differently_each_time(keys: PlainKeys) -> None:
    assert sealed(keys)["email"] != sealed(keys)["email"]


def test_only_the_values_of_a_forgotten_subject_are_forgotten(keys: PlainKeys) -> None:
    data = sealed(keys)
    keys.forget("ada")
    found, used = open_fields(data, keys, stream=STREAM, event_id=EVENT)
    assert found == DATA | {"email": FORGOTTEN}
    assert used == {keys.key_for("bob").id}


def test_that_there_is_no_value_is_sealed_as_a_value_is(keys: PlainKeys) -> None:
    data = sealed(keys, email=None)
    assert len(data["email"]) == len(sealed(keys)["email"])
    assert opened(keys, data)["email"] is None
    keys.forget("ada")
    assert opened(keys, data)["email"] is FORGOTTEN
    assert opened(keys, {"email": None})["email"] is None  # as it was stored formerly


def test_nothing_is_sealed_where_there_is_nothing_and_nobody(keys: PlainKeys) -> None:
    assert sealed(keys, friend=None, friend_email=None)["friend_email"] is None
    assert sealed(keys, friend="", friend_email=None)["friend_email"] is None
    keys.forget("ada")
    assert sealed(keys, email=None)["email"] is None  # nothing else could be stored for her


@pytest.mark.parametrize(
    "values",
    [
        (True, False, None, 0, 99, "f", "m", "x", "", "1815-12-10", "10115", "SW1A 2AA"),
        ("a" * 62, "+49 30 901820", "ada@example.org", "\u00e9" * 31, ["a", "b"], {"town": "x"}),
    ],
)
def test_what_is_sealed_is_as_long_as_any_other_short_value(
    keys: PlainKeys, values: tuple[Any, ...]
) -> None:
    assert len({len(sealed(keys, email=value)["email"]) for value in values}) == 1


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, 64), (1, 64), (64, 64), (65, 128), (129, 192), (4_097, 4_352), (900_000, 901_120)],
)
def test_what_is_sealed_is_padded_to_a_length_that_many_have(size: int, expected: int) -> None:
    assert padded_bytes(size) == expected


def test_what_was_sealed_before_there_was_padding_is_opened(keys: PlainKeys) -> None:
    key = keys.key_for("ada")
    place, nonce = place_of(STREAM, EVENT, "email"), bytes(12)
    box = AESGCM(key.secret).encrypt(nonce, b'"ada@x.org"', f"sealed:1:{key.id}:".encode() + place)
    old = f"sealed:1:{key.id}:{to_text(place + nonce + box)}"
    assert opened(keys, {"email": old})["email"] == "ada@x.org"


@pytest.mark.parametrize("event_id", ["e2", ""])
def test_a_value_that_was_moved_to_another_event_is_refused(keys: PlainKeys, event_id: str) -> None:
    with pytest.raises(SealBroken, match="for another place"):
        opened(keys, sealed(keys), event_id=event_id)


def test_a_value_that_was_moved_to_another_field_is_refused(keys: PlainKeys) -> None:
    data = sealed(keys)
    with pytest.raises(SealBroken, match=r"field n: .*for another place"):
        opened(keys, data | {"n": data["email"]})


def test_a_value_that_is_given_another_place_is_refused(keys: PlainKeys) -> None:
    """Its place is told in it, but bound by the box, too."""
    text = sealed(keys)["email"]
    other = keys.key_for("ada").seal(b'"mallory"', place_of(STREAM, EVENT, "other"))
    forged = text[: len(text) - 8] + other[-8:]
    for token in (forged, text.replace(".1:", ".2:"), text[:-1], text + "A", text[:60]):
        with pytest.raises(SealBroken):
            opened(keys, sealed(keys) | {"email": token})


def test_places_are_not_confused_by_where_a_name_ends() -> None:
    assert place_of("a", "bc", "d") != place_of("ab", "c", "d")


def test_a_sealed_value_in_a_field_that_is_not_personal_is_not_stored(keys: PlainKeys) -> None:
    text = sealed(keys)["email"]
    for plain in (text, [text], {"a": {"b": text}}):
        with pytest.raises(NotSealable, match=r"field n: it holds a sealed value: app\.reveal"):
            sealed(keys, n=plain)


def test_what_was_forgotten_is_not_stored_again(keys: PlainKeys) -> None:
    with pytest.raises(NotSealable, match="field email: its value was forgotten"):
        sealed(keys, email=FORGOTTEN)


def test_rows_are_revealed_wherever_a_value_is_in_them(keys: PlainKeys) -> None:
    text = sealed(keys)["email"]
    assert reveal(text, keys) == "ada@x.org"
    row = {"id": 1, "email": text, "all": [text, ("x", text)], "none": None}
    assert reveal(row, keys) == {
        "id": 1,
        "email": "ada@x.org",
        "all": ["ada@x.org", ("x", "ada@x.org")],
        "none": None,
    }
    assert reveal(Row(1, text), keys) == Row(1, "ada@x.org")
    keys.forget("ada")
    assert reveal([text, "sealed", 5], keys) == [FORGOTTEN, "sealed", 5]


def test_what_only_looks_sealed_is_left_as_it_is(keys: PlainKeys) -> None:
    text = sealed(keys)["email"]
    row = {"a": "sealed:1:boo", "b": text[:-1] + "!", "email": text}
    assert reveal(row, keys) == {**row, "email": "ada@x.org"}


def test_only_the_fields_that_are_named_are_revealed(keys: PlainKeys) -> None:
    text = sealed(keys)["email"]
    row = {"name": text, "email": text, "all": [text]}
    assert reveal(row, keys, fields=["email"]) == {**row, "email": "ada@x.org"}
    assert reveal([row], keys, fields={"all"}) == [{**row, "all": ["ada@x.org"]}]
    assert reveal(Row(text, text), keys, fields=["email"]) == Row(text, "ada@x.org")
    assert reveal(text, keys, fields=["email"]) == text
    with pytest.raises(BadFields, match="fields='email'"):
        reveal(row, keys, fields="email")


def test_a_value_of_any_kind_comes_back(keys: PlainKeys) -> None:
    for value in ("", "☃\u0000", 0, -1.5, True, [1, [2]], {"a": {"b": None}}, "sealed:1:x"):
        assert opened(keys, sealed(keys, email=value))["email"] == value


def test_a_snapshot_needs_the_keys_of_all_its_subjects(keys: PlainKeys) -> None:
    ids = [keys.key_for(one).id for one in ("ada", "bob")]
    snapshot = seal_snapshot(b"the state", ids, keys, place="Account:ada@7")
    assert snapshot is not None
    assert b"the state" not in snapshot
    assert open_snapshot(snapshot, keys, place="Account:ada@7") == b"the state"
    with pytest.raises(SealBroken):
        open_snapshot(snapshot, keys, place="Account:ada@8")
    with pytest.raises(SealBroken):
        open_snapshot(snapshot[:-1], keys, place="Account:ada@7")
    keys.forget("bob")
    assert open_snapshot(snapshot, keys, place="Account:ada@7") is None
    assert seal_snapshot(b"the state", ids, keys, place="Account:ada@7") is None


def test_a_snapshot_without_subjects_is_as_it_was(keys: PlainKeys) -> None:
    assert seal_snapshot(b"state", [], keys, place="p") == b"state"
    assert open_snapshot(b"state", keys, place="p") == b"state"


def test_subjects_have_names_that_only_the_secret_tells() -> None:
    assert subject_hash(bytes(32), "ada") != subject_hash(bytes(31) + b"1", "ada")
    assert len(subject_hash(bytes(32), "ada")) == 22


def test_a_key_does_not_show_itself(keys: PlainKeys) -> None:
    key = keys.key_for("ada")
    assert repr(key) == f"<DataKey {key.id}>"
    assert take_apart(sealed(keys)["email"], place="").key_id == key.id
