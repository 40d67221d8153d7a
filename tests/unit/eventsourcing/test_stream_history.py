"""The checker of histories finds what was planted, and nothing else."""

import pytest

from tests.support.stream_history import Kind, Operation, violations

STREAM = ["a", "b", "c"]


def one(
    kind: Kind, began: int, ended: int | None, event: str = "", length: int = 0, events: str = ""
) -> Operation:
    return Operation(
        kind=kind, began=began, ended=ended, event=event, length=length, events=tuple(events)
    )


GOOD = [
    one("append", 0, 2, "a", 1),
    one("read", 1, 3, events="a"),
    one("append", 3, 8, "b", 2),
    one("read", 4, 9, events="a"),  # b was under way
    one("refused", 5, 9, length=2),
    one("append", 6, None, "c"),  # its client was killed, and it is there
    one("append", 7, None, "d"),  # and this one is not
    one("read", 10, 11, events="abc"),
]


def test_a_history_that_could_be_is_let_be() -> None:
    assert violations(GOOD, STREAM) == []


@pytest.mark.parametrize(
    ("planted", "stream"),
    [
        (one("append", 12, 13, "e", 4), "abc"),  # answered, and lost
        (one("append", 12, 13, "a", 4), "abca"),  # there twice
        (one("refused", 12, 13, "e", 3), "abce"),  # refused, and there all the same
        (one("append", 12, 13, "e", 2), "abce"),  # answered with another place
        (one("read", 12, 13, events="ac"), "abc"),  # no beginning
        (one("read", 12, 13, events="ab"), "abc"),  # stale: c was read before
        (one("refused", 12, 13, length=2), "abc"),  # refused by what was known before
        (one("read", 0, 1, events="ab"), "abc"),  # sees what had not begun: b began at 3
        (one("append", 12, None, "c2"), "abc2c"),  # took effect before it began
    ],
)
def test_a_planted_violation_is_found(planted: Operation, stream: str) -> None:
    names = ["c2" if letter == "2" else letter for letter in stream.replace("c2", "2")]
    assert violations([*GOOD, planted], names)
