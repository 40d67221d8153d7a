"""Global transaction ids, and sets of them: how far a binlog was read. Pure.

MariaDB: `domain-server-sequence`. In one domain sequences go up, so a set is the last of each
domain: `0-1-100,1-1-7`. MySQL: `uuid:number`, and a set is ranges: `3e11fa47-...:1-5:7,...`.
A set never shrinks, and has one text.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, TypeAlias

from millstream.base.errors import Corrupt

# What a position after this word says: where to read from. Sets have no blanks.
READ_FROM = " from "
MYSQL_GTID = re.compile(r"([0-9a-f-]+):(\d+)")
MYSQL_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class BadPosition(Corrupt):
    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no set of GTIDs: is it a position of another database?")
        self.text = text


@dataclass(frozen=True, slots=True)
class MariadbGtids:
    """The last GTID of each domain: (server, sequence)."""

    last: Mapping[int, tuple[int, int]]
    # Nothing yet; a text all the same, since no position is empty.
    NOTHING: ClassVar[str] = "0-0-0"

    @classmethod
    def parse(cls, text: str) -> Self:
        last: dict[int, tuple[int, int]] = {}
        for part in filter(None, text.strip().split(",")):
            domain, server, sequence = mariadb_gtid(part.strip())
            if sequence:
                last[domain] = (server, sequence)
        return cls(last)

    def __str__(self) -> str:
        last = sorted(self.last.items()) if len(self.last) > 1 else self.last.items()
        parts = [f"{domain}-{server}-{sequence}" for domain, (server, sequence) in last]
        return ",".join(parts) or self.NOTHING

    def __contains__(self, gtid: object) -> bool:
        domain, _, sequence = mariadb_gtid(str(gtid))
        return sequence <= self.last.get(domain, (0, 0))[1]

    def covers(self, other: Self) -> bool:
        """Has it all that `other` has?"""
        nothing = (0, 0)
        return all(
            sequence <= self.last.get(domain, nothing)[1]
            for domain, (_, sequence) in other.last.items()
        )

    def with_gtid(self, gtid: str) -> Self:
        domain, server, sequence = mariadb_gtid(gtid)
        return type(self)({**self.last, domain: (server, sequence)})


def mariadb_gtid(text: str) -> tuple[int, int, int]:
    try:
        domain, server, sequence = text.split("-")
        return int(domain), int(server), int(sequence)
    except ValueError:
        raise BadPosition(text) from None


@dataclass(frozen=True, slots=True)
class MysqlGtids:
    """Ranges [start, end) of each source, in order and apart."""

    ranges: Mapping[str, tuple[tuple[int, int], ...]]
    NOTHING: ClassVar[str] = "00000000-0000-0000-0000-000000000000:0"

    @classmethod
    def parse(cls, text: str) -> Self:
        found: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, text.replace("\n", "").split(",")):
            source, _, ranges = part.strip().lower().partition(":")
            for given in ranges.split(":"):
                found.setdefault(source, []).append(_range(given, text))
        return cls({source: merged(ranges) for source, ranges in found.items() if merged(ranges)})

    def __str__(self) -> str:
        parts = [
            ":".join([source, *map(_shown, self.ranges[source])]) for source in sorted(self.ranges)
        ]
        return ",".join(parts) or self.NOTHING

    def __contains__(self, gtid: object) -> bool:
        source, _, number = str(gtid).partition(":")
        return any(start <= int(number) < end for start, end in self.ranges.get(source, ()))

    def covers(self, other: Self) -> bool:
        return all(
            any(start <= first and last <= end for start, end in self.ranges.get(source, ()))
            for source, ranges in other.ranges.items()
            for first, last in ranges
        )

    def with_gtid(self, gtid: str) -> Self:
        source, _, number = gtid.partition(":")
        had = self.ranges.get(source, ())
        return type(self)({**self.ranges, source: merged([*had, (int(number), int(number) + 1)])})


def _range(text: str, whole: str) -> tuple[int, int]:
    found = MYSQL_RANGE.fullmatch(text)
    if found is None:
        raise BadPosition(whole)
    return int(found[1]), int(found[2] or found[1]) + 1


def _shown(given: tuple[int, int]) -> str:
    start, end = given
    return str(start) if end == start + 1 else f"{start}-{end - 1}"


def merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """In order, with neighbours joined. Numbers begin at 1: 0 stands for nothing."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > 1:
            found.append((max(start, 1), end))
    return tuple(found)


Gtids: TypeAlias = MariadbGtids | MysqlGtids


@dataclass(frozen=True, slots=True)
class Position:
    """`done` was handed over. A transaction that was prepared (XA PREPARE) and is not yet
    committed keeps `read_from` back, so that a later run reads its rows again."""

    done: Gtids
    read_from: Gtids

    def __str__(self) -> str:
        if self.read_from == self.done:
            return str(self.done)
        return f"{self.done}{READ_FROM}{self.read_from}"

    @classmethod
    def parse(cls, text: str) -> Self:
        done, _, read_from = text.partition(READ_FROM)
        return cls(parse_gtids(done), parse_gtids(read_from or done))


def parse_gtids(text: str) -> Gtids:
    return MysqlGtids.parse(text) if ":" in text else MariadbGtids.parse(text)


def is_past(position: str, other: str) -> bool:
    """Of positions, or of the GTIDs of two transactions: whether it is the other, or after it."""
    done, others = Position.parse(position).done, Position.parse(other).done
    if isinstance(done, MariadbGtids) and isinstance(others, MariadbGtids):
        return done.covers(others)
    if isinstance(done, MysqlGtids) and isinstance(others, MysqlGtids):
        return done.covers(others) or _is_later_gtid(position, other)
    raise BadPosition(other)


def _is_later_gtid(gtid: str, other: str) -> bool:
    """MySQL: numbers of one source go up with its commits, though one has none of the others."""
    found, former = MYSQL_GTID.fullmatch(gtid), MYSQL_GTID.fullmatch(other)
    if found is None or former is None or found[1] != former[1]:
        return False
    return int(found[2]) >= int(former[2])
