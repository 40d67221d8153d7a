"""An App and its broker, as the console asks for them. Writes nothing but what somebody typed."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from millstream.app import App
from millstream.base.clock import Clock, system_clock
from millstream.base.declared import DeclaredTopic
from millstream.base.errors import MillstreamError
from millstream.capture.captures_topic import FollowedCaptures
from millstream.capture.position_record import TOPIC as CAPTURES_TOPIC
from millstream.capture.position_record import CaptureRecords
from millstream.capture.status import status_from_json
from millstream.captures import Capture, named
from millstream.commands.capture_lines import refusal_of, state_of
from millstream.commands.console.recent import Recent
from millstream.commands.console.shown_aggregates import ShownAggregates
from millstream.commands.console.shown_cluster import AnsweringCluster, ShownCluster
from millstream.commands.console.shown_groups import ShownGroups, ShownQueues
from millstream.commands.console.shown_lags import MeasuredLags
from millstream.commands.console.shown_topics import ShownTopics
from millstream.jobs import JOBS_DIRECTORY
from millstream.processing.jobs.job import Job, ToTopic, ToView
from millstream.processing.jobs.job_status import JobStatus
from millstream.processing.jobs.lag import Lag
from millstream.queues.broker_health import BrokerHealth
from millstream.setting_kinds import parse_address
from millstream.web.console.facts import CaptureSeen, Flow, JobSeen, Node
from millstream.web.private_paths import without_code_directories


class ShownApp:
    """Thread-safe. Asks the broker when a page does, and not before."""

    def __init__(self, app: App, *, now_ms: Clock = system_clock) -> None:
        self._app, self._now_ms = app, now_ms
        self._recent = Recent()
        cluster = AnsweringCluster(self._open_cluster)
        self.topics = ShownTopics(cluster, self._recent)
        self.groups = ShownGroups(cluster, self._recent)
        self.queues = ShownQueues(cluster, self._recent)
        self.declared = ShownDeclarations(app, self.topics, self._recent, now_ms)
        self.aggregates = ShownAggregates(app.events)

    def _open_cluster(self) -> ShownCluster:
        addresses = self._app.bootstrap.split(",")
        return ShownCluster(tuple(parse_address(one) for one in addresses))

    def close(self) -> None:
        self.declared.close()


class ShownDeclarations:
    """What the application says of itself, and how that gets on."""

    def __init__(self, app: App, topics: ShownTopics, recent: Recent, now_ms: Clock) -> None:
        self._app, self._topics, self._recent, self._now_ms = app, topics, recent, now_ms
        self._lock = threading.Lock()
        self._followed: FollowedCaptures | None = None
        self._places: dict[str, str] = {}
        self._last_records: Mapping[str, CaptureRecords] = {}
        jobs = app.data.absolute() / JOBS_DIRECTORY
        self._lags = MeasuredLags(jobs, lambda: app.client_config, now_ms)

    def flow(self) -> Flow:
        """As far as it is declared, also while no broker answers."""
        records = self._records_if_told()
        nodes: dict[Node, None] = {}
        edges: dict[tuple[Node, Node], None] = {}
        for capture in self._app.captures.declared.values():
            source = Node("capture", capture.name)
            for name in capture.names:
                edges[source, self._captured_topic(name, capture, records)] = None
        for kind in self._app.events.declared:
            edges[Node("aggregate", kind), Node("topic", self._app.events.topic)] = None
        for name in self._app.catalog.inputs:
            nodes[Node("topic", name)] = None
        for job in self._app.catalog.jobs.values():
            for one in self._inputs(job, records):
                edges[one, Node("job", job.name)] = None
            edges[Node("job", job.name), _target(job)] = None
        nodes |= {node: None for edge in edges for node in edge}
        return Flow(nodes=tuple(nodes), edges=tuple(edges))

    def _inputs(self, job: Job, records: Mapping[str, CaptureRecords]) -> Iterator[Node]:
        """What a name stands for is found in the order of the catalog."""
        catalog = self._app.catalog
        for name in dict.fromkeys(job.inputs.values()):
            if name in catalog.inputs:
                yield Node("topic", name)
            elif (capture := self._capture_of(name)) is not None:
                yield self._captured_topic(name, capture, records)
            elif name in catalog.provided and name not in catalog.views:
                yield Node("topic", self._app.events.topic)
            else:
                yield Node("view", name)

    def _capture_of(self, table: str) -> Capture | None:
        there = self._app.captures.declared.values()
        return next((one for one in there if table in one.names), None)

    def _captured_topic(
        self, name: str, capture: Capture, records: Mapping[str, CaptureRecords]
    ) -> Node:
        """By its table's name until the capture has told the topic's."""
        kept = records.get(capture.name, CaptureRecords()).tables.values()
        found = named(capture.names[name], kept, capture.definition.tables)
        return Node("topic", name if found is None else found.topic)

    def captures(self) -> Sequence[CaptureSeen]:
        """Those that are declared here, and those that commands have added."""
        records = self._capture_records()
        declared = self._app.captures.declared
        names = sorted({*declared, *(name for name in records if records[name].definition)})
        health = self._health_if_told() if names else BrokerHealth()
        return [
            self._capture_seen(name, records.get(name, CaptureRecords()), health) for name in names
        ]

    def _health_if_told(self) -> BrokerHealth:
        try:
            return self._topics.health()
        except MillstreamError:
            return BrokerHealth()

    def _capture_seen(
        self, name: str, records: CaptureRecords, health: BrokerHealth
    ) -> CaptureSeen:
        declared = self._app.captures.declared.get(name)
        definition = records.definition or (declared.definition if declared else None)
        assert definition is not None  # it is declared, or defined
        status = None if records.status is None else status_from_json(records.status)
        now_ms = self._now_ms()
        known = replace(records, definition=definition)
        return CaptureSeen(
            name=name,
            url=definition.url,
            mode=definition.mode,
            tables=tuple(definition.tables),
            topics=tuple(sorted({one.topic for one in records.tables.values()})),
            status=status,
            is_stale=status is not None and status.is_stale(now_ms=now_ms),
            is_paused=records.control.is_paused,
            refusal=refusal_of(known, state_of(records, now_ms=now_ms), health),
        )

    def jobs(self) -> Sequence[JobSeen]:
        records = self._records_if_told()
        return [self._job_seen(job, records) for job in self._app.catalog.jobs.values()]

    def _job_seen(self, job: Job, records: Mapping[str, CaptureRecords]) -> JobSeen:
        status = _with_short_error(self._app.jobs.status(job.name))
        seen = JobSeen(
            name=job.name,
            inputs=tuple(self._inputs(job, records)),
            output=str(job.output),
            target=_target(job),
            place=job.place.rpartition("/")[2],
            status=status,
            is_stale=status is not None and status.is_stale(now_ms=self._now_ms()),
            trigger_ms=job.trigger_ms,
            corrects_ms=self._corrects_ms(job),
        )
        return seen if status is None or seen.tells_lag else replace(seen, measured=self._lag(seen))

    def _lag(self, job: JobSeen) -> Lag:
        """Not known while no broker answers: one page waits for that once, not for each job."""
        try:
            there = self._topics.partitions()
        except MillstreamError:
            return Lag()
        read = [one.name for one in job.inputs if one.kind == "topic" and one.name in there]
        return self._lags.of(job.name, read)

    def _corrects_ms(self, job: Job) -> int:
        """How much farther back than lateness its watermark is: the slowest source decides."""
        declared = (self._app.catalog.inputs.get(name) for name in job.inputs.values())
        times = [one.event_time for one in declared if isinstance(one, DeclaredTopic)]
        return max(
            (time.watermark_delay_ms - time.lateness_ms for time in times if time is not None),
            default=0,
        )

    def restart(self, job: str) -> None:
        self._app.jobs.restart(job)

    def view_place(self, view: str) -> str:
        if view not in self._places:
            self._places[view] = str(self._app.views.store(view).place)
        return self._places[view]

    # --- captures

    def _records_if_told(self) -> Mapping[str, CaptureRecords]:
        """For a picture those do that were there last; who asks for captures is told why not."""
        with contextlib.suppress(MillstreamError):
            self._last_records = self._capture_records()
        return self._last_records

    def _capture_records(self) -> Mapping[str, CaptureRecords]:
        """Nothing where no capture was ever defined: then there is no topic to follow."""
        return self._recent.answer("captures", self._followed_records)

    def _followed_records(self) -> Mapping[str, CaptureRecords]:
        if CAPTURES_TOPIC not in self._topics.partitions():
            return {}
        with self._lock:
            if self._followed is None:
                self._followed = FollowedCaptures(dict(self._app.client_config))
            try:
                return dict(self._followed.look().defined())
            except MillstreamError:
                self._end_following()
                raise

    def _end_following(self) -> None:
        if self._followed is not None:
            with contextlib.suppress(MillstreamError):
                self._followed.close()
            self._followed = None

    def close(self) -> None:
        with self._lock:
            self._end_following()


def _with_short_error(status: JobStatus | None) -> JobStatus | None:
    """Where the application's code is on the server's disk helps nobody to read an error."""
    if status is None or not status.progress.error:
        return status
    error = without_code_directories(status.progress.error)
    return replace(status, progress=replace(status.progress, error=error))


def _target(job: Job) -> Node:
    match job.output:
        case ToView():
            return Node("view", job.name)
        case ToTopic(topic=topic):
            return Node("topic", topic)
    return Node("sink", str(job.output).removeprefix("function "))
