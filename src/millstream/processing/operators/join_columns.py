"""The columns of a join: which of them must be equal, and what the result's are called. Pure.

The result has the left side's columns under their names, then the right side's. A column that both
are joined on by one name (`on="id"`) is there once, as with USING in SQL; with two names
(`on={"customer": "id"}`) both are there, as with ON. A name that is taken gets `_right` behind it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from millstream.base.changes import CHANGE, ORDER
from millstream.base.declared import BadDeclaration

On = str | Sequence[str] | Mapping[str, str]

RIGHT_SUFFIX = "_right"


@dataclass(frozen=True, slots=True)
class JoinKey:
    """Columns that are equal in a match, by their names on the left and on the right, in order."""

    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def shared(self) -> set[str]:
        """Those that have one name on both sides."""
        return {left for left, right in zip(self.left, self.right, strict=True) if left == right}


def join_key(on: On, left: Sequence[str], right: Sequence[str]) -> JoinKey:
    """`on` is a column of both sides, several, or names of the left to names of the right."""
    if isinstance(on, Mapping):
        key = JoinKey(tuple(on), tuple(on.values()))
    else:
        names = (on,) if isinstance(on, str) else tuple(on)
        key = JoinKey(names, names)
    if not key.left:
        raise BadDeclaration("on is empty: name at least one column that must be equal")
    _require(key.left, left, side="left")
    _require(key.right, right, side="right")
    return key


def _require(wanted: Sequence[str], columns: Sequence[str], *, side: str) -> None:
    for name in wanted:
        if name not in columns:
            raise BadDeclaration(
                f"on={name!r} is no column of the {side} side ({', '.join(columns)})"
            )


def right_columns(left: Sequence[str], right: Sequence[str], key: JoinKey) -> dict[str, str]:
    """The right side's own columns, to their names in the result."""
    own = [name for name in right if name not in (*key.shared, CHANGE, ORDER)]
    names: dict[str, str] = {}
    taken = {name.lower() for name in left}
    for name in own:
        given = name + RIGHT_SUFFIX if name.lower() in taken else name
        if given.lower() in taken:
            raise BadDeclaration(
                f"the columns {name} and {given} are on both sides: rename one of them"
            )
        taken.add(given.lower())
        names[name] = given
    return names


def require_changelog(columns: Sequence[str]) -> None:
    if CHANGE not in columns or ORDER not in columns:
        raise BadDeclaration(
            f"the right side is no table: it has no {CHANGE} and {ORDER} "
            f"({', '.join(columns)}). Declare it with app.table"
        )


def require_key(key: JoinKey, table_key: Collection[str], *, versions: str | None = None) -> None:
    """A deletion has only the key, and an update replaces the row of its key, and no other.

    By other columns, rows that are gone would be found. `table_key` is empty if nobody knows it.
    """
    wanted = [name for name in table_key if name != versions]
    if wanted and set(key.right) != set(wanted):
        raise BadDeclaration(
            f"on={', '.join(key.right)} is not the key of the table ({', '.join(wanted)}): rows "
            "that are gone would be found. Join by the key, or take joins.tables"
        )


def require_alike(*, stream: bool, table: bool) -> None:
    if stream != table:
        raise BadDeclaration("one side is a stream and the other is static: read both alike")


def require_one_of(given: str, known: Sequence[str], *, what: str) -> None:
    if given not in known:
        raise BadDeclaration(f"{what}={given!r}: one of {', '.join(known)}")
