"""Tables as a stream describes them, without a catalogue to ask."""

from millstream.base.schema import Scalar
from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.capture.postgres import json_forms
from millstream.capture.postgres.row_decoder import DecodedColumn, RowDecoder
from millstream.capture.postgres.wire import read_relation
from tests.unit.capture.postgres.messages import INT4, TEXT, relation

ITEMS = 7
ITEMS_RELATION = relation(ITEMS, ("id", INT4), ("name", TEXT))


class KnownTables:
    """Tables whose columns are all numbers or texts; the first is the key."""

    def __init__(self) -> None:
        self._tables: dict[bytes, tuple[CapturedTable, RowDecoder]] = {}

    def learn(self, message: bytes) -> None:
        found = read_relation(message)
        names = [column.name for column in found.columns]
        columns = tuple(
            CapturedColumn(name=name, database_type="text", type=Scalar.STRING) for name in names
        )
        table = CapturedTable(name=found.full_name, topic="t", columns=columns, key=("id",))
        forms = {INT4: json_forms.of_number, TEXT: json_forms.of_text}
        decoded = [DecodedColumn(one.name, forms[one.type_oid]) for one in found.columns]
        self._tables[message[1:5]] = (table, RowDecoder(decoded, ["id"], ["id"]))

    def is_captured(self, name: str) -> bool:
        return name == "public.items"

    def last_of(self, name: str) -> CapturedTable | None:
        found = [table for table, _ in self._tables.values() if table.name == name]
        return found[-1] if found else None

    def of(self, oid: bytes) -> tuple[CapturedTable, RowDecoder]:
        return self._tables[oid]
