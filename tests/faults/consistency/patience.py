"""How clients meet a broker that comes and goes."""

import time
from collections.abc import Callable

from confluent_kafka import KafkaException

CALL_SECONDS_MAX = 30.0

PATIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "log_level": 0,
    # With `rebootstrap`, its default, librdkafka 2.16 forgets a broker that is down, and then waits
    # for ever for the coordinator of a group that it remembers on the forgotten one.
    "metadata.recovery.strategy": "none",
}


def until_done(call: Callable[[], None]) -> None:
    """Again while the client says that this helps, for a bounded time."""
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
