"""A job in Spark, and `millstream serve` beside it: what is published over HTTP comes out there."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession

from millstream import App
from tests.clients.steps import unique_name
from tests.spark.steps import WITHIN_S
from tests.support.serve_process import ServeProcess
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

SERVED = """
import millstream

app = millstream.App("{app}", data="data")
app.topic("{topic}", schema="user STRING, url STRING", key="user", partitions=2)

@app.view(key="url", inputs={{"clicks": "{topic}"}})
def clicks_per_url(clicks):
    return clicks.groupBy("url").count()
"""
VIEW = "/v1/views/clicks_per_url"


class Shop:
    """One application, twice: its jobs run here, and its file is served."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        name, self.topic = unique_name("shop"), unique_name("clicks")
        self.app = App(name, data=folder / "data", brokers=bootstrap)
        schema = "user STRING, url STRING"
        self.app.topic(self.topic, schema=schema, key="user", partitions=2)
        self.app.view(key="url", inputs={"clicks": self.topic})(clicks_per_url)
        self.file = folder / "shop.py"
        self.file.write_text(SERVED.format(app=name, topic=self.topic))
        self.env = {"MILLSTREAM_BROKERS": bootstrap}

    @contextmanager
    def running(self) -> Iterator[None]:
        jobs = threading.Thread(target=self.app.run)
        jobs.start()
        try:
            yield
        finally:
            self.app.stop()
            jobs.join(WITHIN_S)

    def click(self, client: httpx.Client, *users: str) -> str:
        """What to read after."""
        rows = [{"user": user, "url": "/"} for user in users]
        answer = client.post(f"/v1/topics/{self.topic}/records", json={"rows": rows})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["after"])


def clicks_per_url(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("url").count()


@pytest.fixture
def shop(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, bootstrap)
    with shop.app:
        yield shop


def count_after(client: httpx.Client, after: str) -> int:
    """Asked again while the job starts: 404 before its first batch, 412 when it takes long."""
    found: list[Any] = []

    def is_answered() -> bool:
        answer = client.get(f"{VIEW}/rows/%2F", params={"after": after, "timeout": 20})
        assert answer.status_code in (200, 404, 412), answer.text
        found.append(answer.json().get("count"))
        return answer.status_code == 200

    eventually(is_answered, what=f"the view after {after}", within_s=WITHIN_S)
    return int(found[-1])


def changes(stream: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a feed, with their rows."""
    event = ""
    for line in stream.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            yield event, json.loads(value)


def test_what_is_published_over_http_is_in_the_view_after_it_and_in_its_feed(shop: Shop) -> None:
    with (
        ServeProcess(shop.file, env=shop.env) as server,
        httpx.Client(base_url=server.url, timeout=WITHIN_S) as client,
        shop.running(),
    ):
        assert count_after(client, shop.click(client, "ada", "bob")) == 2
        feed = {"Accept": "text/event-stream"}
        with client.stream("GET", f"{VIEW}/changes", headers=feed) as stream:
            told = changes(stream)
            assert next(told)[1]["row"] == {"url": "/", "count": 2}
            assert next(told)[0] == "current"
            after = shop.click(client, "cy")
            event, change = next(told)
            assert (event, change["row"]) == ("upsert", {"url": "/", "count": 3})
        assert count_after(client, after) == 3
