"""The event store keeps its promises on our broker and on Apache Kafka."""

import pytest

from millstream.embedded import Broker
from tests.contracts.event_store_contract import EventStoreContract


class TestOnMillstream(EventStoreContract):
    @pytest.fixture
    def brokers(self, millstream_broker: Broker) -> str:
        return millstream_broker.bootstrap


@pytest.mark.full
class TestOnApacheKafka(EventStoreContract):
    @pytest.fixture
    def brokers(self, apache_kafka: str) -> str:
        return apache_kafka
