"""Consumer and share groups, and queues, as the console shows them."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto

from millstream.base.offsets import OffsetRange
from millstream.commands.cluster import Cluster, Group
from millstream.commands.connecting import GroupNotFound, Partition, client_config
from millstream.commands.console.recent import Recent
from millstream.commands.console.shown_cluster import ShownCluster
from millstream.commands.groups import (
    find_group,
    partition_lags,
    places_of,
    share_groups,
    streams_groups,
    topics_of,
)
from millstream.commands.lag import PartitionLag, Place, add_lags, lag_of
from millstream.commands.queues import QueueNotFound
from millstream.queues.access import Access, access_from
from millstream.queues.inspection import QueueSeen, queue_names, see_queue
from millstream.queues.letters import DeadLetter
from millstream.queues.queue import Queue
from millstream.queues.redrive import NoDeadLetterTopic
from millstream.web.console.facts import GroupDetail, GroupMember, GroupPartition, GroupSeen

# To read all letters of a queue takes a consumer, and all its letters.
LETTERS_TIMES = 20.0


class GroupKind(Enum):
    """Each is asked for in words of its own."""

    CONSUMER = auto()
    SHARE = auto()
    STREAMS = auto()


class ShownGroups:
    def __init__(self, cluster: Callable[[], ShownCluster], recent: Recent) -> None:
        self._cluster, self._recent = cluster, recent

    def names(self) -> Sequence[str]:
        return sorted(self._kinds())

    def _kinds(self) -> Mapping[str, GroupKind]:
        def ask() -> dict[str, GroupKind]:
            cluster = self._cluster()
            return (
                dict.fromkeys(cluster.group_names(), GroupKind.CONSUMER)
                | dict.fromkeys(share_groups(cluster).names(), GroupKind.SHARE)
                | dict.fromkeys(streams_groups(cluster).names(), GroupKind.STREAMS)
            )

        return self._recent.answer("groups", ask)

    def seen(self, names: Sequence[str]) -> Sequence[GroupSeen]:
        return self._recent.answer(("groups", *names), lambda: self._seen(names))

    def _seen(self, names: Sequence[str]) -> list[GroupSeen]:
        cluster, kinds = self._cluster(), self._kinds()
        of_kind = {kind: [name for name in names if kinds.get(name) is kind] for kind in GroupKind}
        found = cluster.listed_groups(of_kind[GroupKind.CONSUMER])
        found |= share_groups(cluster).listed(of_kind[GroupKind.SHARE])
        found |= streams_groups(cluster).listed(of_kind[GroupKind.STREAMS])
        places = _places(cluster, found)
        topics = {name: topics_of(group, places[name]) for name, group in found.items()}
        counts = cluster.visible_topics(sorted(set().union(*topics.values())))
        ends = cluster.available(
            Partition(topic, number) for topic, count in counts.items() for number in range(count)
        )
        return [
            _group_seen(found[name], topics[name], places[name], ends)
            for name in names
            if name in found
        ]

    def detail(self, name: str) -> GroupDetail:
        return self._recent.answer(("group", name), lambda: self._detail(name))

    def _detail(self, name: str) -> GroupDetail:
        cluster = self._cluster()
        group = find_group(cluster, name)
        if not group.exists:
            raise GroupNotFound(group=name, known=self.names())
        now_ms = time.time_ns() // 1_000_000
        lags = partition_lags(cluster, group)
        total = add_lags(one.lag for one in lags)
        return GroupDetail(
            seen=GroupSeen(
                name=name,
                state=group.state,
                protocol=group.protocol,
                members=len(group.members),
                topics=tuple(sorted({one.topic for one in lags})),
                lag=total.known,
                uncommitted=total.never_committed,
            ),
            partitions=tuple(_partition(one, now_ms) for one in lags),
            members=tuple(
                GroupMember(
                    id=member.id,
                    client_id=member.client_id,
                    host=member.host,
                    partitions=len(parts),
                )
                for member, parts in group.members.items()
            ),
        )


def _places(
    cluster: ShownCluster, groups: Mapping[str, Group]
) -> dict[str, Mapping[Partition, Place]]:
    """Consumer groups are asked for all at once: there may be many."""
    shown = [group for group in groups.values() if not group.is_hidden]
    committed = cluster.committed_by(group.id for group in shown if not group.is_share)
    places: dict[str, Mapping[Partition, Place]] = {name: {} for name in groups}
    for name, offsets in committed.items():
        places[name] = {part: Place(offset) for part, offset in offsets.items()}
    return places | {one.id: places_of(cluster, one) for one in shown if one.is_share}


def _group_seen(
    group: Group,
    topics: set[str],
    places: Mapping[Partition, Place],
    ends: Mapping[Partition, OffsetRange],
) -> GroupSeen:
    if group.is_hidden:
        return GroupSeen(name=group.id, state=group.state, protocol=group.protocol)
    own = {part: within for part, within in ends.items() if part.topic in topics}
    lag = add_lags(lag_of(places.get(part), within) for part, within in own.items())
    return GroupSeen(
        name=group.id,
        state=group.state,
        protocol=group.protocol,
        members=len(group.members),
        topics=tuple(sorted(topics)),
        lag=lag.known,
        uncommitted=lag.never_committed,
    )


def _partition(one: PartitionLag, now_ms: int) -> GroupPartition:
    return GroupPartition(
        topic=one.topic,
        partition=one.partition,
        committed=one.committed,
        end=one.available.end,
        lag=one.lag,
        risk=one.risk(now_ms=now_ms),
        member=one.member.client_id if one.member else "",
    )


# --- queues -------------------------------------------------------------------------------------


class ShownQueues:
    def __init__(self, cluster: Callable[[], Cluster], recent: Recent) -> None:
        self._cluster, self._recent = cluster, recent

    def names(self) -> Sequence[str]:
        return self._recent.answer("queues", lambda: asyncio.run(queue_names(self._access())))

    def seen(self, name: str) -> QueueSeen:
        def ask() -> QueueSeen:
            found = asyncio.run(see_queue(self._access(), name))
            if found is None:
                raise QueueNotFound(queue=name)
            return found

        return self._recent.answer(("queue", name), ask)

    def dead(self, name: str) -> Sequence[DeadLetter]:
        def ask() -> list[DeadLetter]:
            try:
                letters = self._open(name).dead_letters()
            except NoDeadLetterTopic:
                return []
            waiting = [one for one in letters if one.redriven_ms is None]
            return sorted(waiting, key=lambda one: one.died_ms, reverse=True)

        return self._recent.answer(("dead", name), ask, times=LETTERS_TIMES)

    def redrive(self, name: str, ids: Sequence[str] | None) -> int:
        try:
            done = self._open(name).redrive(None if ids is None else list(ids))
        except NoDeadLetterTopic:
            raise QueueNotFound(queue=name) from None
        finally:
            self._recent.forget()
        return len(done)

    def _open(self, name: str) -> Queue:
        """One that is there: nothing is set up or changed."""
        return Queue(name, client_config(self._cluster().brokers), values="bytes", set_up=False)

    def _access(self) -> Access:
        return access_from(client_config(self._cluster().brokers))
