"""Notes beside dead letters: the other jobs that could not read a record. Pure.

A record has one letter in `<topic>.dead`, of the first job that met it. Each further job leaves a
note in the compacted topic `_dead.<topic>`, under a key of its own: written again it is the same
note. docs/formats/dead_letters.md.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from millstream.base.declared import TOPIC_NAME_LENGTH_MAX

NOTES_PREFIX = "_dead."
NOTES_CONFIG = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterNote:
    """`job` met the record of the letter `id`, which was written at `written_ms`."""

    id: str
    written_ms: int
    job: str


def notes_topic(topic: str) -> str | None:
    """None if the name would be longer than a broker takes: such a topic has no notes."""
    name = f"{NOTES_PREFIX}{topic}"
    return name if len(name) <= TOPIC_NAME_LENGTH_MAX else None


def note_key(note: LetterNote) -> bytes:
    return json.dumps(asdict(note), separators=(",", ":"), sort_keys=True).encode()


def note_value(reason: str) -> bytes:
    return json.dumps({"reason": reason}).encode()


def note_from(key: bytes | None) -> LetterNote | None:
    """None for what is not a note."""
    try:
        facts: Any = json.loads(key or b"")
        return LetterNote(**facts)
    except (ValueError, TypeError):
        return None
