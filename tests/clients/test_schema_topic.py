"""Schemas kept in a topic, on our broker and on Apache Kafka."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from millstream.schemas.compatibility import IncompatibleSchema
from millstream.schemas.schema_book import DamagedSchemaRecord, SchemaVersion
from millstream.schemas.schema_topic import SchemasUnavailable, SchemaTopic, UnfitSchemaTopic
from millstream.values.avro_decoder import AvroDecoder
from millstream.values.avro_encoder import AvroEncoder

WRITERS = 8


def opened(bootstrap: str, topic: str) -> SchemaTopic:
    return SchemaTopic({"bootstrap.servers": bootstrap}, name=f"_schemas-{topic}")


def test_a_schema_is_there_for_the_next_process(bootstrap: str, topic: str) -> None:
    with opened(bootstrap, topic) as schemas:
        first = schemas.register(topic, "id BIGINT NOT NULL")
        second = schemas.register(topic, "id BIGINT NOT NULL, note STRING")
        assert schemas.register(topic, "id BIGINT NOT NULL") == first
    with opened(bootstrap, topic) as later:
        assert later.versions(topic) == [first, second]
        assert later.with_id(second.id) == second
        with pytest.raises(IncompatibleSchema, match="`id` was BIGINT and is STRING"):
            later.register(topic, "id STRING")


def test_a_reader_sees_what_was_registered_since_it_looked(bootstrap: str, topic: str) -> None:
    with opened(bootstrap, topic) as writer, opened(bootstrap, topic) as reader:
        first = writer.register(topic, "id BIGINT")
        assert reader.latest(topic) == first
        second = writer.register(topic, "id BIGINT, note STRING")
        assert reader.with_id(second.id) == second


def test_records_of_every_version_are_read_with_the_newest(bootstrap: str, topic: str) -> None:
    """A producer that was not restarted goes on with its version beside one that was."""
    old, new = "id INT NOT NULL", "id BIGINT NOT NULL, note STRING"
    with opened(bootstrap, topic) as schemas:
        encoders = [registered_avro(schemas, topic, ddl) for ddl in (old, new, old)]
    values = [encoder.encode({"id": number}) for number, encoder in enumerate(encoders)]
    with opened(bootstrap, topic) as later:
        decoder = AvroDecoder(later.latest(topic).schema, writers=partial(definition_of, later))
        decoded = decoder.decode(pa.array(values, pa.binary()))
    assert not decoded.bad
    assert decoded.batch.column("id").to_pylist() == [0, 1, 2]


def registered_avro(schemas: SchemaTopic, topic: str, ddl: str) -> AvroEncoder:
    avro = json.dumps(AvroEncoder(ddl).avro_schema)
    version = schemas.register(topic, ddl, encoding="avro", definition=avro)
    return AvroEncoder(ddl, schema_id=version.id)


def definition_of(schemas: SchemaTopic, schema_id: int) -> str | None:
    found = schemas.with_id(schema_id)
    return None if found is None else found.definition


def test_writers_at_once_make_versions_without_holes_or_doubles(bootstrap: str, topic: str) -> None:
    def register(number: int) -> list[SchemaVersion]:
        """Each one's own topic, and one topic that all of them extend in the same way."""
        with opened(bootstrap, topic) as schemas:
            own = schemas.register(f"{topic}-{number}", "id BIGINT")
            shared = schemas.register(topic, "id BIGINT")
            return [own, shared]

    with ThreadPoolExecutor(WRITERS) as pool:
        found = list(pool.map(register, range(WRITERS)))
    own, shared = zip(*found, strict=True)
    assert {one.version for one in own} == {1}
    assert len(set(shared)) == 1
    assert len({one.id for one in (*own, *shared)}) == WRITERS + 1
    with opened(bootstrap, topic) as schemas:
        assert schemas.versions(topic) == [shared[0]]


def test_the_topic_is_compacted_and_has_one_partition(
    bootstrap: str, topic: str, admin: AdminClient
) -> None:
    with opened(bootstrap, topic) as schemas:
        schemas.refresh()
        name = schemas.name
    assert len(admin.list_topics(name).topics[name].partitions) == 1
    asked = ConfigResource(ConfigResource.Type.TOPIC, name)
    config = admin.describe_configs([asked])[asked].result()
    assert config["cleanup.policy"].value == "compact"


def test_a_topic_with_more_partitions_is_refused(
    bootstrap: str, topic: str, admin: AdminClient
) -> None:
    schemas = opened(bootstrap, topic)
    admin.create_topics([NewTopic(schemas.name, 2)])[schemas.name].result()
    with pytest.raises(UnfitSchemaTopic, match="has 2 partitions"):
        schemas.refresh()


def test_a_topic_of_another_registry_is_left_alone(bootstrap: str, topic: str) -> None:
    with opened(bootstrap, topic) as schemas:
        schemas.refresh()
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(schemas.name, key=b'{"keytype":"NOOP","magic":0}', value=b"{}")
        producer.flush()
        with pytest.raises(DamagedSchemaRecord, match="such as a schema registry"):
            schemas.register(topic, "id BIGINT")


def test_a_broker_that_is_not_there_is_named(topic: str) -> None:
    schemas = SchemaTopic({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.5)
    with pytest.raises(SchemasUnavailable, match="Is the broker up"):
        schemas.refresh()
