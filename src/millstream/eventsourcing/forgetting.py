"""The report of an erasure: whose data, when, by whom and why, and where its sealed values are.

They are found by the tag that every event with sealed values has, so no event is opened for it.
What is told holds no id of a subject, but its hash: a report may be kept.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from millstream.eventsourcing.key_book import Subject
from millstream.eventsourcing.query import Query
from millstream.eventsourcing.sealing import (
    NONCE_BYTES,
    PLACE_BYTES,
    TAG_BYTES,
    padded_bytes,
    tag_of,
)
from millstream.eventsourcing.stored_event import KEYED_PRINT, StoredEvent

SEALED: Final = re.compile(rb"sealed:1:[A-Za-z0-9_-]{22}\.[0-9]+:([A-Za-z0-9_-]+)")
AROUND_BYTES: Final = PLACE_BYTES + NONCE_BYTES + TAG_BYTES  # of each sealed value


class Events(Protocol):
    """Of an event store, what a report needs."""

    topic: str
    partitions: int

    def query(self, query: Query, *, partition: int) -> "Any": ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What became of one subject. `subject` is its hash, `streams` how many events of each stream
    have sealed values of it. `at` is None if it is not forgotten (a dry run). `guessable`: how many
    of them a former version wrote in a way that lets somebody try out what was forgotten."""

    subject: str
    at: datetime | None
    by: str
    why: str
    is_repeat: bool
    had_key: bool
    keys_rewrapped: int = 0
    streams: Mapping[str, int] = field(default_factory=dict)
    sealed_in: tuple[str, ...] = ()
    guessable: int = 0

    @property
    def events(self) -> int:
        return sum(self.streams.values())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "subject": self.subject,
            "forgotten_at": None if self.at is None else self.at.isoformat(),
            "by": self.by,
            "why": self.why,
            "is_repeat": self.is_repeat,
            "had_key": self.had_key,
            "keys_rewrapped": self.keys_rewrapped,
            "events": self.events,
            "streams": dict(self.streams),
            "sealed_in": list(self.sealed_in),
            "guessable": self.guessable,
        }

    def __str__(self) -> str:
        return "\n".join(lines_of(self))


def lines_of(erasure: Erasure) -> list[str]:
    lines = [f"subject   {erasure.subject}", f"forgotten {_when(erasure)}"]
    lines += [f"by        {erasure.by}"] if erasure.by else []
    lines += [f"why       {erasure.why}"] if erasure.why else []
    streams = "1 stream" if len(erasure.streams) == 1 else f"{len(erasure.streams):,} streams"
    lines.append(f"events    {erasure.events:,} with sealed values, in {streams}")
    lines += [f"          {stream}: {count:,}" for stream, count in sorted(erasure.streams.items())]
    lines += [f"sealed in {place}" for place in erasure.sealed_in]
    if erasure.guessable:
        lines.append(
            f"guessable {erasure.guessable:,} events are of a former version: whoever has the "
            "keyring can try out what they had, see docs/guides/forgetting.md"
        )
    return lines


def _when(erasure: Erasure) -> str:
    if erasure.at is None:
        return "no" if erasure.had_key else "no; it has no key, so nothing of it was ever sealed"
    again = " (it was so already)" if erasure.is_repeat else ""
    return f"{erasure.at:%Y-%m-%d %H:%M:%S} UTC{again}"


class Trace(NamedTuple):
    """How many events of each stream have sealed values of a subject; how many are guessable."""

    streams: Mapping[str, int]
    guessable: int


def trace(events: Events | None, hash: str) -> Trace:
    found, guessable = Counter[str](), 0
    for partition in range(0 if events is None else events.partitions):
        assert events is not None
        stored: StoredEvent
        for stored in events.query(Query(tags=[tag_of(hash)]), partition=partition):
            found[stored.stream] += 1
            guessable += is_guessable(stored)
    return Trace(dict(found), guessable)


def is_guessable(stored: StoredEvent) -> bool:
    """Whether a former version wrote it: with the print of its command by a key that stays, or
    with a value whose length tells it. `stored` has sealed values."""
    print = "" if stored.command is None else stored.command.print
    if print and not print.startswith(KEYED_PRINT):
        return True
    return not all(_is_padded(found[1]) for found in SEALED.finditer(bytes(stored.data)))


def _is_padded(base64: bytes) -> bool:
    """By its length: a value of a former version has that of a padded one by chance only."""
    size = len(base64) * 3 // 4 - AROUND_BYTES
    return padded_bytes(size) == size


def places(events: Events | None, *, keys_topic: str, is_forgotten: bool) -> tuple[str, ...]:
    """What has sealed values; and of the key what nothing opens any more."""
    told = [] if events is None else [f"{events.topic}: the values, which nothing opens any more"]
    if not is_forgotten:
        told = [] if events is None else [f"{events.topic}: the values"]
        return (*told, f"{keys_topic}: their key")
    return (
        *told,
        f"{keys_topic}: old segments may have the key, in a wrapping key that was destroyed",
        "snapshots, views, feeds, checkpoints, archives and backups of these: the values as above",
    )


def erasure_of(
    hash: str,
    found: Subject | None,
    *,
    is_repeat: bool,
    had_key: bool,
    rewrapped: int,
    events: Events | None,
    keys_topic: str,
) -> Erasure:
    remark = found.forgotten if found is not None else None
    traced = trace(events, hash)
    return Erasure(
        subject=hash,
        at=remark.at if remark else None,
        by=remark.by if remark else "",
        why=remark.why if remark else "",
        is_repeat=is_repeat,
        had_key=had_key,
        keys_rewrapped=rewrapped,
        streams=traced.streams,
        guessable=traced.guessable,
        sealed_in=places(events, keys_topic=keys_topic, is_forgotten=remark is not None),
    )
