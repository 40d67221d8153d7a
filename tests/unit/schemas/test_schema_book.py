import json
from dataclasses import replace

import pytest

from millstream.schemas import schema_of
from millstream.schemas.compatibility import IncompatibleSchema, UnreadableTopic
from millstream.schemas.schema_book import (
    DamagedSchemaRecord,
    NewerSchemaRecord,
    NoSchema,
    OtherEncoding,
    Proposal,
    SchemaBook,
    SchemaVersion,
)


def wanted(ddl: str, topic: str = "orders", **facts: object) -> SchemaVersion:
    return SchemaVersion(id=0, topic=topic, version=0, schema=schema_of(ddl), **facts)  # type: ignore[arg-type]


class Writer:
    """Proposes by what it has read; the records go where the test says."""

    def __init__(self, log: list[tuple[bytes, bytes | None]]) -> None:
        self.log = log
        self.book = SchemaBook()
        self.read_to = 0

    def refresh(self) -> None:
        for offset in range(self.read_to, len(self.log)):
            self.book.apply(*self.log[offset], offset=offset)
        self.read_to = len(self.log)

    def propose(self, version: SchemaVersion) -> Proposal:
        proposal = Proposal(wanted=self.book.next_of(version), name=f"p{len(self.log)}")
        self.log.append(proposal.to_record())
        return proposal


def test_versions_count_from_one_and_ids_over_all_topics() -> None:
    writer = Writer([])
    for version in [wanted("a INT"), wanted("a INT", "clicks"), wanted("a INT, b INT")]:
        writer.propose(version)
        writer.refresh()
    found = [(one.id, one.version) for one in writer.book.versions("orders")]
    assert found == [(1, 1), (3, 2)]
    assert writer.book.latest("clicks").id == 2
    assert writer.book.with_id(3) == writer.book.latest("orders")


def test_of_two_writers_at_once_the_first_counts_and_the_other_is_void() -> None:
    log: list[tuple[bytes, bytes | None]] = []
    ada, bob = Writer(log), Writer(log)
    hers, his = ada.propose(wanted("a INT")), bob.propose(wanted("b INT"))
    ada.refresh()
    bob.refresh()
    for book in (ada.book, bob.book):
        assert book.accepted(hers)
        assert not book.accepted(his)
        assert [one.schema.ddl for one in book.versions("orders")] == ["a INT"]
    with pytest.raises(IncompatibleSchema, match="does not follow version 1: field `a` was INT"):
        bob.propose(wanted("b INT"))


def test_two_topics_at_once_do_not_get_one_id() -> None:
    log: list[tuple[bytes, bytes | None]] = []
    ada, bob = Writer(log), Writer(log)
    ada.propose(wanted("a INT", "orders"))
    his = bob.propose(wanted("a INT", "clicks"))
    bob.refresh()
    assert not bob.book.accepted(his)
    bob.propose(wanted("a INT", "clicks"))
    bob.refresh()
    assert bob.book.latest("clicks").id == 2


@pytest.mark.parametrize(("version", "id"), [(1, 9), (3, 9), (2, 1), (2, 0)])
def test_a_proposal_that_is_not_the_next_one_is_void(version: int, id: int) -> None:
    writer = Writer([])
    writer.propose(wanted("a INT"))
    odd = replace(wanted("a INT, b INT"), version=version, id=id)
    writer.log.append(Proposal(wanted=odd, name="odd").to_record())
    writer.refresh()
    assert [one.version for one in writer.book.versions("orders")] == [1]


def test_what_compaction_leaves_means_the_same() -> None:
    log: list[tuple[bytes, bytes | None]] = []
    ada, bob = Writer(log), Writer(log)
    ada.propose(wanted("a INT"))
    void = bob.propose(wanted("b INT"))
    log.append((void.to_record()[0], None))
    ada.refresh()
    ada.propose(wanted("a INT, c INT"))
    keys = [key for key, _ in log]
    compacted = [log[keys.index(key)] for key in dict.fromkeys(keys) if key != keys[1]]
    for records in (log, compacted):
        reader = Writer(records)
        reader.refresh()
        assert [one.id for one in reader.book.versions("orders")] == [1, 2]


def test_an_old_producer_finds_its_version() -> None:
    writer = Writer([])
    for ddl in ("a INT", "a INT, b INT"):
        writer.propose(wanted(ddl))
        writer.refresh()
    found = writer.book.find(wanted("a INT"))
    assert found is not None
    assert found.version == 1
    assert writer.book.find(wanted("a BIGINT")) is None


def test_a_topic_that_begins_anew_owes_nothing_to_the_past() -> None:
    writer = Writer([])
    writer.propose(wanted("a INT"))
    writer.refresh()
    writer.propose(wanted("b STRING", begins_anew=True))
    writer.refresh()
    assert [one.version for one in writer.book.current("orders")] == [2]
    assert writer.book.find(wanted("a INT")) is None
    with pytest.raises(IncompatibleSchema):
        writer.propose(wanted("a INT"))


def test_another_encoding_is_refused() -> None:
    writer = Writer([])
    writer.propose(wanted("a INT"))
    writer.refresh()
    with pytest.raises(OtherEncoding, match="is encoded as json, not as avro"):
        writer.propose(wanted("a INT", encoding="avro"))


def test_a_reader_is_told_what_it_cannot_have() -> None:
    writer = Writer([])
    with pytest.raises(NoSchema, match="topic orders has no schema yet"):
        writer.book.check_reader("orders", schema_of("a INT"))
    writer.propose(wanted("a BIGINT, b STRING"))
    writer.refresh()
    writer.book.check_reader("orders", schema_of("b STRING"))
    with pytest.raises(UnreadableTopic, match="field `a` was BIGINT and is INT"):
        writer.book.check_reader("orders", schema_of("a INT"))


def test_a_record_of_somebody_else_is_named() -> None:
    with pytest.raises(DamagedSchemaRecord, match="offset 7: not a schema of Millstream"):
        SchemaBook().apply(b'{"keytype":"NOOP"}', b'{"magic":0}', offset=7)
    with pytest.raises(DamagedSchemaRecord):
        SchemaBook().apply(None, b"\xff", offset=7)


def test_a_newer_format_asks_for_an_upgrade() -> None:
    key, value = Proposal(wanted=wanted("a INT"), name="x").to_record()
    newer = json.dumps({**json.loads(value), "format": 2}).encode()
    with pytest.raises(NewerSchemaRecord, match="has format 2, this version reads up to 1"):
        SchemaBook().apply(key, newer, offset=0)
