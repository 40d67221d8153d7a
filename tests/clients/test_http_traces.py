"""A trace that a client of the HTTP server began goes on in the records that it publishes."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.steps import unique_name
from tests.support.serve_process import ServeProcess
from tests.support.trace_collector import TraceCollector

pytestmark = pytest.mark.full

APP = """
import millstream

app = millstream.App("{name}", data="data")
app.topic("{topic}", schema="user STRING NOT NULL", key="user", partitions=1)
"""
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def headers_of(bootstrap: str, topic: str, number: int) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = consumer.consume(number, timeout=30)
    finally:
        consumer.close()
    told: list[Any] = [one.headers() or [] for one in found]
    return [dict(one) for one in told]


def test_a_trace_goes_on_from_a_request_into_its_records(bootstrap: str, tmp_path: Path) -> None:
    name = unique_name("shop").replace("-", "_")
    topic, file = f"clicks_{name}", tmp_path / "shop.py"
    file.write_text(APP.format(name=name, topic=topic), encoding="utf-8")
    with TraceCollector() as collector:
        env = {
            "MILLSTREAM_BROKERS": bootstrap,
            "MILLSTREAM_SCHEMAS_TOPIC": f"_schemas_{name}",
            "MILLSTREAM_TELEMETRY_TRACES": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_SERVICE_NAME": "shop-http",
        }
        with ServeProcess(file, env=env, stderr=tmp_path / "stderr.txt") as server:
            for key in ({}, {"Idempotency-Key": "order-17"}):
                headers = {
                    "Content-Type": "application/json",
                    "traceparent": f"00-{TRACE}-{CALLER}-01",
                    **key,
                }
                request = urllib.request.Request(
                    f"{server.url}/v1/topics/{topic}/records",
                    json.dumps({"user": "ada"}).encode(),
                    headers,
                )
                with urllib.request.urlopen(request, timeout=60) as answer:
                    assert answer.status == 201
            assert server.stop() == 0
    asked = collector.named("POST /v1/topics/{topic}/records")
    assert [(one.trace_id.hex(), one.parent_span_id.hex()) for one in asked] == [
        (TRACE, CALLER)
    ] * 2
    published = collector.named(f"publish {topic}")
    assert [one.parent_span_id for one in published] == [one.span_id for one in asked]
    assert [one["traceparent"].decode() for one in headers_of(bootstrap, topic, 2)] == [
        f"00-{TRACE}-{one.span_id.hex()}-01" for one in published
    ]
    assert collector.services == {"shop-http"}
