"""An App as `web/` serves it: its topics written, its views and captured tables read."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.app import App
from millstream.base.clock import system_clock
from millstream.base.record import Record
from millstream.publishing import Publisher
from millstream.queues.outbox import Receipt
from millstream.settings import ClientSettings, load
from millstream.web.keyed_publisher import KeyedPublisher
from millstream.web.limits import Limits
from millstream.web.ports import Declared

if TYPE_CHECKING:
    from millstream.capture.change_stream import ChangeStream
    from millstream.views.store import Generation
    from millstream.views.view import View

# A health check is asked often, and wants to know soon.
BROKER_SECONDS_MAX = 3.0


class ServedApp:
    """Thread-safe. Views are opened once: all readers and feeds of one share it."""

    def __init__(
        self, app: App, limits: Limits, *, now_ms: Callable[[], int] = system_clock
    ) -> None:
        self.name, self._app = app.name, app
        self._lock = threading.Lock()
        self._views: dict[str, View] = {}
        self._publisher: Publisher | None = None
        self._keyed = KeyedPublisher(
            app.name,
            lambda: app.client_config,
            keep_ms=limits.idempotency_ms,
            bytes_max=limits.idempotency_bytes_max,
            now_ms=now_ms,
        )

    def topics(self) -> Mapping[str, Declared]:
        return self._app.catalog.inputs

    def records(self, topic: str, rows: Sequence[Any]) -> list[Record]:
        return self._publishing().records(self.topics()[topic], rows)

    def publish(self, topic: str, records: Sequence[Record]) -> list[Receipt]:
        return self._publishing().put(topic, records)

    def publish_once(
        self, key: str, request: str, topic: str, records: Sequence[Record]
    ) -> list[Receipt]:
        return self._keyed.publish(key, request, topic, records)

    def views(self) -> Sequence[str]:
        return self._app.views.names

    def view(self, name: str) -> "View":
        with self._lock:
            if name not in self._views:
                self._views[name] = self._app.view(name)
            return self._views[name]

    def generations(self, view: str) -> "Sequence[Generation]":
        return self._app.views.store(view).generations()

    def tables(self) -> Sequence[str]:
        return self._app.captures.tables

    def changes(self, table: str, *, since: str | None) -> "ChangeStream":
        return self._app.captures.changes(table, since=since)

    def require_broker(self) -> None:
        from millstream.processing.kafka_clients import admin_client, translated

        config = dict(self._app.client_config)
        brokers = str(config.pop("bootstrap.servers"))
        translated(
            lambda: admin_client(brokers, config).list_topics(timeout=BROKER_SECONDS_MAX),
            doing="see whether the broker is there",
            brokers=brokers,
        )

    def close(self) -> None:
        self._keyed.close()
        with self._lock:
            views, self._views = self._views, {}
            publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()
        for view in views.values():
            view.close()

    def _publishing(self) -> Publisher:
        with self._lock:
            if self._publisher is None:
                schemas = load(ClientSettings).schemas_topic
                self._publisher = Publisher(self._app.client_config, schemas_topic=schemas)
            return self._publisher
