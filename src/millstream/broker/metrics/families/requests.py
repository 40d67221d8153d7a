"""Requests by API: how many, how large, how long, and what was answered with an error."""

from millstream.broker.metrics.family import Readings, counter, histogram
from millstream.broker.node import Node
from millstream.broker.wire import REQUESTS, ApiKey, ErrorCode


def api_name(api_key: int) -> str:
    """As Kafka calls it: Produce, Fetch, JoinGroup."""
    return REQUESTS[ApiKey(api_key)].__name__.removesuffix("Request")


def error_name(code: int) -> str:
    return ErrorCode(code).name


@counter("millstream_requests_total", "Requests taken up.", "api")
def requests(node: Node) -> Readings:
    for key, counts in node.metrics.apis.items():
        yield (api_name(key),), counts.requests


@counter("millstream_request_bytes_total", "Bytes of these requests.", "api")
def request_bytes(node: Node) -> Readings:
    for key, counts in node.metrics.apis.items():
        yield (api_name(key),), counts.request_bytes


@counter("millstream_response_bytes_total", "Bytes of the answers.", "api")
def response_bytes(node: Node) -> Readings:
    for key, counts in node.metrics.apis.items():
        yield (api_name(key),), counts.response_bytes


@counter(
    "millstream_request_errors_total",
    "Error codes in answers, by Kafka's names; one answer can have one for each partition.",
    "api",
    "error",
)
def request_errors(node: Node) -> Readings:
    for key, counts in node.metrics.apis.items():
        for code, count in counts.errors.items():
            yield (api_name(key), error_name(code)), count


@histogram(
    "millstream_request_duration_seconds",
    "From the whole request to its answer, in which Fetch waits for records and JoinGroup for "
    "members. Requests without an answer (acks=0) are not in it.",
    "api",
)
def request_duration(node: Node) -> Readings:
    for key, counts in node.metrics.apis.items():
        yield (api_name(key),), counts.seconds
