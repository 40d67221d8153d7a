"""Dead letters: jobs that were given up, with why, from where and after how many deliveries.

Pure: records to letters and back. The headers are those of KIP-1191 and two of Millstream's broker,
which writes such letters, too; so whoever wrote a letter, it reads the same. A job that is put back
keeps the headers of its earlier deaths: they are its history. `docs/formats/dead_letters.md`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.base.dead_letter_headers import (
    DELIVERY_COUNT_HEADER,
    GROUP_HEADER,
    HISTORY_PREFIX,
    MEMBER_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TIMESTAMP_HEADER,
    TOPIC_HEADER,
)
from millstream.base.letter_notes import LetterNote
from millstream.base.record import Header, Record
from millstream.queues.values import ValueKind, value_from_bytes

# On a record without a value: the letter of this id was put back into its queue.
REDRIVEN_HEADER = "millstream.redriven"

REASON_LENGTH_MAX = 4_000
# A job that dies, is put back and dies again, for ever, keeps only its last deaths.
DEATHS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One time that a job was given up."""

    topic: str
    partition: int
    offset: int
    group: str
    deliveries: int
    reason: str
    member: str = ""
    put_ms: int = -1  # when the job was put

    @property
    def id(self) -> str:
        return f"{self.topic}-{self.partition}-{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A job in the dead-letter topic; `history` is its earlier deaths, the oldest first."""

    death: Death
    key: bytes | None
    raw_value: bytes | None
    headers: tuple[Header, ...]  # the application's
    died_ms: int
    history: tuple[Death, ...] = ()
    copies: int = field(default=1)  # a crash can write a letter twice; it counts once
    groups: tuple[str, ...] = ()  # all that gave it up: share groups, or jobs that read its topic
    redriven_ms: int | None = None
    values: ValueKind = "bytes"

    @property
    def id(self) -> str:
        return self.death.id

    @property
    def value(self) -> Any:
        """As its job's: decoded when it is asked for, BadValue if it is not what it should be."""
        return value_from_bytes(self.raw_value, self.values)


def headers_of(death: Death) -> tuple[Header, ...]:
    facts: Sequence[tuple[str, object]] = (
        (TOPIC_HEADER, death.topic),
        (PARTITION_HEADER, death.partition),
        (OFFSET_HEADER, death.offset),
        (GROUP_HEADER, death.group),
        (DELIVERY_COUNT_HEADER, death.deliveries),
        (MESSAGE_HEADER, death.reason[:REASON_LENGTH_MAX]),
        (MEMBER_HEADER, death.member),
        (TIMESTAMP_HEADER, death.put_ms),
    )
    return tuple((name, str(fact).encode()) for name, fact in facts)


def letter_record(record: Record, death: Death) -> Record:
    """The job as it goes into the dead-letter topic, behind all its earlier deaths."""
    earlier = [*deaths_in(record.headers)][-(DEATHS_MAX - 1) :]
    past = [header for one in earlier for header in headers_of(one)]
    own = application_headers(record.headers)
    return replace(record, headers=(*own, *past, *headers_of(death)))


def job_record(letter: DeadLetter) -> Record:
    """The letter as it goes back into its queue."""
    deaths = (*letter.history, letter.death)
    past = [header for one in deaths for header in headers_of(one)]
    return Record(key=letter.key, value=letter.raw_value, headers=(*letter.headers, *past))


def redriven_record(letter_id: str) -> Record:
    """What remembers that a letter was put back."""
    return Record(key=letter_id.encode(), headers=((REDRIVEN_HEADER, letter_id.encode()),))


def application_headers(headers: Iterable[Header]) -> tuple[Header, ...]:
    return tuple(one for one in headers if not one[0].startswith(HISTORY_PREFIX))


def deaths_in(headers: Iterable[Header]) -> Iterator[Death]:
    """Each begins with the topic's header. What others wrote so that it cannot be read is left."""
    facts: dict[str, str] = {}
    for name, value in [*headers, (TOPIC_HEADER, b"")]:
        if name == TOPIC_HEADER and facts:
            yield _death_from(facts)
            facts = {}
        if name.startswith(HISTORY_PREFIX):
            facts[name] = (value or b"").decode("utf-8", "replace")


def _death_from(facts: dict[str, str]) -> Death:
    return Death(
        topic=facts.get(TOPIC_HEADER, ""),
        partition=_number(facts, PARTITION_HEADER),
        offset=_number(facts, OFFSET_HEADER),
        group=facts.get(GROUP_HEADER, ""),
        deliveries=_number(facts, DELIVERY_COUNT_HEADER),
        reason=facts.get(MESSAGE_HEADER, ""),
        member=facts.get(MEMBER_HEADER, ""),
        put_ms=_number(facts, TIMESTAMP_HEADER),
    )


def _number(facts: dict[str, str], name: str) -> int:
    text = facts.get(name, "")
    return int(text) if text.isdecimal() else -1


LetterKey = tuple[str, int]  # a letter's id, and when its job was put


def letters_in(records: Iterable[Record], notes: Iterable[LetterNote] = ()) -> list[DeadLetter]:
    """All letters of a dead-letter topic in its order, each once, those put back marked as such.
    `notes` name further jobs that met their records.

    Two letters of one id tell of one job if it was put at the same time; or else the queue's topic
    was deleted and made again, and its offsets began anew.
    """
    letters: dict[LetterKey, DeadLetter] = {}
    dead: dict[str, list[LetterKey]] = {}  # not put back so far, by id
    for record in records:
        redriven = dict(record.headers).get(REDRIVEN_HEADER)
        deaths = [*deaths_in(record.headers)]
        if redriven is not None:
            for key in dead.pop(redriven.decode("utf-8", "replace"), ()):
                letters[key] = replace(letters[key], redriven_ms=record.timestamp_ms)
        elif deaths:
            letter = _letter_from(record, deaths)
            key = (letter.id, letter.death.put_ms)
            if key in letters:
                letters[key] = _joined(letters[key], letter)
            else:
                letters[key] = letter
                dead.setdefault(letter.id, []).append(key)
    for note in notes:
        if (known := letters.get((note.id, note.written_ms))) is not None:
            letters[note.id, note.written_ms] = replace(known, groups=_with(known, (note.job,)))
    return [*letters.values()]


def _with(known: DeadLetter, groups: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known.groups, *groups)))


def _joined(known: DeadLetter, letter: DeadLetter) -> DeadLetter:
    """One record is one letter, however many jobs have met it, or batches were repeated."""
    return replace(known, copies=known.copies + 1, groups=_with(known, letter.groups))


def _letter_from(record: Record, deaths: Sequence[Death]) -> DeadLetter:
    return DeadLetter(
        death=deaths[-1],
        key=record.key,
        raw_value=record.value,
        headers=application_headers(record.headers),
        died_ms=record.timestamp_ms,
        history=tuple(deaths[:-1]),
        groups=(deaths[-1].group,),
    )
