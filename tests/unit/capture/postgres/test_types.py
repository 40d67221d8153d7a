"""A column's type in PostgreSQL to ours."""

import pytest

from millstream.base.schema import DataType, DecimalOf, ListOf, Scalar
from millstream.capture.postgres.types import NUMERIC, TypeFacts, type_form

INT4, INTS, MOOD, MOODS, AMOUNT = 23, 1007, 901, 902, 903
RANGE, RANGES, BOX, BOXES = 904, 905, 906, 907
KNOWN = {
    facts.oid: facts
    for facts in (
        TypeFacts(INT4, "b", 0, -1, 0, ","),
        TypeFacts(MOOD, "e", 0, -1, 0, ","),
        TypeFacts(MOODS, "b", 0, -1, MOOD, ","),
        TypeFacts(AMOUNT, "d", NUMERIC, (8 << 16 | 2) + 4, 0, ","),
        TypeFacts(INTS, "b", 0, -1, INT4, ","),
        TypeFacts(RANGE, "r", 0, -1, 0, ","),
        TypeFacts(RANGES, "b", 0, -1, RANGE, ","),
        TypeFacts(BOX, "b", 0, -1, 0, ";"),
        TypeFacts(BOXES, "b", 0, -1, BOX, ";"),
        TypeFacts(22, "b", 0, -1, 21, ","),
    )
}


def modifier(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("oid", "mod", "expected"),
    [
        (INT4, -1, Scalar.INT),
        (NUMERIC, -1, Scalar.STRING),
        (NUMERIC, modifier(10, 2), DecimalOf(10, 2)),
        (NUMERIC, modifier(38, 38), DecimalOf(38, 38)),
        (NUMERIC, modifier(39, 0), Scalar.STRING),
        (NUMERIC, modifier(5, -2), Scalar.STRING),
        (NUMERIC, modifier(2, 4), Scalar.STRING),
        (AMOUNT, -1, DecimalOf(8, 2)),
        (MOOD, -1, Scalar.STRING),
        (MOODS, -1, ListOf(Scalar.STRING)),
        (INTS, -1, ListOf(Scalar.INT)),
        (RANGES, -1, Scalar.STRING),
        (BOXES, -1, Scalar.STRING),
        (22, -1, Scalar.STRING),
        (999_999, -1, Scalar.STRING),
    ],
)
def test_a_type_is_one_that_reads_its_values_back(oid: int, mod: int, expected: DataType) -> None:
    assert type_form(oid, mod, KNOWN).type == expected
