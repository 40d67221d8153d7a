"""A column's type in PostgreSQL's catalogue, to our type and to the form of its values. Pure.

A type is chosen so that our JSON decoder reads the form back; where none can, it is STRING, and the
value is PostgreSQL's own text.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from millstream.base.schema import (
    DECIMAL_PRECISION_MAX,
    DataType,
    DecimalOf,
    ListOf,
    Scalar,
)
from millstream.capture.postgres import json_forms
from millstream.capture.postgres.json_forms import Form, array_form

NUMERIC: Final = 1700
SIMPLE_KINDS: Final = frozenset("bde")
# Arrays by name, but their text is words between spaces.
_VECTORS: Final = frozenset({22, 30})  # int2vector, oidvector
# numeric(p, s) is kept as ((p << 16) | s) + 4; the scale has 11 bits, with a sign.
_MODIFIER_OFFSET: Final = 4


class TypeFacts(NamedTuple):
    """A row of pg_type. `base_oid` is that of a domain, `element_oid` that of an array; else 0.

    `kind` is b(ase), e(num), d(omain), c(omposite), r(ange) or m(ultirange).
    """

    oid: int
    kind: str
    base_oid: int
    base_modifier: int
    element_oid: int
    delimiter: str


class TypeForm(NamedTuple):
    type: DataType
    form: Form


TEXT: Final = TypeForm(Scalar.STRING, json_forms.of_text)
_PLAIN: Final = TypeForm(Scalar.STRING, json_forms.of_plain)
_BY_OID: Final[Mapping[int, TypeForm]] = {
    16: TypeForm(Scalar.BOOLEAN, json_forms.of_boolean),
    17: TypeForm(Scalar.BINARY, json_forms.of_bytea),
    20: TypeForm(Scalar.BIGINT, json_forms.of_number),
    21: TypeForm(Scalar.SMALLINT, json_forms.of_number),
    23: TypeForm(Scalar.INT, json_forms.of_number),
    26: TypeForm(Scalar.BIGINT, json_forms.of_number),  # oid: 32 bits without a sign
    700: TypeForm(Scalar.FLOAT, json_forms.of_float),
    701: TypeForm(Scalar.DOUBLE, json_forms.of_float),
    1082: TypeForm(Scalar.DATE, json_forms.of_plain),
    1083: _PLAIN,  # time
    1114: TypeForm(Scalar.TIMESTAMP_NTZ, json_forms.of_timestamp),
    1184: TypeForm(Scalar.TIMESTAMP, json_forms.of_timestamptz),
    1186: _PLAIN,  # interval
    1266: _PLAIN,  # timetz
    2950: _PLAIN,  # uuid
    3220: _PLAIN,  # pg_lsn
}


def type_form(oid: int, modifier: int, known: Mapping[int, TypeFacts]) -> TypeForm:
    """Of a column with this type. A type that nobody knows any more is text."""
    facts = known.get(oid)
    while facts is not None and facts.base_oid:
        oid, modifier = facts.base_oid, facts.base_modifier
        facts = known.get(oid)
    if oid == NUMERIC:
        return _numeric_form(modifier)
    if facts is not None and facts.element_oid and oid not in _VECTORS:
        return _array_form(facts, modifier, known)
    return _BY_OID.get(oid, TEXT)


def _numeric_form(modifier: int) -> TypeForm:
    """Without a precision, or with one that no DECIMAL of ours has: a text with every digit."""
    if modifier < _MODIFIER_OFFSET:
        return _PLAIN
    packed = modifier - _MODIFIER_OFFSET
    precision, scale = packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024
    if not 0 <= scale <= precision <= DECIMAL_PRECISION_MAX:
        return _PLAIN
    return TypeForm(DecimalOf(precision, scale), json_forms.of_plain)


def _array_form(array: TypeFacts, modifier: int, known: Mapping[int, TypeFacts]) -> TypeForm:
    """Of simple elements; of others (ranges, composites, domains over arrays) it stays text."""
    element = known.get(array.element_oid)
    form = type_form(array.element_oid, modifier, known)
    is_simple = element is not None and element.kind in SIMPLE_KINDS
    if not is_simple or array.delimiter != "," or isinstance(form.type, ListOf):
        return TEXT
    return TypeForm(ListOf(form.type), array_form(form.form))
