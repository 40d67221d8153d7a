"""`App`: what an application writes against, and the one place that knows every package.

    app = millstream.App("shop")
    clicks = app.topic("clicks", schema="user STRING, url STRING, at TIMESTAMP", event_time="at")

    @app.view(key="url")
    def clicks_per_url(clicks):
        return clicks.groupBy("url").count()

    app.run()

Its data is under ./shop.millstream, kept by a broker that starts when something first needs one.
MILLSTREAM_BROKERS=... and MILLSTREAM_SPARK=... (or millstream.toml) point the same code at
clusters; then nothing is started.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from millstream.aggregates import AppEvents, CommandWay
from millstream.base.closing import Closing
from millstream.base.declared import (
    BadDeclaration,
    DeclaredTable,
    DeclaredTopic,
    Encoding,
    LatePolicy,
    LossPolicy,
    duration_ms,
)
from millstream.base.near_names import did_you_mean, there_are
from millstream.base.quantity import parse_size
from millstream.captures import Capture, Captures, Tables, debezium_terms
from millstream.client_protection import protection_config
from millstream.declarations import Columns, Duration, columns, declared_table, declared_topic
from millstream.declared_views import DeclaredViews
from millstream.embedded import Broker, BrokerDidNotStart
from millstream.forgetting import Forgetting
from millstream.hosting import Hosting
from millstream.jobs import Jobs
from millstream.processing.jobs.catalog import Catalog
from millstream.processing.jobs.job import (
    Job,
    Output,
    OutputMode,
    ToFunction,
    ToTopic,
    ToView,
    inputs_of,
    require_receipts_name,
)
from millstream.publishing import PUBLISH_SECONDS_MAX, Publisher, make_missing_topics
from millstream.queues.asked import BadTerms, app_name
from millstream.queues.queue import Queue
from millstream.queues.values import ValueKind
from millstream.schemas.declaration import Declared
from millstream.settings import ClientSettings, is_given, load
from millstream.telemetry import set_up_traces

if TYPE_CHECKING:
    from millstream.capture.change_stream import ChangeStream
    from millstream.capture.definition import AtRetainedMax, Format, Load, Mode
    from millstream.eventsourcing.aggregate import Aggregate
    from millstream.eventsourcing.aggregates import Aggregates
    from millstream.eventsourcing.event_store import EventStore
    from millstream.eventsourcing.forgetting import Erasure
    from millstream.eventsourcing.key_store import KeyStore
    from millstream.processing.jobs.progress import JobProgress
    from millstream.schemas.protobuf_message import GivenMessage
    from millstream.views.sql import Parameters
    from millstream.views.store import Row, StoreChoice
    from millstream.views.view import View

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
AggregateT = TypeVar("AggregateT", bound="Aggregate")

# The rows of a batch may pass through the driver, with a gigabyte or so for a million.
VIEW_RECORDS_MAX = 1_000_000
# A level of librdkafka's, as syslog's. What matters is raised where it happens.
LOG_CRITICAL = 2

# Set while `millstream run` loads an application: its own app.run() waits for the command's.
is_loading: ContextVar[bool] = ContextVar("is_loading", default=False)
# Where an embedded broker listens; `millstream up` wants it where clients look for it.
broker_address: ContextVar[tuple[str, int]] = ContextVar("broker_address", default=("127.0.0.1", 0))


class Topic:
    """A topic or table as an application declared it."""

    def __init__(self, declared: DeclaredTopic | DeclaredTable, app: "App") -> None:
        self.name, self.declared = declared.name, declared
        self._app = app

    def __repr__(self) -> str:
        return f"<Topic {self.name} of {self._app.name}>"

    def publish(self, rows: Any, *, timeout: float = PUBLISH_SECONDS_MAX) -> Any:
        """As `App.publish`."""
        return self._app.publish(self.name, rows, timeout=timeout)


class App(Closing):
    """One application: its name, its broker, its topics, jobs, views and queues.

    Thread-safe; close it when you are done.

    A data directory has one broker. To share it between processes, start `millstream broker --data
    shop.millstream` once, and set MILLSTREAM_BROKERS for each.
    """

    def __init__(
        self,
        name: str,
        *,
        data: str | Path | None = None,
        brokers: str | None = None,
        keyring: "str | Path | KeyStore | None" = None,
    ):
        """`keyring`: where the keys to personal data are kept, if not beside the data."""
        self.name = app_name(name)
        set_up_traces(self.name)
        self.data = Path(f"{name}.millstream" if data is None else data)
        self._brokers = brokers
        self._broker_address = broker_address.get()
        self._broker: Broker | None = None
        self._queues: dict[str, tuple[Queue, dict[str, Any]]] = {}
        self._lock = threading.RLock()
        self.catalog = Catalog()
        self._publisher: Publisher | None = None
        self.captures = Captures(
            self.catalog, app=self.name, client_config=lambda: self.client_config
        )
        self.views = DeclaredViews(
            self.catalog,
            app=self.name,
            data=self.data,
            client_config=lambda: self.client_config,
        )
        self.jobs = Jobs(
            self.catalog,
            app=self.name,
            data=self.data,
            views=self.views,
            client_config=lambda: self.client_config,
            owns_broker=lambda: self._broker is not None,
        )

        self.forgetting = Forgetting(
            app=self.name,
            data=self.data,
            keyring=keyring,
            client_config=lambda: self.client_config,
        )
        self.events = AppEvents(
            self.catalog,
            app=self.name,
            data=self.data,
            forgetting=self.forgetting,
            client_config=lambda: self.client_config,
        )
        self.hosted = Hosting(self.events, app=self.name, client_config=lambda: self.client_config)

    def __repr__(self) -> str:
        return f"<App {self.name}, data in {self.data}>"

    @property
    def bootstrap(self) -> str:
        """Where this application's broker is; starts the embedded one if no other is named."""
        return str(self.client_config["bootstrap.servers"])

    @property
    def broker(self) -> Broker | None:
        """The embedded broker, if it was started."""
        return self._broker

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
                host, port = self._broker_address
                broker = Broker(self.data, port, host=host)
                try:
                    self._broker = broker.start()
                    self._make_first(self.catalog.inputs.values())
                except BrokerDidNotStart as error:
                    raise BrokerDidNotStart(reason=f"{error.reason} ({self._advice})") from error
            return self._broker

    def _make_first(self, declared: Iterable[DeclaredTopic | DeclaredTable]) -> None:
        """Before any other client can reach the broker: a topic that a client asks for is made
        with the broker's defaults. What a job writes is made by what its rows are."""
        outputs = [job.output for job in self.catalog.jobs.values()]
        written = {output.topic for output in outputs if isinstance(output, ToTopic)}
        wanted = [
            one for one in declared if isinstance(one, DeclaredTable) or one.name not in written
        ]
        if self._broker is not None and wanted:
            config = {"bootstrap.servers": self._broker.bootstrap, "log_level": LOG_CRITICAL}
            make_missing_topics(config, wanted)

    @property
    def _advice(self) -> str:
        return (
            f"if a broker with {self.data} runs already: say where it is with MILLSTREAM_BROKERS, "
            "such as 127.0.0.1:9092; if another process has started its own: run "
            f"`millstream broker --data {self.data}` once, and set it for each"
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

    # --- topics and tables --------------------------------------------------------------------

    def topic(
        self,
        name: str,
        *,
        schema: Declared | None = None,
        key: Columns | None = None,
        event_time: str | None = None,
        lateness: Duration | None = None,
        late: LatePolicy | None = None,
        keep: Duration | None = None,
        ahead: Duration | None = None,
        idle: Duration | None = None,
        encoding: Encoding = "json",
        message: "GivenMessage | None" = None,
        on_loss: LossPolicy = "fail",
        archive: str | Path | None = None,
        partitions: int | None = None,
    ) -> "Topic":
        """Declare a topic of events. Durations are words ("10 minutes") or seconds.

        `schema`: Spark's DDL, a dataclass or a pydantic model; without it values stay bytes.
        `key`: the columns of a record's key. `event_time`: the column that says when an event
        happened; `lateness`: how long to wait for events; `late`: what becomes of later ones,
        drop, quarantine or correct; `keep`: how long results are corrected; `ahead`: how far
        ahead of its record an event may be; `idle`: after which silence its clock goes on, or
        "never". `encoding`: json, avro, protobuf or raw; `message`: of Protobuf, a generated
        class, or a file of descriptors with a name in it, which is then the schema. `on_loss`:
        fail or skip, when retention took records that a job had still to read. `archive`: where
        `millstream topics archive` keeps them, so that a job, or a rebuild, begins with those.
        `partitions`: of the topic, if it is made now.
        """
        declared = declared_topic(
            name,
            schema=schema,
            key=key,
            event_time=event_time,
            encoding=encoding,
            message=message,
            on_loss=on_loss,
            archive=archive,
            partitions=partitions,
            lateness=lateness,
            late=late,
            keep=keep,
            ahead=ahead,
            idle=idle,
        )
        self.catalog.declare(declared, idles_alone=idle is not None)
        self._make_first([declared])
        return Topic(declared, self)

    def table(
        self,
        name: str,
        *,
        schema: Declared | None = None,
        key: Columns,
        version_time: str | None = None,
        encoding: Encoding = "json",
        message: "GivenMessage | None" = None,
        partitions: int | None = None,
        debezium: Mapping[str, Any] | None = None,
    ) -> "Topic":
        """Declare a topic of changes as a table: the last value of each key is its row.

        `version_time`: the column that says from when on a row holds, for as-of joins. `debezium`:
        how a connector of Debezium writes values (encoding="debezium"), if not by its defaults:
        {"time": "connect", "decimal": "string", "units": {"created_at": "ms"}}.
        """
        declared = declared_table(
            name,
            schema=schema,
            key=key,
            version_time=version_time,
            encoding=encoding,
            message=message,
            partitions=partitions,
            debezium=debezium,
        )
        self.catalog.declare(declared)
        self._make_first([declared])
        return Topic(declared, self)

    def publish(self, topic: str, rows: Any, *, timeout: float = PUBLISH_SECONDS_MAX) -> Any:
        """Write a row, or a list of rows, into a declared topic; durable when this returns.

        Gives a receipt for each row: where it is in the topic. `timeout`: how many seconds it waits
        at most, for a broker that is away or slow; then it raises PublishTimedOut, and rows that
        were sent may still be written.
        """
        if topic in self.catalog.captured:
            raise BadDeclaration(
                f"{topic} is captured from a database: change its rows there, and they come here"
            )
        if topic not in self.catalog.inputs:
            known = self.catalog.inputs
            told = f"{topic!r} is no topic of this app (there are: {there_are(known)})"
            raise BadDeclaration(f"{told}. {did_you_mean(topic, known)}".rstrip(". "))
        with self._lock:
            if self._publisher is None:
                self._publisher = Publisher(
                    self.client_config, schemas_topic=load(ClientSettings).schemas_topic
                )
        return self._publisher.publish(self.catalog.inputs[topic], rows, timeout=timeout)

    # --- databases ----------------------------------------------------------------------------

    def capture(
        self,
        url: str,
        *,
        tables: Tables,
        name: str | None = None,
        mode: "Mode" = "log",
        load: "Load" = "all",
        outbox: str | None = None,
        partitions: int | None = None,
        boundaries: bool = True,
        format: "Format" = "millstream",
        debezium: Mapping[str, Any] | None = None,
        retained_max: str | int | None = None,
        at_retained_max: "AtRetainedMax" = "warn",
    ) -> Capture:
        """Follow tables of a database: each is then an input of jobs by its name, as a table.

        `url`: postgresql://, mysql://, mariadb://, sqlite:///; ${SHOP_PASSWORD} in it is looked up
        in the environment. `tables`: their names; {"orders": "sales.orders"} where one is to be
        called otherwise. `name`: of the capture and its topics, if not the database's. `mode`: log,
        or triggers where the log may not be read. `load`: all, or none of the rows that are there
        already. `outbox`: a table whose rows become events. `partitions`: of the topics that are
        made. `boundaries`: whether a topic tells where each transaction begins and ends. `format`:
        of the records, ours or "debezium", for consumers of Debezium's; with `debezium` its modes:
        {"time": "connect", "decimal": "string", "schemas": True, "truncates": True}.
        `retained_max`: how much of its log the database may keep for this, "10GiB", and
        `at_retained_max`: what is done then, warn, stop or drop.
        """
        limit = parse_size(retained_max) if isinstance(retained_max, str) else retained_max
        return self.captures.declare(
            url,
            tables=tables,
            name=name,
            mode=mode,
            load=load,
            outbox=outbox,
            partitions=partitions,
            has_boundaries=boundaries,
            format=format,
            **debezium_terms(debezium),
            retained_bytes_max=limit,
            at_retained_max=at_retained_max,
        )

    def changes(
        self,
        table: str,
        *,
        since: str | None = None,
        follow: bool = True,
        timeout: float | None = None,
    ) -> "ChangeStream":
        """Every change of a captured table, one by one: `for change in app.changes("orders")`.

        `since`: the token of the change to go on after; "now" for those to come; without it from
        the first row on. It waits for more, unless `follow` is False; `timeout`: it ends when none
        came for so many seconds. Close it, or use it in a `with` block.
        """
        return self.captures.changes(table, since=since, follow=follow, timeout_s=timeout)

    # --- events -------------------------------------------------------------------------------

    def aggregates(
        self,
        kind: "type[AggregateT]",
        *,
        partitions: int | None = None,
        snapshot_every: int | None = None,
        commands: CommandWay | None = None,
    ) -> "Aggregates[AggregateT]":
        """The aggregates of a class, by id: `app.aggregates(Account)["alice"].deposit(100)`.

        The same object each time. `partitions`: of the topic of events, if it is made now; all
        aggregates of the app share it. `snapshot_every`: events between two snapshots of a stream.
        `commands`: "topic" to have all of them decided by a process that hosts them (`run`,
        `host`), and not by this one.
        """
        return self.events.declare(
            kind, partitions=partitions, snapshot_every=snapshot_every, commands=commands
        )

    def reaction(self, *events: type, name: str | None = None) -> Callable[[FunctionT], FunctionT]:
        """Register a function of (event) or (event, cause) that yields commands for others:
        `yield wallets.asking[event.customer].charge(event.price)`.

        It runs for each event of these classes in the processes that host the app's commands; the
        commands have ids that come of the event's, so that none counts twice.
        """

        def register(function: FunctionT) -> FunctionT:
            from millstream.eventsourcing.reaction import reaction_of

            self.hosted.declare(reaction_of(function, events, name))
            return function

        return register

    def host(self) -> None:
        """Decide commands from their topic, and run reactions, until Ctrl-C or `stop`."""
        if is_loading.get():
            return
        with self.hosting():
            self.hosted.wait()

    @contextlib.contextmanager
    def hosting(self) -> Iterator[None]:
        """As `host`, while the block runs."""
        self.hosted.require()
        with self.hosted.running():
            yield

    def event_store(self, *, partitions: int | None = None) -> "EventStore":
        """The store of this app's events: streams, queries, subscriptions, without aggregates."""
        self.events.require_partitions(partitions)
        return self.events.store()

    def acting(
        self,
        *,
        by: str | None = None,
        why: str | None = None,
        causation: str | None = None,
        correlation: str | None = None,
    ) -> "AbstractContextManager[None]":
        """Who acts and why, kept with the events of all commands in the block."""
        from millstream.eventsourcing.acting import acting

        return acting(by=by, why=why, causation=causation, correlation=correlation)

    # --- personal data ------------------------------------------------------------------------

    def forget(self, subject: str, *, why: str | None = None, by: str | None = None) -> "Erasure":
        """Make all personal data of a subject unreadable for good, wherever it was copied to.

        Its key is destroyed, so that log, snapshots, views, feeds, archives and backups hold what
        nobody can open. Nothing personal is stored for it until `consent`. Gives a report.
        """
        return self.forgetting.forget([subject], by=by, why=why)[0]

    def consent(self, subject: str, *, why: str | None = None, by: str | None = None) -> bool:
        """A subject that was forgotten may be stored again; what was forgotten stays so.

        Whether it had been forgotten.
        """
        return self.forgetting.consent(subject, by=by, why=why)

    def reveal(self, value: Any, *, fields: Collection[str] | None = None) -> Any:
        """A value, row or list of rows with all that is sealed in it opened, or FORGOTTEN.

        `fields`: only in these fields of a row. Name them where others may write to the row: who
        has seen a sealed text could have put it into another field, to have it opened there.
        """
        return self.forgetting.reveal(value, fields=fields)

    # --- jobs ---------------------------------------------------------------------------------

    def job(
        self, *, to: str, key: Columns | None = None, **terms: Any
    ) -> Callable[[FunctionT], FunctionT]:
        """Register a function whose rows are written into topic `to`, exactly once.

        Its parameters name topics and tables; `inputs={"clicks": "web-clicks"}` names what a
        parameter cannot. Other terms are those of `view`.
        """
        return self._registering(ToTopic(topic=to, key=columns(key)), **terms)

    @overload
    def view(self, view: str, /) -> "View": ...

    @overload
    def view(
        self,
        view: None = None,
        /,
        *,
        key: Columns,
        store: "StoreChoice | None" = None,
        history: Duration | None = None,
        **terms: Any,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def view(
        self,
        view: str | None = None,
        /,
        *,
        key: Columns | None = None,
        store: "StoreChoice | None" = None,
        history: Duration | None = None,
        **terms: Any,
    ) -> Any:
        """Read the view of this name; or, with `key`, register a function whose rows it keeps.

        `store`: where it is kept, stores.Postgres("postgresql://...") and the like, if not in
        SQLite. `history`: how far back it can be read, "7 days".
        `name`: of the job, if not the function's. `inputs`: what its parameters stand for, if not
        what they are called. `every`: the least time between two batches. `records_max`: what a
        batch takes from each topic at most, a million if not said. `mode`: Spark's output mode, if
        not what the plan needs. `spark`: settings of Spark's, for this job alone.
        """
        if view is not None:
            return self._opened(view)
        if not columns(key):
            raise BadDeclaration("app.view: give key=, the columns that name a row")
        kept_ms = None if history is None else duration_ms(history, what="history")
        output = ToView(key=columns(key), store=store, history_ms=kept_ms)
        return self._registering(output, **{"records_max": VIEW_RECORDS_MAX} | terms)

    def _opened(self, view: str) -> "View":
        from millstream.views.view import View

        store = self.views.store(view)
        return View(view, store.reader(), place=store.place, job=lambda: self.jobs.told(view))

    def sql(self, text: str, params: "Parameters" = ()) -> "list[Row]":
        """One SELECT over views of this app, each a table of its name, in DuckDB's SQL.

        Each view is read as of one batch of its own job.
        """
        from millstream.views.sql import answer_rows, named_in

        tables = {}
        for name in named_in(text, self.views.names):
            with self._opened(name) as view:
                tables[name] = view.arrow()
        return answer_rows(text, params, tables)

    def sink(
        self, write: Callable[..., None], *, external: bool = False, **terms: Any
    ) -> Callable[[FunctionT], FunctionT]:
        """Register a function whose rows are handed to `write(rows, receipt)`, batch by batch.

        A batch can come twice. Who keeps the receipt with the rows knows it again. `external`: what
        `write` does cannot be taken back (mails, payments): a rebuild does not repeat it.
        """
        return self._registering(ToFunction(write=write, is_external=external), **terms)

    def _registering(
        self,
        output: Output,
        *,
        name: str | None = None,
        inputs: Mapping[str, str] | None = None,
        every: Duration | None = None,
        records_max: int | None = None,
        mode: OutputMode | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> Callable[[FunctionT], FunctionT]:
        trigger_ms = None if every is None else duration_ms(every, what="every")

        def register(function: FunctionT) -> FunctionT:
            job = Job(
                name=name or function.__name__,
                function=function,
                inputs=inputs_of(function, inputs),
                output=output,
                trigger_ms=trigger_ms,
                records_max=records_max,
                output_mode=mode,
                settings=spark or {},
            )
            require_receipts_name(self.name, job.name)
            self.catalog.add(job)
            return function

        return register

    def run(
        self,
        *,
        once: bool = False,
        only: Iterable[str] | None = None,
        rebuild: Iterable[str] = (),
        repeat_side_effects: bool = False,
    ) -> "list[JobProgress]":
        """Run the captures and jobs, and host commands, until Ctrl-C; with `once`, run the
        captures and jobs over what is there now.

        A job that fails for good does not stop the others; when all have ended, JobsFailed names
        it. `only`: the names of the jobs to run. `rebuild`: those that start over; those that write
        into topics, or into a sink that is external, only with `repeat_side_effects`.
        """
        if is_loading.get():
            return []
        only, rebuild = None if only is None else list(only), list(rebuild)
        self.jobs.make_topics(only, rebuild=rebuild, repeat_side_effects=repeat_side_effects)
        with self.captures.running(once=once), self.hosted_unless(once=once):
            if self.captures.declared and not self.catalog.jobs:
                self.captures.wait()
                return []
            if self.hosted.is_needed and not self.catalog.jobs and not once:
                self.hosted.wait()
                return []
            if self.captures.is_stopped:  # while they caught up
                return []
            return self.jobs.run(
                once=once, only=only, rebuild=rebuild, repeat_side_effects=repeat_side_effects
            )

    def hosted_unless(self, *, once: bool) -> "contextlib.AbstractContextManager[object]":
        """Commands are hosted beside jobs that go on, not beside those that end."""
        return contextlib.nullcontext() if once else self.hosted.running()

    def progress(self) -> "list[JobProgress]":
        """How the jobs get on, one for each that runs."""
        return self.jobs.progress()

    def stop(self) -> None:
        """End the jobs, captures and hosts that run, from any thread."""
        self.jobs.stop()
        self.captures.stop()
        self.hosted.stop()

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop jobs and captures, close queues, stop Spark and the broker if they are ours."""
        self.jobs.close()
        self.captures.stop()
        self.hosted.stop()
        self.events.close()
        self.forgetting.close()
        with self._lock:
            queues, self._queues = self._queues, {}
            publisher, self._publisher = self._publisher, None
            broker, self._broker = self._broker, None
        if publisher is not None:
            publisher.close()
        for queue, _ in queues.values():
            queue.close()
        if broker is not None:
            broker.stop()
