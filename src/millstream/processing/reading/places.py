"""Where a read of topics starts or ends: the first record, the last, a time, or offsets. Pure.

As text, for Spark's options: "earliest", "latest", "2026-07-01T12:00Z", or offsets in JSON by topic
and partition, {"orders": {"0": 12}}; a partition that the offsets do not name is read whole.
Asking the broker where a time is belongs to `topic_offsets.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.base.errors import Rejected


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that is still kept."""


@dataclass(frozen=True, slots=True)
class Latest:
    """After the last record."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of that time or later."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Offsets by topic and partition."""

    offsets: Mapping[str, Mapping[int, int]]

    def of(self, topic: str, number: int) -> int | None:
        return self.offsets.get(topic, {}).get(number)


Place = Earliest | Latest | AtTime | AtOffsets

WORDS: dict[str, Place] = {"earliest": Earliest(), "latest": Latest()}


class BadPlace(Rejected):
    def __init__(self, *, option: str, text: str) -> None:
        super().__init__(
            f"{option}: cannot read {text!r}. Give earliest, latest, a time in ISO 8601 "
            '(2026-07-01T12:00Z), or offsets as JSON ({"orders": {"0": 12}})'
        )
        self.option, self.text = option, text


def parse_place(text: str, *, option: str) -> Place:
    try:
        return _parse(text.strip())
    except (ValueError, AttributeError, TypeError):
        raise BadPlace(option=option, text=text) from None


def _parse(text: str) -> Place:
    if text in WORDS:
        return WORDS[text]
    if text.startswith("{"):
        return AtOffsets(
            {
                topic: {int(number): int(offset) for number, offset in offsets.items()}
                for topic, offsets in json.loads(text).items()
            }
        )
    return AtTime(_time_ms(datetime.fromisoformat(text)))


def place_text(place: "Place | datetime | str") -> str:
    """As `parse_place` reads it back. A time without a zone is UTC, as everywhere in a job."""
    match place:
        case str():
            return place
        case datetime():
            return _time_text(_time_ms(place))
        case Earliest():
            return "earliest"
        case Latest():
            return "latest"
        case AtTime():
            return _time_text(place.time_ms)
        case AtOffsets():
            return json.dumps({topic: dict(offsets) for topic, offsets in place.offsets.items()})


def _time_ms(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def _time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
