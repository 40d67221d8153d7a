"""The columns of a changelog: its table's, its key's, and what `_change` and `_order` say.

A frame may say which columns are its key, in their metadata: then nobody has to repeat it.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from millstream.base.changes import CHANGE, COMING, ORDER
from millstream.base.errors import Rejected

# The metadata of a key's column: its place in the key, and how many columns the key has.
KEY_MARK = "millstream.key"
KEY_WIDTH = "millstream.key_width"
Names = str | Sequence[str]


class BadChangelog(Rejected):
    """A frame that is no changelog as the call says it is."""


def mark_key(frame: DataFrame, key: Names) -> DataFrame:
    """The same frame, which says that these columns name a row, and no others."""
    wanted = require_columns(frame, key, what="key")
    for name in dict.fromkeys((*_marked(frame), *wanted)):
        mark = {KEY_MARK: wanted.index(name), KEY_WIDTH: len(wanted)} if name in wanted else {}
        frame = frame.withMetadata(name, _other_metadata(frame, name) | mark)
    return frame


def key_of(frame: DataFrame) -> tuple[str, ...]:
    """The columns that name a row, also after they were renamed; none if nobody has said so, or
    one of them was left out or computed anew: the others alone do not name a row."""
    marked = [frame.schema[name] for name in _marked(frame)]
    if any(field.metadata.get(KEY_WIDTH) != len(marked) for field in marked):
        return ()
    return tuple(field.name for field in sorted(marked, key=lambda f: f.metadata[KEY_MARK]))


def _marked(frame: DataFrame) -> list[str]:
    return [field.name for field in frame.schema if KEY_MARK in field.metadata]


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


def _other_metadata(frame: DataFrame, name: str) -> dict[str, object]:
    known = frame.schema[name].metadata
    return {what: value for what, value in known.items() if what not in (KEY_MARK, KEY_WIDTH)}
