"""The contract suites that the `eventsourcing` library ships for its recorders, run over ours: on
our broker, and on Apache Kafka in the full run. Each test has a topic of its own."""

import importlib
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from eventsourcing.dcb.persistence import DCBInfrastructureFactory
from eventsourcing.persistence import (
    DataError,
    InfrastructureFactory,
    IntegrityError,
    ProgrammingError,
    StoredEvent,
    Tracking,
    TrackingRecorder,
)
from eventsourcing.utils import Environment

from millstream.embedded import Broker
from millstream.eventsourcing import recorders
from millstream.eventsourcing.event_store import EventStore
from millstream.schemas.library_missing import LibraryMissing
from tests.support.eventsourcing_suites import (
    application_suites,
    dcb_suites,
    projection_suites,
    suites,
)

# A suite looks for this warning of the library's; elsewhere warnings are errors.
TOLD = "default:'log' is deprecated:DeprecationWarning"
MODULE = "millstream.eventsourcing.recorders"


class OnMillstream:
    @pytest.fixture(autouse=True)
    def _on_our_broker(self, millstream_broker: Broker) -> None:
        self.brokers = millstream_broker.bootstrap


class OnKafka:
    @pytest.fixture(autouse=True)
    def _on_apache_kafka(self, apache_kafka: str) -> None:
        self.brokers = apache_kafka


class Surroundings:
    """An environment as an application of the library has it, and factories that are closed."""

    brokers: str

    @pytest.fixture(autouse=True)
    def _surround(self, request: pytest.FixtureRequest) -> Iterator[None]:
        self.variables = {
            "PERSISTENCE_MODULE": MODULE,
            "MILLSTREAM_BROKERS": "set below",
            "MILLSTREAM_TOPIC": f"library-{uuid.uuid4().hex}",
        }
        self.factories: list[Any] = []
        yield
        for factory in self.factories:
            factory.close()

    def made_factory(self) -> recorders.Factory:
        self.variables["MILLSTREAM_BROKERS"] = self.brokers
        factory = InfrastructureFactory.construct(self.variables)
        assert isinstance(factory, recorders.Factory)
        self.factories.append(factory)
        return factory


class AggregateRecorders(Surroundings):
    def create_recorder(self) -> Any:
        return self.made_factory().aggregate_recorder()


class ApplicationRecorders(Surroundings):
    def create_recorder(self) -> Any:
        return self.made_factory().application_recorder()


class Subscriptions(ApplicationRecorders):
    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()  # type: ignore[attr-defined]


class TrackingRecorders(Surroundings):
    def create_recorder(self) -> Any:
        return self.made_factory().tracking_recorder()


class ProcessRecorders(Surroundings):
    def create_recorder(self) -> Any:
        return self.made_factory().process_recorder()


class DCBRecorders(Surroundings):
    def _recorder(self) -> Any:
        self.made_factory()
        factory: Any = DCBInfrastructureFactory.construct(self.variables)
        self.factories.append(factory)
        return factory.dcb_recorder()

    def test_append_read(self) -> None:
        self._test_append_read(self._recorder())  # type: ignore[attr-defined]

    def test_append_subscribe(self) -> None:
        self._test_append_subscribe(self._recorder())  # type: ignore[attr-defined]


class CountingTracker(recorders.MillstreamTrackingRecorder):
    """Someone's own."""


class Factories(Surroundings):
    def setUp(self) -> None:
        self.made_factory()
        self.env = Environment("TestCase", self.variables)
        super().setUp()  # type: ignore[misc]

    def expected_factory_class(self) -> type[recorders.Factory]:
        return recorders.Factory

    def expected_aggregate_recorder_class(self) -> type[Any]:
        return recorders.MillstreamAggregateRecorder

    def expected_application_recorder_class(self) -> type[Any]:
        return recorders.MillstreamApplicationRecorder

    def expected_tracking_recorder_class(self) -> type[Any]:
        return recorders.MillstreamTrackingRecorder

    def tracking_recorder_subclass(self) -> type[TrackingRecorder]:
        return CountingTracker

    def expected_process_recorder_class(self) -> type[Any]:
        return recorders.MillstreamProcessRecorder


