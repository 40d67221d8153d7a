"""Who may do what on this broker: the rules, kept in the log, and the audit of what they refused.

The decision itself is pure (`security/acls.py`). Here the rules are read at the start, changed
durably, and asked; without authorization everybody may do everything, but nobody may read a
private topic. Knows no request; `permit.py` says what an API needs.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence

from millstream.base.clock import Clock
from millstream.broker.access.permit import Permit
from millstream.broker.durable_state import DurableState
from millstream.broker.security.acls import (
    ACL_KEY,
    OPERATIONS_OF,
    AclBinding,
    Acls,
    Caller,
    Decision,
    Operation,
    Resource,
    ResourceType,
    acl_record,
    read_acl,
)
from millstream.broker.security.denials import Denials
from millstream.broker.security.requirements import Requirement

logger = logging.getLogger(__name__)
# What was refused to whom, and who changed what: for people who look for it alone.
audit = logging.getLogger("millstream.audit")

# Callers come and go with their addresses.
PERMITS_MAX = 10_000


class AccessControl:
    """All rules. Owned by the broker's loop; a read in a thread may ask it too."""

    def __init__(
        self,
        state: DurableState,
        *,
        is_on: bool,
        super_users: Sequence[str],
        is_allowed_without_rule: bool,
        now_ms: Clock,
    ) -> None:
        self.is_on = is_on
        self.acls = Acls(
            (read_acl(key, value) for key, value in state if key.startswith(ACL_KEY)),
            super_users=super_users,
            is_allowed_without_rule=is_allowed_without_rule,
        )
        # Which rules these are: what was decided by an earlier number must be decided anew.
        self.epoch = 0
        self.denials = Denials()
        if is_on and not super_users and not len(self.acls) and not is_allowed_without_rule:
            logger.warning(
                "nobody may do anything: there is no access rule, and nobody to write one; name "
                "somebody in super_users"
            )
        self._state = state
        self._now_ms = now_ms
        self._permits: dict[tuple[int, str, str], Permit] = {}
        # One change at a time: each starts from the rules that the one before it has left.
        self.turn = asyncio.Lock()
        self._noting = threading.Lock()

    def permit(self, api_key: int, requirement: Requirement, principal: str, host: str) -> Permit:
        """What a caller may do by an API."""
        key = (api_key, principal, host)
        permit = self._permits.get(key)
        if permit is None:
            if len(self._permits) >= PERMITS_MAX:
                self._permits.clear()
            permit = Permit(self, api_key, requirement, Caller(principal, host))
            self._permits[key] = permit
        return permit

    # --- decide -------------------------------------------------------------------------------

    def is_allowed(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return not self.is_on or self.acls.is_allowed(caller, operation, resource)

    def is_allowed_on_any(
        self, caller: Caller, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return not self.is_on or self.acls.is_allowed_on_any(caller, operation, resource_type)

    def authorized_operations(self, caller: Caller, resource: Resource) -> int:
        """Without authorization: all that can be done to it, as Kafka has it."""
        if not self.is_on:
            return sum(1 << operation for operation in OPERATIONS_OF[resource.type])
        return self.acls.authorized_operations(caller, resource)

    def note_denial(
        self,
        caller: Caller,
        operation: Operation,
        resource: Resource,
        *,
        api: str,
        decision: Decision | None = None,
    ) -> None:
        decision = decision or self.acls.decide(caller, operation, resource)
        with self._noting:
            line = self.denials.note(
                caller, operation, resource, decision, api=api, now_ms=self._now_ms()
            )
        if line is not None:
            audit.warning("%s", line)

    # --- change -------------------------------------------------------------------------------

    async def add(self, bindings: Sequence[AclBinding], *, by: Caller) -> None:
        """New rules; they count, and this returns, once they are durable. Hold `turn`."""
        if bindings:
            records = [acl_record(binding) for binding in bindings]
            await self._state.put(records, now_ms=self._now_ms())
            for binding in bindings:
                self.acls.add(binding)
            self._changed("added", bindings, by)

    async def remove(self, bindings: Sequence[AclBinding], *, by: Caller) -> None:
        """Rules that shall count no more; returns when nothing can bring them back."""
        if bindings:
            records = [(acl_record(binding)[0], None) for binding in bindings]
            await self._state.put_deletion(records, now_ms=self._now_ms())
            for binding in bindings:
                self.acls.remove(binding)
            self._changed("removed", bindings, by)

    def _changed(self, what: str, bindings: Sequence[AclBinding], by: Caller) -> None:
        self.epoch += 1
        for binding in bindings:
            self.note_change(by, f"ACL {what}: {str(binding)!a}")

    def note_change(self, by: Caller, what: str) -> None:
        """A line about who changed something that others rely on; `what` has no raw names in it."""
        audit.info("%s from %s: %s", ascii(by.principal), by.host, what)
