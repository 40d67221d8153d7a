"""Positions of a job or a view in its topics, from JSON and as text for people. Pure."""

from collections.abc import Mapping

# The next offset to read, by topic and partition.
Positions = Mapping[str, Mapping[int, int]]


def positions_from(facts: Mapping[str, Mapping[str, int]]) -> Positions:
    """From parsed JSON, in which partitions are text."""
    return {
        topic: {int(number): int(offset) for number, offset in offsets.items()}
        for topic, offsets in facts.items()
    }


def positions_text(positions: Positions) -> str:
    """As `topic:partition:offset`, one after the other."""
    texts = [
        f"{topic}:{number}:{offset}"
        for topic, offsets in sorted(positions.items())
        for number, offset in sorted(offsets.items())
    ]
    return ", ".join(texts) or "no position"