class Applications(Surroundings):
    expected_factory_topic = f"{MODULE}:Factory"

    def setUp(self) -> None:
        self.variables["MILLSTREAM_BROKERS"] = self.brokers
        self._patched = mock.patch.dict(os.environ, self.variables)
        self._patched.start()

    def tearDown(self) -> None:
        self._patched.stop()


class Projections(Applications):
    """Two applications, and so two topics."""

    def setUp(self) -> None:
        for name in ("APPLICATION", "COUNTERS"):
            topic = self.variables["MILLSTREAM_TOPIC"]
            self.variables[f"{name}_MILLSTREAM_TOPIC"] = f"{topic}-{name.lower()}"
        super().setUp()


# --- on our broker ------------------------------------------------------------------------------


class TestAggregateRecorder(AggregateRecorders, OnMillstream, suites.AggregateRecorderTestCase):
    pass


class TestApplicationRecorder(Subscriptions, OnMillstream, suites.ApplicationRecorderTestCase[Any]):
    pass


class TestOrder(ApplicationRecorders, OnMillstream, suites.NonInterleavingNotificationIDsBaseCase):
    pass


class TestTrackingRecorder(TrackingRecorders, OnMillstream, suites.TrackingRecorderTestCase):
    pass


class TestProcessRecorder(ProcessRecorders, OnMillstream, suites.ProcessRecorderTestCase):
    pass


class TestFactory(Factories, OnMillstream, suites.InfrastructureFactoryTestCase[Any]):
    pass


class TestDCB(DCBRecorders, OnMillstream, dcb_suites.DCBRecorderTestCase):
    pass


class TestExampleApplication(
    Applications, OnMillstream, application_suites.ExampleApplicationTestCase
):
    pass


@pytest.mark.filterwarnings(TOLD)
class TestApplication(Applications, OnMillstream, application_suites.ApplicationTestCase):
    pass


class TestProjection(Projections, OnMillstream, projection_suites.EventSourcedProjectionTestCase):
    pass


# --- on Apache Kafka ----------------------------------------------------------------------------


@pytest.mark.full
class TestAggregateRecorderOnKafka(AggregateRecorders, OnKafka, suites.AggregateRecorderTestCase):
    pass


@pytest.mark.full
class TestApplicationRecorderOnKafka(
    Subscriptions, OnKafka, suites.ApplicationRecorderTestCase[Any]
):
    pass


@pytest.mark.full
class TestOrderOnKafka(
    ApplicationRecorders, OnKafka, suites.NonInterleavingNotificationIDsBaseCase
):
    pass


@pytest.mark.full
class TestTrackingRecorderOnKafka(TrackingRecorders, OnKafka, suites.TrackingRecorderTestCase):
    pass


@pytest.mark.full
class TestProcessRecorderOnKafka(ProcessRecorders, OnKafka, suites.ProcessRecorderTestCase):
    pass


@pytest.mark.full
class TestFactoryOnKafka(Factories, OnKafka, suites.InfrastructureFactoryTestCase[Any]):
    pass


@pytest.mark.full
class TestDCBOnKafka(DCBRecorders, OnKafka, dcb_suites.DCBRecorderTestCase):
    pass


@pytest.mark.full
class TestExampleApplicationOnKafka(
    Applications, OnKafka, application_suites.ExampleApplicationTestCase
):
    pass


@pytest.mark.full
@pytest.mark.filterwarnings(TOLD)
class TestApplicationOnKafka(Applications, OnKafka, application_suites.ApplicationTestCase):
    pass


@pytest.mark.full
class TestProjectionOnKafka(Projections, OnKafka, projection_suites.EventSourcedProjectionTestCase):
    pass


# --- what the suites do not ask -------------------------------------------------------------------


def stored(originator: uuid.UUID | str, version: int, state: bytes = b"{}") -> StoredEvent:
    return StoredEvent(originator_id=originator, originator_version=version, topic="t", state=state)


def test_events_of_several_aggregates_are_recorded_together_or_not_at_all(
    factory: recorders.Factory,
) -> None:
    recorder = factory.application_recorder()
    one, other = uuid.uuid4(), uuid.uuid4()
    assert recorder.insert_events([stored(one, 1), stored(other, 1), stored(one, 2)]) == [1, 2, 3]
    with pytest.raises(IntegrityError):
        recorder.insert_events([stored(one, 3), stored(other, 1)])
    assert [event.originator_version for event in recorder.select_events(one)] == [1, 2]
    assert recorder.max_notification_id() == 3


