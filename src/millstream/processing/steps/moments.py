"""Times as a script of steps writes them: "12:10" on the script's day, or any ISO 8601. Pure.

Rows of a script may have them wherever their schema has a TIMESTAMP, also deep inside; a struct,
such as a window, may be written as the tuple of its values.
"""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any

from millstream.base.errors import Rejected
from millstream.base.schema import DataType, ListOf, MapOf, Scalar, Struct

# Long ago, so that no event of a script is ahead of its record.
SCRIPT_DAY = date(2026, 1, 1)
_TIME_OF_DAY = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?")


class BadMoment(Rejected):
    def __init__(self, *, found: object) -> None:
        super().__init__(f"{found!r} is no time: write '12:10', '12:10:05.5' or all of ISO 8601")
        self.found = found


def moment(given: str | datetime) -> datetime:
    """A moment in UTC; a time of day is one of the script's day."""
    if isinstance(given, str):
        given = _parsed(given)
    return given.astimezone(UTC) if given.tzinfo else given.replace(tzinfo=UTC)


def _parsed(text: str) -> datetime:
    try:
        if _TIME_OF_DAY.fullmatch(text):
            return datetime.combine(SCRIPT_DAY, time.fromisoformat(text))
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadMoment(found=text) from None


def with_moments(value: Any, data_type: DataType) -> Any:
    """The same value with moments for times, and structs as mappings."""
    match data_type, value:
        case _, None:
            return None
        case Scalar.TIMESTAMP, str() | datetime():
            return moment(value)
        case Scalar.TIMESTAMP_NTZ, str() | datetime():
            return moment(value).replace(tzinfo=None)
        case Struct(), tuple() if len(value) == len(data_type.fields):
            names = [field.name for field in data_type]
            return with_moments(dict(zip(names, value, strict=True)), data_type)
        case Struct(), Mapping():
            return {name: _field(data_type, name, found) for name, found in value.items()}
        case ListOf(element, _), list() | tuple():
            return [with_moments(found, element) for found in value]
        case MapOf(_, item, _), Mapping():
            return {name: with_moments(found, item) for name, found in value.items()}
    return value


def _field(struct: Struct, name: str, found: Any) -> Any:
    """A name that the struct does not have stays as it is: others complain of it better."""
    field = struct.field(name)
    return found if field is None else with_moments(found, field.type)


def shown_moment(found: datetime) -> str:
    """As a script writes it: short on the script's day."""
    at = moment(found)
    if at.date() != SCRIPT_DAY:
        return at.isoformat().replace("+00:00", "Z")
    precision = "minutes" if at.second == at.microsecond == 0 else "auto"
    return at.time().isoformat(timespec=precision)
