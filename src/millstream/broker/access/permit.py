"""One API as one caller may use it: every name that a request brings is checked here first.

What the API needs is its line in `security/requirements.py`, who may do it is decided by the rules
(`access_control.py`). A name that has passed is remembered until a rule changes, so that Produce
and Fetch pay a lookup in a set. Hands out nothing; `handlers.Call` does, after a check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.base.errors import Rejected
from millstream.broker.security.acls import (
    CLUSTER_NAME,
    PRIVATE,
    Caller,
    Decision,
    Operation,
    Resource,
    ResourceType,
)
from millstream.broker.security.named_in_requests import names_in
from millstream.broker.security.requirements import (
    APIS_OF_PRIVATE_TOPICS,
    PRIVATE_TOPICS,
    Grant,
    Need,
    NoRequirement,
    Requirement,
)
from millstream.broker.wire import ErrorCode

if TYPE_CHECKING:
    from millstream.broker.access.access_control import AccessControl
    from millstream.broker.access.guarded_topics import GuardedTopics

# Clients bring names that do not exist, too: they must not fill the memory.
PASSED_MAX = 10_000
PASSED_LENGTH_MAX = 255  # as topics; group ids may be longer, and are asked for every time


class AccessDenied(Rejected):
    """The caller may not do this. Says nothing about whether the resource exists."""

    def __init__(self, *, resource: Resource, api: str) -> None:
        kind = resource.type.name.lower().replace("_", " ")
        # Without its name: a client that came by an id may not know it.
        super().__init__(f"{api}: you are not authorized for this {kind}")
        self.resource, self.api = resource, api


class TopicDenied(AccessDenied):
    pass


class GroupDenied(AccessDenied):
    pass


class TransactionalIdDenied(AccessDenied):
    pass


class ClusterDenied(AccessDenied):
    pass


DENIED = {
    ResourceType.TOPIC: TopicDenied,
    ResourceType.GROUP: GroupDenied,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdDenied,
    ResourceType.CLUSTER: ClusterDenied,
}


class NamePermit:
    """The names of one type of resource, as one API may use them."""

    __slots__ = ("_epoch", "_passed", "_permit", "_to_see", "_to_use", "_type")

    def __init__(self, permit: Permit, resource_type: ResourceType) -> None:
        self._permit = permit
        self._type = resource_type
        self._to_use = permit.requirement.to_use(resource_type)
        self._to_see = permit.requirement.to_see(resource_type)
        self._passed: set[str] = set()
        self._epoch = permit.control.epoch

    def check(self, name: str) -> None:
        """Raise unless the caller may do to it what this API does."""
        if name in self._passed and self._epoch == self._permit.control.epoch:
            return
        if self._to_use is None:
            raise NoRequirement(api_key=self._permit.api_key)
        if self._is_private(name):
            self._permit.note(self._to_use, name, PRIVATE)
        elif self._permit.meets(self._to_use, name, is_noted=True):
            self._remember(name)
            return
        resource = Resource(self._type, name)
        raise DENIED[self._type](resource=resource, api=self._permit.requirement.name)

    def shows(self, name: str) -> bool:
        """Whether it may be in a list that the caller gets."""
        if self._to_see is None:
            raise NoRequirement(api_key=self._permit.api_key)
        return not self._is_private(name) and self._permit.meets(self._to_see, name)

    def _is_private(self, name: str) -> bool:
        is_topic = self._type is ResourceType.TOPIC
        return is_topic and name in PRIVATE_TOPICS and not self._permit.knows_private_topics

    def _remember(self, name: str) -> None:
        if len(name) > PASSED_LENGTH_MAX:
            return
        if self._epoch != self._permit.control.epoch or len(self._passed) >= PASSED_MAX:
            self._passed.clear()
            self._epoch = self._permit.control.epoch
        self._passed.add(name)


class Permit:
    """Owned by the AccessControl that made it, which keeps it for the next request."""

    __slots__ = (
        "api_key",
        "caller",
        "control",
        "groups",
        "guarded_topics",
        "knows_private_topics",
        "requirement",
        "topics",
        "transactional_ids",
    )

    def __init__(
        self, control: AccessControl, api_key: int, requirement: Requirement, caller: Caller
    ) -> None:
        self.control = control
        self.api_key = api_key
        self.requirement = requirement
        self.caller = caller
        self.knows_private_topics = api_key in APIS_OF_PRIVATE_TOPICS
        self.topics = NamePermit(self, ResourceType.TOPIC)
        self.groups = NamePermit(self, ResourceType.GROUP)
        self.transactional_ids = NamePermit(self, ResourceType.TRANSACTIONAL_ID)
        # What `Call.topics` hands out: made with the first request, kept for the next.
        self.guarded_topics: GuardedTopics | None = None

    # --- what a request needs -----------------------------------------------------------------

    def refusal_of(self, request: Any, needs: tuple[Need, ...], version: int) -> ErrorCode | None:
        """Why the whole request must be refused."""
        for need in needs:
            for name in names_in(request, need, version):
                if not self.meets(need, name, is_noted=True):
                    return need.error
        return None

    def check_cluster(self) -> None:
        """Raise unless the caller may do to the cluster what this API does."""
        need = self.requirement.to_use(ResourceType.CLUSTER)
        self._check(need, Resource(ResourceType.CLUSTER, CLUSTER_NAME))

    def check_new_topic(self, name: str) -> None:
        """Raise unless the caller may create it."""
        self._check(self.requirement.to_create, Resource(ResourceType.TOPIC, name))

    def _check(self, need: Need | None, resource: Resource) -> None:
        if need is None:
            raise NoRequirement(api_key=self.api_key)
        if not self.meets(need, resource.name, is_noted=True):
            raise DENIED[resource.type](resource=resource, api=self.requirement.name)

    # --- what the rules say -------------------------------------------------------------------

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self.control.is_allowed(self.caller, operation, Resource(resource_type, name))

    def operations_on(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """`authorized_operations`: one bit for each (KIP-430)."""
        return self.control.authorized_operations(self.caller, Resource(resource_type, name))

    def meets(self, need: Need, name: str, *, is_noted: bool = False) -> bool:
        """Whether one of the grants is there; `is_noted`: if not, that goes into the audit."""
        if any(self._has(grant, name) for grant in need.any_of):
            return True
        if is_noted:
            self.note(need, name)
        return False

    def note(self, need: Need, name: str, decision: Decision | None = None) -> None:
        """The last grant is what a denial speaks of."""
        last, api = need.any_of[-1], self.requirement.name
        self.control.note_denial(
            self.caller, last.operation, _resource(last, name), api=api, decision=decision
        )

    def _has(self, grant: Grant, name: str) -> bool:
        if grant.on_any:
            return self.control.is_allowed_on_any(self.caller, grant.operation, grant.resource_type)
        return self.control.is_allowed(self.caller, grant.operation, _resource(grant, name))


def _resource(grant: Grant, name: str) -> Resource:
    is_cluster = grant.resource_type is ResourceType.CLUSTER
    return Resource(grant.resource_type, CLUSTER_NAME if is_cluster else name)
