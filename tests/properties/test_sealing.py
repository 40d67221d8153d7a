"""Whatever is sealed comes back; whatever was changed or moved does not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.eventsourcing.personal import PersonalField, subject_text
from millstream.eventsourcing.sealing import (
    SealBroken,
    open_fields,
    open_snapshot,
    reveal,
    seal_fields,
    seal_snapshot,
)
from tests.support.plain_keys import PlainKeys

texts = st.text(st.characters(exclude_categories=["Cs"]))
subjects = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
json_values = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, width=32) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
).filter(lambda value: value is not None)


@given(subject=subjects, stream=texts, event_id=texts, value=json_values, field=texts)
def test_any_value_of_any_subject_comes_back(
    subject: str, stream: str, event_id: str, value: Any, field: str
) -> None:
    keys = PlainKeys()
    data = {"who": subject, f"f{field}": value}
    fields = [PersonalField(f"f{field}", "who")]
    sealed, tags = seal_fields(data, fields, keys, stream=stream, event_id=event_id)
    assert tags == (f"personal:{keys.hash_of(subject_text(subject))}",)
    assert open_fields(sealed, keys, stream=stream, event_id=event_id)[0] == data
    assert reveal(sealed, keys) == data


@settings(max_examples=300)
@given(value=texts, position=st.integers(0), bit=st.integers(0, 6))
def test_a_flipped_bit_is_refused(value: str, position: int, bit: int) -> None:
    keys = PlainKeys()
    fields = [PersonalField("email", None)]
    data, _ = seal_fields({"email": value}, fields, keys, stream="A:ada", event_id="1")
    text = data["email"]
    at = len("sealed:1:") + position % (len(text) - len("sealed:1:"))
    flipped = text[:at] + chr(ord(text[at]) ^ (1 << bit)) + text[at + 1 :]
    with pytest.raises(SealBroken):
        open_fields({"email": flipped}, keys, stream="A:ada", event_id="1")
    assert is_closed(flipped, keys)


def is_closed(text: str, keys: PlainKeys) -> bool:
    """What is no token any more is only a text."""
    try:
        return bool(reveal(text, keys) == text)
    except SealBroken:
        return True


places = st.tuples(texts, texts, texts)


@given(here=places, there=places, value=texts)
def test_a_moved_value_is_refused(
    here: tuple[str, str, str], there: tuple[str, str, str], value: str
) -> None:
    keys = PlainKeys()
    (stream, event_id, field), (other, other_id, other_field) = here, there
    fields = [PersonalField(field, None)]
    keyed = f"S:{stream}x"
    data, _ = seal_fields({field: value}, fields, keys, stream=keyed, event_id=event_id)
    moved = {other_field: data[field]}
    if (stream, event_id, field) == there:
        assert open_fields(moved, keys, stream=keyed, event_id=event_id)[0] == {field: value}
    else:
        with pytest.raises(SealBroken):
            open_fields(moved, keys, stream=f"S:{other}x", event_id=other_id)


@given(state=st.binary(), names=st.sets(subjects, min_size=1, max_size=4), data=st.data())
def test_a_snapshot_opens_with_all_keys_or_not_at_all(
    state: bytes, names: set[str], data: st.DataObject
) -> None:
    keys = PlainKeys()
    ids = [keys.key_for(name).id for name in sorted(names)]
    sealed = seal_snapshot(state, data.draw(st.permutations(ids)), keys, place="A:1@5")
    assert sealed is not None
    assert open_snapshot(sealed, keys, place="A:1@5") == state
    head = sealed.index(b":", len("sealed-snapshot:1:")) + 1
    at = data.draw(st.integers(head, len(sealed) - 1))
    broken = bytearray(sealed)
    broken[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(SealBroken):
        open_snapshot(bytes(broken), keys, place="A:1@5")
    keys.forget(data.draw(st.sampled_from(sorted(names))))
    assert open_snapshot(sealed, keys, place="A:1@5") is None
