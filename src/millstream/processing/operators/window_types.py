"""The types of what windows compute, in Spark's terms: as Spark's own aggregates have them."""

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    MapType,
    StructType,
    VariantType,
)

from millstream.processing.operators.aggregates import (
    Aggregate,
    Average,
    Collected,
    Count,
    DistinctCount,
    Greatest,
    Least,
    Sum,
)
from millstream.processing.operators.window_kinds import BadWindow

DECIMAL_DIGITS_MAX = 38


def result_type(aggregate: Aggregate, given: DataType | None) -> DataType:
    """Of an aggregate of a column of the type `given`; None for one without a column."""
    match aggregate:
        case Count() | DistinctCount():
            return LongType()
        case Collected() if given is not None:
            return ArrayType(given)
        case Sum() | Average() if given is not None:
            return _number_type(aggregate, given)
        case Least() | Greatest() if isinstance(given, MapType | VariantType):
            raise _refused(aggregate, given, "it has no order")
    assert given is not None, aggregate
    return given


def _number_type(aggregate: Sum | Average, given: DataType) -> DataType:
    is_sum = isinstance(aggregate, Sum)
    if isinstance(given, DecimalType):
        more, scale = (10, given.scale) if is_sum else (4, given.scale + 4)
        return DecimalType(
            min(given.precision + more, DECIMAL_DIGITS_MAX), min(scale, DECIMAL_DIGITS_MAX)
        )
    if isinstance(given, IntegralType):
        return LongType() if is_sum else DoubleType()
    if isinstance(given, FloatType | DoubleType):
        return DoubleType()
    raise _refused(aggregate, given, "it is no number")


def _refused(aggregate: Aggregate, given: DataType, why: str) -> BadWindow:
    what = f"{aggregate.function}({aggregate.column!r})"
    return BadWindow(f"{what}: the column is {given.simpleString()}, and {why}")


def require_key(column: str, type_: DataType) -> None:
    """What names a key must be equal to itself in Python too: floats and collections are not."""
    refused = (ArrayType, MapType, StructType, VariantType, FloatType, DoubleType)
    if isinstance(type_, refused):
        raise BadWindow(
            f"by={column!r} is {type_.simpleString()}: a key is text, bytes, a whole number, a "
            "decimal, a boolean or a time"
        )
