"""A number as a DECIMAL, or not at all: nothing is rounded. Pure."""

from decimal import Context, Decimal

from millstream.base.schema import DecimalOf
from millstream.values.unfit import Unfit, shown, too_large


def exact_decimal(number: Decimal, decimal: DecimalOf, *, written: object) -> Decimal:
    """`number` with the digits of the type; `written` is how it came, for the message."""
    if not number:
        return Decimal(0)
    if number.adjusted() >= decimal.precision - decimal.scale:
        raise too_large(decimal, written)
    unit = Decimal(1).scaleb(-decimal.scale)
    rounded = number.quantize(unit, context=Context(prec=2 * decimal.precision))
    if rounded != number:
        raise Unfit(f"{shown(written)} has more digits after the point than {decimal}")
    return rounded
