"""The columns of a changelog: its table's, its key's, and what `_change` and `_order` say.

A frame may say which columns are its key, in their metadata: then nobody has to repeat it.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from millstream.base.changes import CHANGE, COMING, ORDER
from millstream.base.errors import Rejected

# The metadata of a key's column: its place in the key, and how many columns the key has.
KEY_MARK = "millstream.key"
KEY_WIDTH = "millstream.key_width"
KEY_NAME = "millstream.key_name"
# The metadata of `_change`, where a frame is made that is a table's changes: by key or by value.
CHANGE_MARK = "millstream.change"
BY_KEY, BY_VALUE = "by key", "by value"
# The metadata of `_change` of a table that was filtered: a delete may be of a version of a row.
FILTERED = "millstream.filtered"
# The metadata of the first column, where rows that only come are made of a table.
ROWS_MARK = "millstream.rows"
MARKS = (KEY_MARK, KEY_WIDTH, KEY_NAME, CHANGE_MARK, ROWS_MARK)
Names = str | Sequence[str]


class BadChangelog(Rejected):
    """A frame that is no changelog as the call says it is."""


def mark_key(frame: DataFrame, key: Names, *, by_value: bool | None = None) -> DataFrame:
    """The same frame, which says that these columns name a row, and no others.

    Changes in it, if it has any, are marked as a table's: what follows is looked at. `by_value`:
    they are whole rows that go and come; None: as they were.
    """
    wanted = require_columns(frame, key, what="key")
    marks: dict[str, dict[str, object]] = {
        name: {KEY_MARK: place, KEY_WIDTH: len(wanted), KEY_NAME: name}
        for place, name in enumerate(wanted)
    }
    if CHANGE in frame.columns:
        known = frame.schema[CHANGE].metadata.get(CHANGE_MARK, BY_KEY)
        kind = known if by_value is None else (BY_VALUE if by_value else BY_KEY)
        marks[CHANGE] = {CHANGE_MARK: kind}
    return _with_marks(frame, marks)


def mark_changes(frame: DataFrame, *, by_value: bool = False) -> DataFrame:
    """The same for changes whose key nobody has said yet."""
    return _with_marks(frame, {CHANGE: {CHANGE_MARK: BY_VALUE if by_value else BY_KEY}})


def mark_rows(frame: DataFrame) -> DataFrame:
    """The same frame, which says that its rows only come, whatever they are made of."""
    return _with_marks(frame, {frame.columns[0]: {ROWS_MARK: True}})


def _with_marks(frame: DataFrame, marks: Mapping[str, Mapping[str, object]]) -> DataFrame:
    """One selection, with these marks and no others of ours."""
    columns = [
        quoted(field.name).alias(field.name, metadata=noted)
        if (noted := _other_metadata(field) | dict(marks.get(field.name, {}))) != field.metadata
        or field.name in marks
        else quoted(field.name)
        for field in frame.schema
    ]
    return frame.select(*columns)


def key_of(frame: DataFrame) -> tuple[str, ...]:
    """The columns that name a row, also after they were renamed; none if nobody has said so, or
    one of them was left out or computed: the others alone do not name a row.

    A copy of a column of the key holds the same values: the one with the key's name counts.
    """
    parts: dict[int, StructField] = {}
    for field in _marked(frame):
        known = parts.setdefault(field.metadata[KEY_MARK], field)
        if known.name != field.metadata.get(KEY_NAME) and field.name == field.metadata.get(
            KEY_NAME
        ):
            parts[field.metadata[KEY_MARK]] = field
    if any(field.metadata.get(KEY_WIDTH) != len(parts) for field in parts.values()):
        return ()
    return tuple(parts[place].name for place in sorted(parts))


def _marked(frame: DataFrame) -> list[StructField]:
    return [field for field in frame.schema if KEY_MARK in field.metadata]


def columns_of(frame: DataFrame) -> list[str]:
    """Those of the table."""
    return [name for name in frame.columns if name not in (CHANGE, ORDER)]


def is_coming(frame: DataFrame) -> Column:
    if CHANGE not in frame.columns:
        return F.lit(True)
    return F.coalesce(F.col(CHANGE).isin(*COMING), F.lit(True))


def order_of(frame: DataFrame) -> Column:
    return F.coalesce(ORDER, F.lit(0)) if ORDER in frame.columns else F.lit(0)


def quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def key_or_marked(frame: DataFrame, key: Names | None, *, what: str = "key") -> tuple[str, ...]:
    found = key_of(frame) if key is None else require_columns(frame, key, what=what)
    if not found:
        raise BadChangelog(
            f"which columns name a row? Say it with {what}=: the columns are "
            f"{', '.join(columns_of(frame))}"
        )
    return found


def require_columns(frame: DataFrame, names: Names, *, what: str) -> tuple[str, ...]:
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if name not in columns_of(frame):
            raise BadChangelog(
                f"{what}={name!r} is no column of the table ({', '.join(columns_of(frame))})"
            )
    return wanted


def has_no_order(type_: DataType) -> bool:
    """Nor can two values be found to be the same."""
    if isinstance(type_, ArrayType):
        return has_no_order(type_.elementType)
    if isinstance(type_, StructType):
        return any(has_no_order(field.dataType) for field in type_)
    return isinstance(type_, MapType | VariantType)


def _other_metadata(field: StructField) -> dict[str, object]:
    return {what: value for what, value in field.metadata.items() if what not in MARKS}
