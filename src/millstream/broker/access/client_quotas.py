"""Client quotas at work: kept in the broker's metadata, charged for each request.

What is too much is decided by `security/throttle.py`; the delay goes into the answer, and
`connection.py` does not read the connection for that long. As in Kafka, a Fetch is not larger than
what a rested client may have, and one that is throttled has no records: they are not counted, and
come later. A ShareFetch keeps its records: they are handed out already.
"""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from millstream.base.clock import Clock
from millstream.broker.durable_state import DurableState
from millstream.broker.security.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    QUOTA_KEY,
    REQUEST_PERCENTAGE,
    Quotas,
    alter_quotas,
    describe_quotas,
    quota_record,
    read_quota,
)
from millstream.broker.security.throttle import Throttle, bytes_without_throttle
from millstream.broker.wire import ApiKey, Message
from millstream.broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from millstream.broker.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
FETCHES = frozenset({FETCH, int(ApiKey.SHARE_FETCH)})


class Client(NamedTuple):
    """Whose quota counts: the user without its `User:`, and what the client calls itself."""

    user: str
    client_id: str


def client_of(principal: str, client_id: str | None) -> Client:
    return Client(principal.partition(":")[2], client_id or "")


class ClientQuotas:
    """Every quota, and how much of it is used. Owned by the broker's loop."""

    def __init__(self, state: DurableState, *, now_ms: Clock) -> None:
        self._state = state
        self._now_ms = now_ms
        self._quotas = Quotas(
            dict(read_quota(key, value) for key, value in state if key.startswith(QUOTA_KEY))
        )
        self._throttle = Throttle(self._quotas)
        # One change at a time: each starts from what the one before it has left.
        self._turn = asyncio.Lock()
        self.throttled_ms: Counter[str] = Counter()  # by quota, for telemetry and tests

    @property
    def has_any(self) -> bool:
        return len(self._quotas) > 0

    def forget_idle(self) -> None:
        self._throttle.forget_idle(now_ms=self._now_ms())

    # --- requests -----------------------------------------------------------------------------

    def bound_fetch(self, request: Any, client: Client) -> None:
        """Read no more than the quota can let through: the rest would be read for nothing."""
        applied = self._quotas.applied(CONSUMER_BYTE_RATE, *client)
        if applied is not None:
            request.max_bytes = min(request.max_bytes, bytes_without_throttle(applied.limit))

    def charge_request(
        self, api_key: int, client: Client, *, size_bytes: int, work_ms: float
    ) -> int:
        """For how many milliseconds the client must keep still after this request."""
        delay_ms = self._charge(REQUEST_PERCENTAGE, client, work_ms)
        if api_key == PRODUCE:
            delay_ms = max(delay_ms, self._charge(PRODUCER_BYTE_RATE, client, size_bytes))
        return delay_ms

    def charge_fetched(
        self, api_key: int, client: Client, *, size_bytes: int, delay_ms: int
    ) -> int:
        """The same for an answer with records, whose request cost `delay_ms` already."""
        delay_ms = max(delay_ms, self._charge(CONSUMER_BYTE_RATE, client, size_bytes))
        if delay_ms and api_key == FETCH:
            self._throttle.take_back(
                CONSUMER_BYTE_RATE, **client._asdict(), amount=size_bytes, now_ms=self._now_ms()
            )
        return delay_ms

    def _charge(self, quota: str, client: Client, amount: float) -> int:
        delay_ms = self._throttle.charge(
            quota, **client._asdict(), amount=amount, now_ms=self._now_ms()
        )
        if delay_ms:
            self.throttled_ms[quota] += delay_ms
        return delay_ms

    # --- the quotas ---------------------------------------------------------------------------

    def describe(self, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        return describe_quotas(request, self._quotas)

    async def alter(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        """Returns when the changes are durable."""
        async with self._turn:
            altered = alter_quotas(request, self._quotas)
            if altered.changes:
                records = [quota_record(entity, limits) for entity, limits in altered.changes]
                await self._state.put(records, now_ms=self._now_ms())
            for entity, limits in altered.changes:
                self._quotas.put(entity, limits)
            return altered.response


def told(response: Message, delay_ms: int) -> Message:
    """With the delay in it, where the API has a field for that."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = delay_ms
    return response
