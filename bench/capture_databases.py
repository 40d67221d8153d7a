"""What a captured database offers to the benchmark: orders, loads that change them, and marks.

A mark is a change of a table of its own, by which one sees that a capture follows changes. Knows of
captures only what Debezium has to be told of each database.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tests.support.maven_jars import MavenJars

TABLES = ("orders", "marks")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioGoals:
    """How many times Debezium's rate ours shall be."""

    changes: float
    load: float | None = None


class Database(Protocol):
    """One server. `has_slots`: a place in its log can be kept for a capture that does not run."""

    jars: MavenJars
    debezium: str
    password: str
    has_slots: bool
    goals: RatioGoals

    @property
    def url(self) -> str:
        """For a capture of ours: the password is the variable BENCH_PASSWORD."""
        ...

    @property
    def version(self) -> str: ...

    def fill(self, rows: int) -> None:
        """Fresh tables: no side finds what the round before left behind."""
        ...

    def update_at_once(self, rows: int) -> None:
        """In one transaction."""
        ...

    def update_singly(self, count: int) -> None:
        """One transaction for each."""
        ...

    def update_one(self, number: int, *, sent_us: int) -> None: ...

    def mark(self) -> None: ...

    def make_slot(self, name: str) -> None:
        """For Debezium, as ours is made."""
        ...

    def forget_captures(self) -> None:
        """They have stopped: the log that they keep can go."""
        ...

    def connector(self, name: str, *, has_load: bool) -> Mapping[str, str]:
        """What Debezium is told."""
        ...

    def topic_of(self, name: str, table: str) -> str:
        """Debezium's."""
        ...
