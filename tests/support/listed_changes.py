"""The changes of a view of counts by url, in lists: a `ChangeSource` without a store."""

from collections.abc import Mapping
from typing import Any

from millstream.schemas.declaration import schema_of
from millstream.views.conditions import are_met, conditions_of
from millstream.views.feed_changes import RowChange
from millstream.views.feed_source import CurrentRows, Forgotten, Tail
from millstream.views.store import Row
from millstream.views.table_layout import TableLayout

LAYOUT = TableLayout("counts", schema_of("url STRING, count BIGINT"), ("url",))


class ListedChanges:
    """One generation after the other; `trim` forgets all changes but those of the last batch."""

    def __init__(self) -> None:
        self.generation = 0
        self.rebuild()

    def rebuild(self) -> None:
        self.generation += 1
        self.view: dict[str, int] = {}
        self.all: list[RowChange] = []
        self.floor = self.newest = self.version = 0

    def put(self, counts: Mapping[str, int | None]) -> None:
        changes = {url: new for url, new in counts.items() if self.view.get(url) != new}
        self.version += bool(changes)
        self.newest = len(changes) or self.newest
        for url, new in changes.items():
            was = row_of(url, self.view.pop(url, None))
            if new is not None:
                self.view[url] = new
            seq = len(self.all) + 1
            self.all.append(RowChange(seq, self.version, {"url": url}, was, row_of(url, new)))

    def start_over(self) -> None:
        self.put(dict.fromkeys(self.view))

    def trim(self) -> None:
        self.floor = len(self.all) - self.newest

    def tail(self) -> Tail | None:
        return Tail(
            timeline=f"{self.generation:016x}",
            version=self.version,
            floor=self.floor,
            seq=len(self.all),
            newest=self.newest,
            layout=LAYOUT,
        )

    def current(self, where: Mapping[str, Any] | None) -> CurrentRows | None:
        tail, conditions = self.tail(), conditions_of(LAYOUT, where)
        assert tail is not None
        rows = [{"url": url, "count": count} for url, count in sorted(self.view.items())]
        found = [({"url": row["url"]}, row) for row in rows if are_met(conditions, row)]
        return CurrentRows(tail, iter(found))

    def changes(self, timeline: str, *, since: int, end: int) -> list[RowChange]:
        if timeline != f"{self.generation:016x}" or since < self.floor:
            raise Forgotten
        return self.all[since:end]

    def close(self) -> None:
        pass


def row_of(url: str, count: int | None) -> Row | None:
    return None if count is None else {"url": url, "count": count}