def test_numbers_in_any_order_are_refused_only_twice(factory: recorders.Factory) -> None:
    recorder = factory.aggregate_recorder()
    one = uuid.uuid4()
    for version in (7, 2, 9, 4):
        recorder.insert_events([stored(one, version)])
        with pytest.raises(IntegrityError, match=f"has an event {version} already"):
            recorder.insert_events([stored(one, version)])
    numbers = [event.originator_version for event in recorder.select_events(one, gt=2, desc=True)]
    assert numbers == [9, 7, 4]


def test_tracking_takes_no_notification_and_moves_no_maximum(factory: recorders.Factory) -> None:
    recorder = factory.process_recorder()
    recorder.insert_events([stored(uuid.uuid4(), 1)])
    for number in range(40):
        recorder.insert_events([], tracking=Tracking("upstream", number))
    assert recorder.max_notification_id() == 1
    assert [one.id for one in recorder.select_notifications(None, 100)] == [1]
    recorder.insert_events([stored(uuid.uuid4(), 1)], tracking=Tracking("upstream", 40))
    assert recorder.max_notification_id() == 43
    assert recorder.max_tracking_id("upstream") == 40


def test_another_process_that_writes_is_seen_by_those_who_follow(
    factory: recorders.Factory, other_factory: recorders.Factory
) -> None:
    first, second = factory.application_recorder(), other_factory.application_recorder()
    with first.subscribe() as followed:
        for version in (1, 2, 3):
            for recorder in (first, second):
                originator = uuid.uuid4()
                recorder.insert_events([stored(originator, version)])
                assert next(followed).originator_id == originator


def test_ids_may_be_texts(millstream_broker: Broker) -> None:
    with made(millstream_broker, ORIGINATOR_ID_TYPE="text") as factory:
        recorder = factory.application_recorder()
        recorder.insert_events([stored("account alice/1", 1)])
        assert recorder.select_notifications(1, 1)[0].originator_id == "account alice/1"


def test_what_cannot_be_stored_is_refused_in_the_librarys_words(
    factory: recorders.Factory,
) -> None:
    recorder = factory.application_recorder()
    with pytest.raises(DataError, match="bytes, and may have"):
        recorder.insert_events([stored(uuid.uuid4(), 1, b"x" * 2_000_000)])


def test_a_topic_with_more_partitions_is_refused(millstream_broker: Broker) -> None:
    topic = f"library-{uuid.uuid4().hex}"
    EventStore({"bootstrap.servers": millstream_broker.bootstrap}, topic, partitions=2).close()
    with (
        made(millstream_broker, MILLSTREAM_TOPIC=topic) as factory,
        pytest.raises(ProgrammingError, match="2 partitions, and notification ids"),
    ):
        factory.application_recorder()


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, r"Where is the broker\? Set .*MILLSTREAM_BROKERS"),
        ({"MILLSTREAM_BROKERS": "x:1", "ORIGINATOR_ID_TYPE": "int"}, "'uuid' or 'text'"),
    ],
)
def test_an_environment_that_does_not_do_is_told(variables: dict[str, str], told: str) -> None:
    with pytest.raises(OSError, match=told):
        recorders.Factory(Environment("Bank", variables))


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "millstream.eventsourcing.library_errors")
    monkeypatch.setitem(sys.modules, "eventsourcing.persistence", None)
    with pytest.raises(LibraryMissing, match="pip install"):
        importlib.import_module("millstream.eventsourcing.library_errors")


@contextmanager
def made(broker: Broker, **variables: str) -> Iterator[recorders.Factory]:
    found = {"MILLSTREAM_TOPIC": f"library-{uuid.uuid4().hex}"} | variables
    factory = recorders.Factory({"MILLSTREAM_BROKERS": broker.bootstrap} | found)
    yield factory
    factory.close()


@pytest.fixture
def topic() -> str:
    return f"library-{uuid.uuid4().hex}"


@pytest.fixture
def factory(millstream_broker: Broker, topic: str) -> Iterator[recorders.Factory]:
    with made(millstream_broker, MILLSTREAM_TOPIC=topic) as factory:
        yield factory


@pytest.fixture
def other_factory(millstream_broker: Broker, topic: str) -> Iterator[recorders.Factory]:
    with made(millstream_broker, MILLSTREAM_TOPIC=topic) as factory:
        yield factory
