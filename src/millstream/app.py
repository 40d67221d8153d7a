"""`App`: what an application writes against, and the one place that knows every package.

    app = millstream.App("shop")
    jobs = app.queue("jobs")

Its data is under ./shop.millstream, kept by a broker that starts when something first needs one.
MILLSTREAM_BROKERS=... (or [client] in millstream.toml) points the same code at a cluster; then
nothing is started. For now an App has queues; topics, jobs and views come here.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from millstream.client_protection import protection_config
from millstream.embedded import Broker, BrokerDidNotStart
from millstream.queues.asked import BadTerms, app_name
from millstream.queues.queue import Queue
from millstream.queues.values import ValueKind
from millstream.settings import ClientSettings, is_given, load

# A level of librdkafka's, as syslog's. What matters is raised where it happens.
LOG_CRITICAL = 2


class App:
    """One application: its name, its broker, its queues. Thread-safe; close it when you are done.

    A data directory has one broker. To share it between processes, start `millstream broker --data
    shop.millstream` once, and set MILLSTREAM_BROKERS for each.
    """

    def __init__(self, name: str, *, data: str | Path | None = None, brokers: str | None = None):
        self.name = app_name(name)
        self.data = Path(f"{name}.millstream" if data is None else data)
        self._brokers = brokers
        self._broker: Broker | None = None
        self._queues: dict[str, tuple[Queue, dict[str, Any]]] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<App {self.name}, data in {self.data}>"

    @property
    def bootstrap(self) -> str:
        """Where this application's broker is; starts the embedded one if no other is named."""
        return str(self.client_config["bootstrap.servers"])

    @property
    def client_config(self) -> Mapping[str, Any]:
        """What a librdkafka client needs to reach this application's broker."""
        options = {"brokers": self._brokers}
        if is_given(ClientSettings, "brokers", options=options):
            settings = load(ClientSettings, options=options)
            return {
                "bootstrap.servers": ",".join(map(str, settings.brokers)),
                "log_level": LOG_CRITICAL,
                **protection_config(settings),
            }
        return {"bootstrap.servers": self._started().bootstrap, "log_level": LOG_CRITICAL}

    def _started(self) -> Broker:
        with self._lock:
            if self._broker is None:
                broker = Broker(self.data)
                try:
                    self._broker = broker.start()
                except BrokerDidNotStart as error:
                    raise BrokerDidNotStart(reason=f"{error.reason} ({self._advice})") from error
            return self._broker

    @property
    def _advice(self) -> str:
        return (
            f"if another process uses {self.data}: run `millstream broker --data {self.data}` "
            "once, and set MILLSTREAM_BROKERS for each"
        )

    def queue(
        self,
        name: str,
        *,
        values: ValueKind = "json",
        attempts_max: int = 5,
        lock: float | None = None,
        retry_delay: float = 1.0,
        partitions: int | None = None,
        prefetch: int = 0,
        set_up: bool = True,
    ) -> Queue:
        """The work queue of this name, the same object each time. Times are in seconds.

        `values`: json, text or bytes. `attempts_max`: deliveries before a job is a dead letter.
        `lock`: how long a job stays locked when its worker is gone. `retry_delay`: after a
        failure in `with job:`, doubled each time. `partitions`: of the topic, if it is made now.
        `prefetch`: jobs fetched ahead of those asked for; other workers do not get them.
        `set_up`: False for a client that may not create topics or change configs.
        """
        terms: dict[str, Any] = {
            "values": values,
            "attempts_max": attempts_max,
            "lock": lock,
            "retry_delay": retry_delay,
            "partitions": partitions,
            "prefetch": prefetch,
            "set_up": set_up,
        }
        with self._lock:
            known = self._queues.get(name)
            if known is None:
                known = Queue(name, self.client_config, **terms), terms
                self._queues[name] = known
        if known[1] != terms:
            raise BadTerms(f"this app has queue {name} already, with other terms: {known[1]}")
        return known[0]

    def close(self) -> None:
        """Close the queues, then stop the broker, if it is ours."""
        with self._lock:
            queues, self._queues = self._queues, {}
            broker, self._broker = self._broker, None
        for queue, _ in queues.values():
            queue.close()
        if broker is not None:
            broker.stop()

    def __enter__(self) -> "App":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
