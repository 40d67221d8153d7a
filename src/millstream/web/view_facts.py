"""What is told of a view and its columns. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.base.ports import Positions
from millstream.base.schema import Schema
from millstream.views.store import Generation


@dataclass(frozen=True, slots=True)
class ViewColumns:
    """`key` names those that name a row."""

    schema: Schema
    key: tuple[str, ...]


def columns_of(schema: Schema) -> list[dict[str, Any]]:
    return [
        {"name": field.name, "type": str(field.type), "nullable": field.nullable}
        for field in schema
    ]


def facts_of(
    name: str,
    schema: Schema,
    key: Sequence[str],
    position: Positions,
    generations: Sequence[Generation],
) -> dict[str, Any]:
    return {
        "name": name,
        "key": list(key),
        "columns": columns_of(schema),
        "position": plain_positions(position),
        "generations": [
            {
                "number": one.number,
                "is_served": one.is_served,
                "batch": one.batch,
                "position": plain_positions(one.positions),
            }
            for one in generations
        ],
    }


def plain_positions(positions: Positions) -> dict[str, dict[str, int]]:
    """The next offset to read, by topic and partition; JSON's names are texts."""
    return {
        topic: {f"{number}": offset for number, offset in offsets.items()}
        for topic, offsets in positions.items()
    }
