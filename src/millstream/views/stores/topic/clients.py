"""Who writes a view in a topic, where another producer may have taken over: one to try again.

All else of reaching a broker is in base/log_clients.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError

from millstream.base import log_clients
from millstream.base.errors import MillstreamError, Retryable
from millstream.base.log_clients import Client, WriterFenced


class ProducerFenced(Retryable):
    """Another producer has opened the transactional id; whose, the notes of the view say."""

    def __init__(self, *, transactional_id: str) -> None:
        super().__init__(f"{transactional_id}: another producer has taken over. Try again")
        self.transactional_id = transactional_id


@contextmanager
def translated(client: Client, *, doing: str) -> Iterator[None]:
    """librdkafka's errors as ours."""
    try:
        with log_clients.translated(client, doing=doing):
            yield
    except WriterFenced:
        raise ProducerFenced(transactional_id=doing) from None


def error_from(error: KafkaError, client: Client, *, doing: str) -> MillstreamError:
    found = log_clients.error_from(error, client, doing=doing)
    return ProducerFenced(transactional_id=doing) if isinstance(found, WriterFenced) else found
