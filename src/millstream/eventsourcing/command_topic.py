"""Commands and their answers as records of topics. Pure: bytes in, values out.

`<app>.commands` has the partitions of `<app>.events`, and its records the keys of its streams: so
the commands of a stream are where its events are. `<app>.replies` has the answers.

    commands   key    the stream (or what decides its partition)
               value  {"id":"req-1","aggregate":"Account","stream":"Account:alice",
                       "command":"withdraw","arguments":{"amount":30},"expect":2,"reply":3,
                       "meta":{"by":"ada","why":"rent","correlation":"..."},
                       "origin":{"reaction":"pay","stream":"Order:7","version":1}}
    replies    key    the command's id
               value  {"command":"req-1","receipt":{"topic":...,"offset":...,"version":3,...}}
                  or  {"command":"req-1","error":{"type":"Rejected","reason":"insufficient funds",
                       "facts":{},"is_malformed":false}}

`reply` is the partition of `<app>.replies` that the sender reads; without it the id's hash decides.
`origin` says which event had a reaction ask for it. An error of an aggregate with personal events
tells its type alone: its words may be personal, and answers and dead letters are not sealed.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec

from millstream.base.errors import Rejected
from millstream.eventsourcing.command_calls import UnknownCommand
from millstream.eventsourcing.key_book import SubjectForgotten
from millstream.eventsourcing.sealed_commands import SealedBeforeErasure
from millstream.eventsourcing.staging import CommandIdReused, EventTooLarge, WrongVersion
from millstream.eventsourcing.stored_event import Receipt

COMMAND_BYTES_MAX: Final = 1_000_000
ID_LENGTH_MAX: Final = 200
# What an answer tells of an error besides its message: numbers and short texts.
FACT_LENGTH_MAX: Final = 1_000
REASON_LENGTH_MAX: Final = 10_000
UNTOLD: Final = "what it says may be personal, and is not written down"
# Their words are names and numbers, none that an application has in its events.
IMPERSONAL: Final = (
    CommandIdReused,
    EventTooLarge,
    SealedBeforeErasure,
    SubjectForgotten,
    UnknownCommand,
    WrongVersion,
)
# Of bytes that are no JSON, or not the right one.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The event that a reaction asked for a command at."""

    reaction: str
    stream: str
    version: int


class SentCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command on its way to the writer of its partition. `arguments` are by name, as JSON."""

    id: str
    aggregate: str
    stream: str
    command: str
    arguments: Mapping[str, msgspec.Raw] = {}
    expect: int | None = None
    reply: int | None = None
    meta: Mapping[str, Any] = {}
    origin: Origin | None = None


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command changed nothing. `type` is the name of the error's class."""

    type: str
    reason: str
    facts: Mapping[str, Any] = {}
    is_malformed: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """To one command: where its events are, or why there are none."""

    command: str
    receipt: Receipt | None = None
    error: Refusal | None = None


class BadCommandRecord(Rejected):
    """`id` and `reply`, if they could be read, say whom to tell."""

    def __init__(self, *, reason: str, id: str | None = None, reply: int | None = None) -> None:
        super().__init__(f"the record is no command: {reason}")
        self.reason, self.id, self.reply = reason, id, reply


class BadAnswerRecord(Rejected):
    def __init__(self, *, place: str, reason: str) -> None:
        super().__init__(f"{place} is no answer to a command ({reason}): who wrote it?")
        self.place, self.reason = place, reason


class CommandTooLarge(Rejected):
    def __init__(self, *, stream: str, command: str, size_bytes: int) -> None:
        super().__init__(
            f"{command} of {stream} has {size_bytes:,} bytes as JSON, and a command at most "
            f"{COMMAND_BYTES_MAX:,}: put what is large elsewhere, and say where it is"
        )
        self.stream, self.command, self.size_bytes = stream, command, size_bytes


class CommandRefused(Rejected):
    """What the host of an aggregate answered. `type`: the class of the error that it raised."""

    def __init__(self, *, id: str, type: str, reason: str, facts: Mapping[str, Any]) -> None:
        super().__init__(reason)
        self.id, self.type, self.reason, self.facts = id, type, reason, facts


