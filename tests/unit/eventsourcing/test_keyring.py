from datetime import UTC, datetime

import pytest

from millstream.eventsourcing.key_book import Remark, Subject, SubjectForgotten
from millstream.eventsourcing.keyring import (
    KEYS_AGE_SECONDS_MAX,
    Keyring,
    UnknownKey,
)
from millstream.eventsourcing.sealing import SealBroken, take_apart
from millstream.eventsourcing.stored_event import are_different
from millstream.eventsourcing.wrapping_keys import KeyringLost, WrongKeyring
from tests.support.memory_keys import MemoryKeyStore, MemoryKeyTopic, MemoryLog

NOW = Remark(datetime(2026, 11, 18, tzinfo=UTC), by="ada", why="she asked")
PLACE = bytes(16)


class Shop:
    """An application of several processes, with one log, one key store and one clock."""

    def __init__(self) -> None:
        self.log, self.files, self.seconds = MemoryLog(), dict[str, bytes](), 0.0

    def process(self) -> Keyring:
        store = MemoryKeyStore(self.files)
        return Keyring(MemoryKeyTopic(self.log), store, clock=lambda: self.seconds)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def sealed(keyring: Keyring, subject: str, value: bytes = b'"secret"') -> str:
    return keyring.key_for(subject).seal(value, PLACE)


def opened(keyring: Keyring, token: str) -> bytes | None:
    found = take_apart(token, place="")
    key = keyring.key_of(found.key_id)
    return None if key is None else key.open(found)


def test_nothing_is_made_before_it_is_needed(shop: Shop) -> None:
    shop.process()
    assert (shop.log.records, shop.files) == ([], {})


def test_what_one_process_seals_another_opens(shop: Shop) -> None:
    token = sealed(shop.process(), "ada")
    assert opened(shop.process(), token) == b'"secret"'


def test_a_key_that_another_process_has_just_made_is_found(shop: Shop) -> None:
    one, other = shop.process(), shop.process()
    sealed(one, "ada")
    assert opened(one, sealed(other, "bob")) == b'"secret"'


def test_each_subject_has_a_key_of_its_own_and_keeps_it(shop: Shop) -> None:
    one, other = shop.process(), shop.process()
    keys = [keyring.key_for(name) for keyring in (one, other, one) for name in ("ada", "bob")]
    assert len({key.secret for key in keys}) == len({key.id for key in keys}) == 2
    assert len(one) == 2


def test_the_topic_has_neither_subjects_nor_keys_in_it(shop: Shop) -> None:
    keyring = shop.process()
    secret = keyring.key_for("ada@example.org").secret
    written = b"".join(key + value for key, value in shop.log.records)
    assert b"ada@example" not in written
    assert secret not in written
    assert not any(file in written for file in shop.files.values())


def test_a_forgotten_subject_is_closed_and_the_others_are_not(shop: Shop) -> None:
    keyring = shop.process()
    of_ada, of_bob = sealed(keyring, "ada"), sealed(keyring, "bob")
    before = dict(shop.files)
    keyring.forget(["ada"], NOW)
    for reader in (keyring, shop.process()):
        assert opened(reader, of_ada) is None
        assert opened(reader, of_bob) == b'"secret"'
        with pytest.raises(SubjectForgotten):
            reader.key_for("ada")
    assert len(shop.files) == len(before) == 2
    assert len(shop.files.keys() & before.keys()) == 1  # what names subjects stays
    assert not keyring.is_unfinished


def test_consent_gives_a_new_key_and_what_was_forgotten_stays_so(shop: Shop) -> None:
    keyring = shop.process()
    old = sealed(keyring, "ada")
    assert not keyring.consent("ada", NOW)
    keyring.forget(["ada"], NOW)
    assert keyring.consent("ada", NOW)
    new = sealed(keyring, "ada")
    for reader in (keyring, shop.process()):
        assert opened(reader, old) is None
        assert opened(reader, new) == b'"secret"'
    keyring.forget(["ada"], NOW)
    assert opened(keyring, new) is None


