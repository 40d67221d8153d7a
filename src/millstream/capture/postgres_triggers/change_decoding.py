"""What the triggers wrote, as changes, with the types and forms of capture/postgres/."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millstream.capture.change import (
    CREATED,
    DELETED,
    TRUNCATED,
    UPDATED,
    CapturedTable,
    Change,
)
from millstream.capture.postgres.catalogue import GENERATED_COLUMNS_SINCE, Catalogue
from millstream.capture.postgres.refusals import TableNotCaptured
from millstream.capture.postgres.relations import TableReader
from millstream.capture.postgres.row_decoder import RowDecoder
from millstream.capture.postgres.wire import Relation, RelationColumn
from millstream.capture.postgres_triggers.change_log import StoredChange, StoredShape
from millstream.capture.postgres_triggers.record_text import columns_of

Image = tuple[bytes | None, bytes]  # key and row


@dataclass(frozen=True, slots=True)
class _Rows:
    """`places`: of the columns that are handed over, among all."""

    table: CapturedTable
    decoder: RowDecoder
    places: tuple[int, ...]

    def image(self, text: str) -> Image:
        texts = columns_of(text.encode())
        values = [texts[place] for place in self.places]
        parts = [
            b"null" if value is None else column.form(value)
            for column, value in zip(self.decoder.columns, values, strict=True)
        ]
        return self.decoder.key_of(parts), self.decoder.row_of(parts)


class ChangeDecoder:
    def __init__(
        self,
        catalogue: Catalogue,
        reader: TableReader,
        shape_of: Callable[[int], StoredShape],
        *,
        capture: str,
        is_captured: Callable[[str], bool],
    ) -> None:
        self._catalogue, self._reader, self._shape_of = catalogue, reader, shape_of
        self._capture, self._is_captured = capture, is_captured
        self._known: dict[int, _Rows] = {}

    def learn(self, shape_id: int) -> None:
        """Before rows are read: it may have to ask the catalogue."""
        if shape_id not in self._known:
            self._known[shape_id] = self._rows(self._shape_of(shape_id))

    def changes(self, stored: StoredChange) -> Iterator[Change]:
        """One; two if the row has another key than before."""
        self.learn(stored.shape)
        rows = self._known[stored.shape]
        old = rows.image(stored.old) if stored.old is not None else None
        new = rows.image(stored.new) if stored.new is not None else None
        if stored.op == TRUNCATED:
            yield Change(rows.table, TRUNCATED, None, None, None)
        elif old is not None and new is not None and old[0] == new[0]:
            yield Change(rows.table, UPDATED, new[0], old[1], new[1])
        else:
            if old is not None:
                yield Change(rows.table, DELETED, old[0], old[1], None)
            if new is not None:
                yield Change(rows.table, CREATED, new[0], None, new[1])

    def _rows(self, shape: StoredShape) -> _Rows:
        has_generated = self._catalogue.server_version >= GENERATED_COLUMNS_SINCE
        wanted = {"", "s"} if has_generated else {""}
        places = tuple(at for at, kind in enumerate(shape.generated) if kind.strip("\0") in wanted)
        relation = Relation(
            shape.relation,
            shape.schema,
            shape.table,
            "d",
            tuple(
                RelationColumn(
                    shape.names[at],
                    shape.types[at],
                    shape.modifiers[at],
                    shape.names[at] in shape.key,
                )
                for at in places
            ),
        )
        if not self._is_captured(relation.full_name):
            raise TableNotCaptured(capture=self._capture, table=relation.full_name)
        facts = self._catalogue.tables([relation.full_name])
        table, decoder = self._reader.describe(relation, facts[0] if facts else None)
        return _Rows(table, decoder, places)