class Names(msgspec.Struct, frozen=True):
    """Which topics the commands of an application go over."""

    commands: str
    replies: str
    dead: str

    @classmethod
    def of_app(cls, app: str) -> "Names":
        return cls(f"{app}.commands", f"{app}.replies", f"{app}.commands.dead")


_encode = msgspec.json.Encoder(decimal_format="string", uuid_format="canonical").encode
_decode_command = msgspec.json.Decoder(SentCommand).decode
_decode_answer = msgspec.json.Decoder(Answer).decode


def encode_command(sent: SentCommand) -> bytes:
    value = _encode(sent)
    if len(value) > COMMAND_BYTES_MAX:
        raise CommandTooLarge(stream=sent.stream, command=sent.command, size_bytes=len(value))
    return value


def decode_command(value: bytes | None) -> SentCommand:
    """Raises BadCommandRecord."""
    if value is None:
        raise BadCommandRecord(reason="it has no value")
    try:
        sent = _decode_command(value)
    except UNREADABLE as error:
        _refuse(value, str(error))
    if not 0 < len(sent.id) <= ID_LENGTH_MAX:
        reason = f"its id has {len(sent.id)} characters, and must have 1 to {ID_LENGTH_MAX}"
        raise BadCommandRecord(reason=reason, reply=sent.reply)
    return sent


def _refuse(value: bytes, reason: str) -> NoReturn:
    """Says whose it was, if that much can be read."""
    try:
        found = msgspec.json.decode(value)
    except UNREADABLE:
        found = None
    known = found if isinstance(found, dict) else {}
    id, reply = known.get("id"), known.get("reply")
    is_id = isinstance(id, str) and 0 < len(id) <= ID_LENGTH_MAX
    raise BadCommandRecord(
        reason=reason, id=id if is_id else None, reply=reply if isinstance(reply, int) else None
    )


def encode_answer(answer: Answer) -> bytes:
    return _encode(answer)


def decode_answer(value: bytes | None, *, place: str) -> Answer:
    try:
        return _decode_answer(value or b"")
    except UNREADABLE as error:
        raise BadAnswerRecord(place=place, reason=str(error)) from None


def refusal_of(
    error: BaseException, *, is_malformed: bool = False, is_personal: bool = False
) -> Refusal:
    """With the facts of the error that JSON has: who asked can raise the same one again."""
    facts = {name: value for name, value in vars(error).items() if _is_fact(name, value)}
    return Refusal(
        type=type(error).__name__,
        reason=reason_of(error, is_personal=is_personal)[:REASON_LENGTH_MAX],
        facts=facts if _is_told(error, is_personal) else {},
        is_malformed=is_malformed,
    )


def reason_of(error: BaseException, *, is_personal: bool) -> str:
    """What may be written down of it, where somebody's data may be in its words."""
    return str(error) if _is_told(error, is_personal) else UNTOLD


def _is_told(error: BaseException, is_personal: bool) -> bool:
    return not is_personal or isinstance(error, IMPERSONAL)


def _is_fact(name: str, value: object) -> bool:
    if name.startswith("_"):
        return False
    if isinstance(value, str):
        return len(value) <= FACT_LENGTH_MAX
    return value is None or isinstance(value, (bool, int, float))


def told(answer: Answer, known: Mapping[str, type[Rejected]]) -> Receipt:
    """The receipt; or raises what the host raised, as that class if it is `known`."""
    if answer.receipt is not None:
        return answer.receipt
    error = answer.error
    if error is None:
        error = Refusal(type="BadAnswerRecord", reason="the answer says neither yes nor no")
    raise _again(answer.command, error, known)


def _again(id: str, error: Refusal, known: Mapping[str, type[Rejected]]) -> Rejected:
    found = known.get(error.type)
    if found is not None:
        try:
            return found(**error.facts)
        except TypeError:  # made of other facts by another version of this package
            pass
    return CommandRefused(id=id, type=error.type, reason=error.reason, facts=error.facts)