def test_who_never_had_a_key_is_refused_all_the_same(shop: Shop) -> None:
    keyring = shop.process()
    keyring.forget(["ada"], NOW)
    with pytest.raises(SubjectForgotten):
        shop.process().key_for("ada")
    assert keyring.subject("ada") == Subject(generation=0, forgotten=NOW)


def test_to_forget_again_changes_nothing(shop: Shop) -> None:
    keyring = shop.process()
    sealed(keyring, "ada")
    keyring.forget(["ada"], NOW)
    records, files = list(shop.log.records), dict(shop.files)
    keyring.forget(["ada"], Remark(NOW.at, why="again"))
    assert (shop.log.records, shop.files) == (records, files)


def test_another_process_uses_a_key_no_longer_than_the_bound(shop: Shop) -> None:
    other, keyring = shop.process(), shop.process()
    token = sealed(other, "ada")
    keyring.forget(["ada"], NOW)
    shop.seconds += KEYS_AGE_SECONDS_MAX
    assert opened(other, token) == b'"secret"'  # at the limit
    shop.seconds += 0.001
    assert opened(other, token) is None  # and past it
    with pytest.raises(SubjectForgotten):
        other.key_for("ada")


def test_a_key_that_was_taken_away_is_in_no_memory_of_ours(shop: Shop) -> None:
    keyring = shop.process()
    key_id = keyring.key_for("ada").id
    assert key_id in keyring._ready
    keyring.forget(["ada"], NOW)
    assert key_id not in keyring._ready
    assert set(keyring._wrapping._ciphers) <= set(shop.files)


def test_a_process_that_reads_while_keys_are_wrapped_anew_finds_them(shop: Shop) -> None:
    reader, keyring = shop.process(), shop.process()
    token = sealed(keyring, "bob")
    sealed(keyring, "ada")
    assert len(reader) == 2  # it has read the topic, and unwrapped nothing
    keyring.forget(["ada"], NOW)
    assert opened(reader, token) == b'"secret"'


def test_a_process_that_has_old_news_of_a_forgotten_subject_takes_no_alarm(shop: Shop) -> None:
    """It has read the topic before the erasure, and finds the wrapping key gone."""
    reader, keyring = shop.process(), shop.process()
    token = sealed(keyring, "ada")
    assert len(reader) == 1
    keyring.forget(["ada"], NOW)
    assert opened(reader, token) is None
    other = shop.process()
    keyring.consent("ada", NOW)
    assert len(other) == 1
    keyring.forget(["ada"], NOW)
    with pytest.raises(SubjectForgotten):
        other.key_for("ada")


def test_a_lost_keyring_is_no_erasure(shop: Shop) -> None:
    token = sealed(shop.process(), "ada")
    kept = dict(shop.files)
    [wrapping] = [name for name in shop.files if name.startswith("wrapping-")]
    del shop.files[wrapping]
    with pytest.raises(KeyringLost, match=wrapping):
        opened(shop.process(), token)
    shop.files.clear()
    with pytest.raises(KeyringLost, match="subjects"):
        shop.process().key_for("bob")
    assert shop.files == {}  # none is made in its place
    shop.files.update(kept)
    assert opened(shop.process(), token) == b'"secret"'


def test_the_keyring_of_another_application_is_refused(shop: Shop) -> None:
    sealed(shop.process(), "ada")
    other = Shop()
    sealed(other.process(), "ada")
    other.log = shop.log
    with pytest.raises(WrongKeyring):
        other.process().key_for("ada")


def test_a_value_of_another_application_is_not_taken_for_forgotten(shop: Shop) -> None:
    keyring = shop.process()
    sealed(keyring, "ada")
    with pytest.raises(UnknownKey):
        opened(keyring, sealed(Shop().process(), "ada"))
    with pytest.raises(UnknownKey):
        keyring.key_of(f"{keyring.hash_of('ada')}.2")


def test_a_wrapped_key_that_was_changed_is_told(shop: Shop) -> None:
    token = sealed(shop.process(), "ada")
    key, value = shop.log.records[-1]
    assert key.startswith(b"subject:")
    at = value.index(b'"key":"') + 20
    shop.log.records[-1] = key, value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    with pytest.raises(SealBroken, match=r"key .* cannot be opened"):
        opened(shop.process(), token)


