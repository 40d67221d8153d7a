"""Topics as the console shows them: a few requests for a page, however many topics there are."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millstream.base.errors import MillstreamError
from millstream.commands.cluster import Cluster, retention_from
from millstream.commands.connecting import (
    Partition,
    PartitionNotFound,
    TopicNotFound,
    client_config,
)
from millstream.commands.console.partition_sizes import partition_sizes
from millstream.commands.console.recent import Recent
from millstream.commands.console.record_reader import Tail, newest_records, records_from
from millstream.commands.console.record_writer import RecordWriter
from millstream.queues.access import access_from
from millstream.queues.broker_health import BrokerHealth, broker_health
from millstream.web.console.facts import (
    ConfigSeen,
    Look,
    NewRecord,
    PartitionSeen,
    TopicDetail,
    TopicSeen,
)

# Of one request: more would be felt by the broker's other clients.
PARTITIONS_ASKED_MAX = 4_000


class ShownTopics:
    def __init__(self, cluster: Callable[[], Cluster], recent: Recent) -> None:
        self._cluster, self._recent = cluster, recent
        self._lock = threading.Lock()
        self._writer: RecordWriter | None = None

    def troubles(self) -> Sequence[str]:
        return self.health().troubles()

    def health(self) -> BrokerHealth:
        access = access_from(client_config(self._cluster().brokers))
        return self._recent.answer("health", lambda: broker_health(access))

    def partitions(self) -> Mapping[str, int]:
        return self._recent.answer("partitions", lambda: self._cluster().partition_counts())

    def seen(self, names: Sequence[str]) -> Sequence[TopicSeen]:
        return self._recent.answer(("topics", *names), lambda: self._seen(names))

    def _seen(self, names: Sequence[str]) -> list[TopicSeen]:
        """Of topics with too many partitions only the number of these is told."""
        counts = self._there(names)
        asked = within_limit(counts)
        available = self._cluster().available(partitions_of(asked))
        sizes = self._sizes(asked)
        return [
            TopicSeen(
                name=name,
                partitions=count,
                **(_totals(name, count, available, sizes) if name in asked else {}),
            )
            for name, count in counts.items()
        ]

    def ends(self, names: Sequence[str]) -> Mapping[str, int]:
        def ask() -> dict[str, int]:
            counts = within_limit(self._there(names))
            ends = self._cluster().ends(partitions_of(counts))
            return {
                name: sum(ends[Partition(name, number)] for number in range(count))
                for name, count in counts.items()
            }

        return self._recent.answer(("ends", *names), ask)

    def detail(self, name: str) -> TopicDetail:
        return self._recent.answer(("topic", name), lambda: self._detail(name))

    def _detail(self, name: str) -> TopicDetail:
        cluster = self._cluster()
        counts = self._require(name)
        available = cluster.available(partitions_of(counts))
        sizes = self._sizes(counts)
        configs = cluster.visible_configs([name]).get(name, {})
        partitions = tuple(
            PartitionSeen(
                number=part.number,
                leader=part.leader,
                replicas=len(part.replicas),
                in_sync=len(part.in_sync),
                start=available[Partition(name, part.number)].start,
                end=available[Partition(name, part.number)].end,
                size_bytes=sizes.get(Partition(name, part.number)),
            )
            for part in cluster.layout(name)
            if Partition(name, part.number) in available
        )
        return TopicDetail(
            name=name,
            partitions=partitions,
            retention=str(retention_from(configs)) if configs else "",
            configs=tuple(
                ConfigSeen(name=key, value=one.value, is_own=one.own)
                for key, one in sorted(configs.items())
            ),
        )

    # --- records

    def newest(self, topic: str, *, partition: int | None, limit: int) -> Look:
        counts = self._require(topic)
        available = self._cluster().available(partitions_of(counts), uncommitted=False)
        chosen = {
            part: within
            for part, within in available.items()
            if partition is None or part.number == partition
        }
        cluster = self._cluster()
        return newest_records(
            cluster.brokers, chosen, limit=limit, newest_ms=cluster.newest_times_ms
        )

    def records(self, topic: str, *, partition: int, offset: int, limit: int) -> Look:
        self._require(topic)
        part = Partition(topic, partition)
        [within] = self._cluster().available([part], uncommitted=False).values()
        return records_from(self._cluster().brokers, part, within, offset=offset, limit=limit)

    def tail(self, topic: str, *, partition: int | None) -> Tail:
        count = self._require(topic)[topic]
        numbers = range(count) if partition is None else [partition]
        if partition is not None and partition >= count:
            raise PartitionNotFound(partition=Partition(topic, partition), count=count)
        return Tail(self._cluster().brokers, [Partition(topic, number) for number in numbers])

    def produce(self, record: NewRecord) -> tuple[int, int]:
        self._require(record.topic)
        with self._lock:
            if self._writer is None:
                self._writer = RecordWriter(self._cluster().brokers)
            place = self._writer.write(record)
        self._recent.forget()
        return place

    # --- the cluster

    def _there(self, names: Iterable[str]) -> dict[str, int]:
        counts = self.partitions()
        return {name: counts[name] for name in names if name in counts}

    def _require(self, name: str) -> dict[str, int]:
        counts = self.partitions()
        if name not in counts:
            raise TopicNotFound(topic=name, known=counts)
        return {name: counts[name]}

    def _sizes(self, counts: Mapping[str, int]) -> dict[Partition, int]:
        """Unknown rather than an error: sizes are not what one comes for."""
        access = access_from(client_config(self._cluster().brokers))
        try:
            return partition_sizes(access, counts)
        except MillstreamError:
            return {}


def partitions_of(counts: Mapping[str, int]) -> list[Partition]:
    return [Partition(name, number) for name, count in counts.items() for number in range(count)]


def within_limit(counts: Mapping[str, int]) -> dict[str, int]:
    """The first topics, up to so many partitions in all."""
    found: dict[str, int] = {}
    total = 0
    for name, count in counts.items():
        if total + count <= PARTITIONS_ASKED_MAX:
            found[name] = count
            total += count
    return found


def _totals(
    name: str, count: int, available: Mapping[Partition, Any], sizes: Mapping[Partition, int]
) -> dict[str, Any]:
    parts = [Partition(name, number) for number in range(count)]
    has_sizes = all(part in sizes for part in parts)
    return {
        "records": sum(available[part].end - available[part].start for part in parts),
        "end": sum(available[part].end for part in parts),
        "size_bytes": sum(sizes[part] for part in parts) if has_sizes else None,
    }
