from datetime import UTC, datetime

import msgspec
import pytest

from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.event_types import EventTypes
from millstream.eventsourcing.key_book import Remark
from millstream.eventsourcing.keyring import Keyring
from millstream.eventsourcing.personal import Personal
from millstream.eventsourcing.sealed_commands import (
    BadSealedArguments,
    SealedBeforeErasure,
    open_arguments,
    seal_arguments,
)
from millstream.eventsourcing.sealed_events import KeyedSealing
from tests.support.memory_keys import MemoryKeyStore, MemoryKeyTopic, MemoryLog

ARGUMENTS = {"email": msgspec.Raw(b'"ada@x.org"'), "n": msgspec.Raw(b"7")}


@event
class Registered:
    email: Personal[str]


@event
class Counted:
    n: int


@pytest.fixture
def keyring() -> Keyring:
    return Keyring(MemoryKeyTopic(MemoryLog()), MemoryKeyStore({}))


def types(keyring: Keyring, kind: type) -> EventTypes:
    return EventTypes([kind], sealing=KeyedSealing(keyring))


def test_arguments_wait_sealed_where_events_are_personal(keyring: Keyring) -> None:
    known = types(keyring, Registered)
    sealed = seal_arguments(ARGUMENTS, known, stream="User:1", command="register")
    assert b"ada@x.org" not in msgspec.json.encode(sealed)
    assert open_arguments(sealed, known, stream="User:1", command="register") == ARGUMENTS
    for stream, command in (("User:2", "register"), ("User:1", "move")):
        with pytest.raises(BadSealedArguments):
            open_arguments(sealed, known, stream=stream, command=command)
    with pytest.raises(BadSealedArguments):
        open_arguments({"$sealed": msgspec.Raw(b"7")}, known, stream="User:1", command="register")


def test_others_are_as_they_were(keyring: Keyring) -> None:
    known = types(keyring, Counted)
    assert seal_arguments(ARGUMENTS, known, stream="N:1", command="count") is ARGUMENTS
    assert open_arguments(ARGUMENTS, known, stream="N:1", command="count") is ARGUMENTS


def test_what_waited_during_an_erasure_is_to_be_sent_again(keyring: Keyring) -> None:
    known = types(keyring, Registered)
    sealed = seal_arguments(ARGUMENTS, known, stream="User:1", command="register")
    keyring.key_for("bob")
    keyring.forget(["bob"], Remark(datetime.now(UTC)))
    with pytest.raises(SealedBeforeErasure, match=r"register of User:1 .*send it again"):
        open_arguments(sealed, known, stream="User:1", command="register")
