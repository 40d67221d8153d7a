"""Random schemas, and random rows of a schema."""

from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st

from millstream.base.schema import (
    INTEGER_BITS,
    DataType,
    DecimalOf,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Schema,
    Struct,
)

ANY_NAME = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8
)
PLAIN_NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.builds(DecimalOf, st.just(p), st.integers(0, p)))
TEXT = st.text(max_size=6)
EXACT = Context(prec=38)
MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))


def schemas(
    *, names: st.SearchStrategy[str] = PLAIN_NAME, elements_nullable: bool | None = None
) -> st.SearchStrategy[Schema]:
    """With `elements_nullable` None, elements may be null or not."""
    nullable = st.booleans() if elements_nullable is None else st.just(elements_nullable)

    def structs(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[Schema]:
        fields = st.builds(Field, names, types, st.booleans(), st.text("it's \\", max_size=4))
        some = st.lists(fields, min_size=1, max_size=4, unique_by=lambda one: one.name.lower())
        return some.map(lambda found: Struct(tuple(found)))

    def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        lists = st.builds(ListOf, inner, nullable)
        return lists | st.builds(MapOf, st.just(Scalar.STRING), inner, nullable) | structs(inner)

    leaves: st.SearchStrategy[DataType] = st.sampled_from(Scalar) | DECIMALS
    return structs(st.recursive(leaves, nested, max_leaves=6))


def rows(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {field.name: _nullable(values(field.type), field.nullable) for field in schema}
    )


def _nullable(inner: st.SearchStrategy[Any], nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | inner if nullable else inner


def values(data_type: DataType) -> st.SearchStrategy[Any]:
    match data_type:
        case Scalar():
            return _scalars(data_type)
        case DecimalOf(precision, scale):
            end = 10**precision - 1
            return st.integers(-end, end).map(lambda one: Decimal(one).scaleb(-scale, EXACT))
        case ListOf(element, nullable):
            return st.lists(_nullable(values(element), nullable), max_size=3)
        case MapOf(key, value, nullable):
            return st.dictionaries(values(key), _nullable(values(value), nullable), max_size=3)
        case Struct():
            return rows(data_type)


def _scalars(scalar: Scalar) -> st.SearchStrategy[Any]:
    if scalar in INTEGER_BITS:
        end = 1 << (INTEGER_BITS[scalar] - 1)
        return st.integers(-end, end - 1)
    return {
        Scalar.BOOLEAN: st.booleans(),
        Scalar.FLOAT: st.floats(width=32, allow_nan=False),
        Scalar.DOUBLE: st.floats(allow_nan=False),
        Scalar.STRING: TEXT,
        Scalar.BINARY: st.binary(max_size=6),
        Scalar.DATE: st.dates(),
        Scalar.TIMESTAMP: MOMENTS.map(lambda at: at.replace(tzinfo=UTC)),
        Scalar.TIMESTAMP_NTZ: MOMENTS,
    }[scalar]
