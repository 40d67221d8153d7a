"""What a whole request is about, for needs that refuse all of it (`requirements.py`).

One function for each kind of resource, and one for each condition that the table has words for. A
handler whose line has other words cannot be registered (`check_understood`). Decides nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millstream.base.errors import Rejected
from millstream.broker.security.acls import CLUSTER_NAME, ResourceType
from millstream.broker.security.requirements import Need, Requirement
from millstream.broker.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Topology,
)

SHARE_PARTITION = 2  # FindCoordinator's type of such a key


class NeedNotUnderstood(Rejected):
    def __init__(self, *, api: str, words: str) -> None:
        super().__init__(f"{api}: nobody knows which requests are {words!r}; it is refused")
        self.api, self.words = api, words


def _transactional_ids(request: Any) -> Iterable[str]:
    name = getattr(request, "v3_and_below_transactional_id", None)
    if name is None:
        name = request.transactional_id
    return () if name is None else (name,)


def _topics(request: Any) -> Iterable[str]:
    """What a member subscribes to; of a streams group, all that its topology uses."""
    if isinstance(request, StreamsGroupHeartbeatRequest):
        return () if request.topology is None else topics_of(request.topology)
    return request.subscribed_topic_names or ()


def topics_of(topology: Topology) -> frozenset[str]:
    """Read, written or made: each is named once."""
    return frozenset(
        name
        for one in topology.subtopologies
        for name in (
            *one.source_topics,
            *one.repartition_sink_topics,
            *(topic.name for topic in one.repartition_source_topics),
            *(topic.name for topic in one.state_changelog_topics),
        )
    )


# By the kind of resource, the names in a request.
NAMES: Mapping[ResourceType, Callable[[Any], Iterable[str]]] = {
    ResourceType.CLUSTER: lambda request: (CLUSTER_NAME,),
    ResourceType.GROUP: lambda request: (request.group_id or "",),
    ResourceType.TOPIC: _topics,
    ResourceType.TRANSACTIONAL_ID: _transactional_ids,
}

# By the words of the table, whether a request of this version is meant.
CONDITIONS: Mapping[str, Callable[[Any, int], bool]] = {
    "": lambda request, version: True,
    "with transactional records": lambda request, version: request.transactional_id is not None,
    "with a transactional id": lambda request, version: request.transactional_id is not None,
    "with two-phase commit": lambda request, version: request.enable2_pc,
    "without a transactional id": lambda request, version: request.transactional_id is None,
    "of a share partition": lambda request, version: request.key_type == SHARE_PARTITION,
    "version 3 and before": lambda request, version: version <= 3,
    "version 4 and later": lambda request, version: version >= 4,
    "of topics that it names": lambda request, version: True,
}


def names_in(request: Any, need: Need, version: int) -> Iterable[str]:
    """What must be allowed for this need to be met; nothing if the request has no such need."""
    if not CONDITIONS[need.when](request, version):
        return ()
    about = need.any_of[-1]
    return NAMES[ResourceType.CLUSTER if about.on_any else about.resource_type](request)


def check_understood(requirement: Requirement) -> None:
    """Raise if a request could not be asked what this line asks for."""
    for need in requirement.of_request:
        if need.when not in CONDITIONS:
            raise NeedNotUnderstood(api=requirement.name, words=need.when)
        if need.any_of[-1].resource_type not in NAMES:
            words = need.any_of[-1].resource_type.name
            raise NeedNotUnderstood(api=requirement.name, words=words)