def test_progress_is_told_as_keys_are_wrapped_anew(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.eventsourcing.keyring.REWRAP_BATCH", 2)
    keyring = shop.process()
    for name in ("ada", "b", "c", "d", "e", "f"):
        sealed(keyring, name)
    told: list[tuple[int, int]] = []
    keyring.forget(["ada"], NOW, progress=lambda done, of: told.append((done, of)))
    assert told == [(2, 5), (4, 5), (5, 5)]


def test_the_wrapping_key_is_renewed_and_nobody_is_forgotten(shop: Shop) -> None:
    keyring = shop.process()
    token = sealed(keyring, "ada")
    before = dict(shop.files)
    keyring.renew()
    assert opened(shop.process(), token) == b'"secret"'
    assert len(shop.files) == 2
    assert len(shop.files.keys() & before.keys()) == 1


def test_many_are_forgotten_with_one_new_wrapping_key(shop: Shop) -> None:
    keyring = shop.process()
    tokens = [sealed(keyring, name) for name in ("ada", "bob", "cy")]
    keyring.forget(["ada", "bob", "ada"], NOW)
    assert [opened(keyring, token) for token in tokens] == [None, None, b'"secret"']
    rings = [value for key, value in shop.log.records if key == b"ring"]
    assert len(rings) == 2 + 3


def test_what_passes_by_is_closed_by_the_next_erasure_whoever_is_forgotten(shop: Shop) -> None:
    one, other = shop.process(), shop.process()
    sealed(one, "ada")
    passing = one.seal_passing(b"arguments", place="command 1")
    assert other.open_passing(passing, place="command 1") == b"arguments"
    with pytest.raises(SealBroken):
        other.open_passing(passing, place="command 2")
    one.forget(["ada"], NOW)
    assert one.open_passing(passing, place="command 1") is None
    shop.seconds += KEYS_AGE_SECONDS_MAX + 0.001
    assert other.open_passing(passing, place="command 1") is None


def test_what_passes_by_is_closed_when_it_was_the_first_of_who_is_forgotten(shop: Shop) -> None:
    keyring = shop.process()
    passing = keyring.seal_passing(b"arguments", place="command 1")
    keyring.forget(["ada"], NOW)
    assert keyring.open_passing(passing, place="command 1") is None


def test_a_print_is_the_same_for_all_processes_and_not_to_be_guessed(shop: Shop) -> None:
    assert shop.process().print_of(b"x") == shop.process().print_of(b"x")
    assert shop.process().print_of(b"x") != Shop().process().print_of(b"x")
    assert are_different(shop.process().print_of(b"x"), shop.process().print_of(b"y"))


def test_a_print_says_nothing_any_more_after_an_erasure_whoever_is_forgotten(shop: Shop) -> None:
    one, other = shop.process(), shop.process()
    before = one.print_of(b"x"), other.print_of(b"x")
    one.forget(["ada"], NOW)
    after = one.print_of(b"x")
    assert after not in before
    assert not any(are_different(after, one) for one in before)  # nobody knows
    shop.seconds += KEYS_AGE_SECONDS_MAX + 0.001
    assert other.print_of(b"x") == after


def test_a_print_is_made_with_the_next_key_if_another_process_has_just_erased(shop: Shop) -> None:
    one, other = shop.process(), shop.process()
    assert len(other) == 0  # it has read the topic, and nothing else
    one.print_of(b"x")
    other.hash_of("ada")
    one.forget(["ada"], NOW)
    assert other.print_of(b"x") == one.print_of(b"x")
    other.seal_passing(b"arguments", place="command 1")


@pytest.mark.parametrize(
    ("one", "other", "is_certain"),
    [
        ("9f86d081", "9f86d081", False),
        ("9f86d081", "00000000", True),
        ("a:b", "a:c", True),  # whatever an application of its own makes
        ("9f86d081", "keyed:1:9f86d081", False),
        ("keyed:1:9f86d081", "keyed:1:00000000", True),
        ("keyed:1:9f86d081", "keyed:2:00000000", False),
    ],
)
def test_only_prints_of_one_key_are_compared(one: str, other: str, is_certain: bool) -> None:
    assert are_different(one, other) is is_certain
    assert are_different(other, one) is is_certain
