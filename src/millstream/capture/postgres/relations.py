"""Which table a message of the stream means, in which version, and how its rows are read."""

from collections.abc import Callable

from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.capture.postgres.catalogue import Catalogue, TableFacts
from millstream.capture.postgres.refusals import TableNotCaptured, translated
from millstream.capture.postgres.row_decoder import DecodedColumn, RowDecoder
from millstream.capture.postgres.types import type_form
from millstream.capture.postgres.wire import BadMessage, Relation, read_relation
from millstream.capture.table_versions import TableVersions

TopicOf = Callable[[str], str]
Described = tuple[CapturedTable, RowDecoder]


class TableReader:
    """Describes tables as a capture hands them over, with the help of the catalogue."""

    def __init__(self, catalogue: Catalogue, versions: TableVersions, topic_of: TopicOf) -> None:
        self._catalogue, self._versions, self._topic_of = catalogue, versions, topic_of

    def describe(self, relation: Relation, facts: TableFacts | None) -> Described:
        """`facts` are of now, and the relation may be older: where they differ, it counts."""
        key = key_of(relation, facts)
        columns = relation.columns
        known = self._catalogue.types(column.type_oid for column in columns)
        forms = [type_form(column.type_oid, column.type_modifier, known) for column in columns]
        names = self._catalogue.type_names(columns)
        table = CapturedTable(
            name=relation.full_name,
            topic=self._topic_of(relation.full_name),
            columns=tuple(
                CapturedColumn(
                    name=column.name,
                    database_type=name,
                    type=form.type,
                    is_nullable=column.name not in key,
                )
                for column, name, form in zip(columns, names, forms, strict=True)
            ),
            key=key,
        )
        decoded = [
            DecodedColumn(column.name, form.form)
            for column, form in zip(columns, forms, strict=True)
        ]
        identity = [column.name for column in columns if column.is_identity]
        return self._versions.of(table), RowDecoder(decoded, key, identity)

    def last_of(self, name: str) -> CapturedTable | None:
        return self._versions.last_of(name)

    def describe_now(self, facts: TableFacts) -> Described:
        return self.describe(self._catalogue.relation(facts), facts)


class StreamedTables:
    """The tables that the stream is at. The server describes each before its first row, and again
    when it may have changed; partitions too, though their rows come as those of their table."""

    def __init__(
        self,
        catalogue: Catalogue,
        reader: TableReader,
        *,
        capture: str,
        is_captured: Callable[[str], bool],
    ) -> None:
        self._catalogue, self._reader, self._capture = catalogue, reader, capture
        self.is_captured = is_captured
        self._others: dict[bytes, str] = {}
        self._by_oid: dict[bytes, Described] = {}
        self._by_message: dict[bytes, Described] = {}

    def learn(self, message: bytes) -> None:
        found = self._by_message.get(message)
        relation = read_relation(message)
        if not self.is_captured(relation.full_name):
            self._by_oid.pop(message[1:5], None)
            self._others[message[1:5]] = relation.full_name
            return
        if found is None or relation.identity == "f":  # whose key only the catalogue knows
            found = self._by_message[message] = self._described(relation)
        self._by_oid[message[1:5]] = found

    def _described(self, relation: Relation) -> Described:
        with translated(self._capture):
            facts = self._catalogue.tables([relation.full_name])
            return self._reader.describe(relation, facts[0] if facts else None)

    def of(self, oid: bytes) -> Described:
        try:
            return self._by_oid[oid]
        except KeyError:
            if oid in self._others:
                table = self._others[oid]
                raise TableNotCaptured(capture=self._capture, table=table) from None
            raise BadMessage("a row of a table that it did not describe", oid) from None

    def last_of(self, name: str) -> CapturedTable | None:
        """As the stream, a load or a former run had it last."""
        return self._reader.last_of(name)


def key_of(relation: Relation, facts: TableFacts | None) -> tuple[str, ...]:
    """The columns of the key, in its order.

    With the default identity, or an index, the stream says which they are; with a full one it
    says that all are, and only the catalogue knows better.
    """
    columns = [column.name for column in relation.columns]
    marked = [column.name for column in relation.columns if column.is_identity]
    ordered = () if facts is None else (facts.identity_key or facts.key)
    if relation.identity in "di":
        return ordered if {*ordered} == {*marked} else tuple(marked)
    ordered = () if facts is None else facts.key
    return ordered if {*ordered} <= {*columns} else ()
