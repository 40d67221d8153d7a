"""The changes of a view in a topic, when the view begins a new life and the topic does not."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from millstream.processing.writing.view_changes import ViewChanges, changes_table, changes_topic
from millstream.schemas.declaration import schema_of
from millstream.views.stores.sqlite.file import SqliteStore
from tests.clients.steps import WITHIN_S, open_consumer, unique_name
from tests.contracts.view_store_contract import COUNTS, receipt, rows


class Counts:
    """The view `counts` of an app, written as its job writes it; each `life` is a checkpoint."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.store = SqliteStore(directory / "counts.sqlite", view="counts", key=["url"])
        self.topic = changes_topic(unique_name("shop"), "counts", 1)
        self._brokers = bootstrap

    def write(self, life: str, *batches: pa.Table, is_told: bool = True) -> None:
        """Batches from 0 on; the first life in which they are told begins with all rows."""
        with closing(self.store.writer(1)) as view:
            epoch = view.claim("counts", schema_of(COUNTS))
            changes = self._changes(life) if is_told else None
            for number, batch in enumerate(batches):
                view.write(receipt(epoch=epoch, batch=number, query=life), batch)
                if changes is not None:
                    changes.write(number, batch)
            if changes is not None:
                changes.close()

    def tell_all(self, life: str) -> None:
        self._changes(life).close()

    def told(self) -> dict[str, int]:
        """What the changes come to for who reads all of them."""
        found: dict[str, int] = {}
        for key, value in records_in(self._brokers, self.topic):
            found.pop(key, None)
            if value is not None:
                found[key] = json.loads(value)["count"]
        return found

    def _changes(self, mark: str) -> ViewChanges:
        table = changes_table(self.topic, schema_of(COUNTS), ("url",))
        reader = self.store.reader(1)
        changes = ViewChanges(table, reader, mark=mark, brokers=self._brokers, client={})
        changes.write_all()
        return changes


def records_in(bootstrap: str, topic: str) -> Iterator[tuple[str, bytes | None]]:
    config = {"isolation.level": "read_committed", "enable.partition.eof": True}
    with closing(open_consumer(bootstrap, unique_name("reader"), config)) as consumer:
        for number in consumer.list_topics(topic).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
            yield from records_to_the_end(consumer)


def records_to_the_end(consumer: Consumer) -> Iterator[tuple[str, bytes | None]]:
    while True:
        message = consumer.poll(WITHIN_S)
        assert message is not None, "the end of the partition was not told"
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF, error
            return
        yield (message.key() or b"").decode(), message.value()


@pytest.fixture
def counts(bootstrap: str, tmp_path: Path) -> Counts:
    return Counts(bootstrap, tmp_path)


def row(*found: Any) -> pa.Table:
    return rows(COUNTS, *found)


def starts_over(counts: Counts) -> None:
    """A job whose directory was removed."""


def is_dropped(counts: Counts) -> None:
    counts.store.drop()


@pytest.mark.parametrize("ends", [starts_over, is_dropped])
def test_a_view_of_a_new_life_leaves_no_row_of_the_former_one(
    counts: Counts, ends: Callable[[Counts], None]
) -> None:
    counts.write("first", row(("/old", 1), ("/kept", 1)), row(("/later", 2)))
    assert counts.told() == {"/old": 1, "/kept": 1, "/later": 2}
    ends(counts)
    counts.write("second", row(("/kept", 5)), row(("/new", 6)))
    assert counts.told() == {"/kept": 5, "/new": 6}


def test_a_view_that_begins_with_no_row_leaves_none_of_the_former_life(counts: Counts) -> None:
    counts.write("first", row(("/old", 1)))
    counts.write("second", row())
    assert counts.told() == {}


def test_a_view_that_becomes_an_input_again_deletes_what_it_has_no_longer(counts: Counts) -> None:
    counts.write("first", row(("/old", 1), ("/kept", 1)))
    counts.write("second", row(("/kept", 5)), row(("/new", 6)), is_told=False)
    counts.tell_all("third")
    assert counts.told() == {"/kept": 5, "/new": 6}
