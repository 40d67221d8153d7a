"""`millstream serve` as it runs, over real brokers: rows in, views out, nothing twice."""

import itertools
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millstream.schemas.declaration import schema_of
from tests.clients.steps import unique_name
from tests.support.serve_process import WITHIN_S, ServeProcess
from tests.support.waiting import eventually
from tests.support.web_application import KeptView

APP = """
import millstream

app = millstream.App("{name}", data="data")
app.topic("{topic}", schema="user STRING NOT NULL, url STRING", key="user", partitions=2)

@app.view(key="url")
def clicks_per_url({topic}):
    return {topic}.groupBy("url").count()
"""
CLICKS_PER_URL = schema_of("url STRING, count BIGINT")


class Shop:
    """An application of its own: its file, its topic, and its view as a job would write it."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.name = unique_name("shop").replace("-", "_")
        self.topic = f"clicks_{self.name}"
        self.file = folder / "shop.py"
        self.file.write_text(APP.format(name=self.name, topic=self.topic))
        self.bootstrap = bootstrap
        self.env = {
            "MILLSTREAM_BROKERS": bootstrap,
            "MILLSTREAM_SCHEMAS_TOPIC": f"_schemas_{self.name}",
            "MILLSTREAM_WEB_HEARTBEAT_MS": "200ms",
        }
        views = folder / "data" / "views"
        views.mkdir(parents=True)
        self.view = KeptView(views, "clicks_per_url", CLICKS_PER_URL, ("url",))

    @property
    def records(self) -> str:
        return f"/v1/topics/{self.topic}/records"

    def served(self, *options: str, **env: str) -> ServeProcess:
        return ServeProcess(self.file, env=self.env | env, options=options)

    def committed(self) -> list[dict[str, Any]]:
        """Every row of the topic that a reader of committed records gets."""
        return [json.loads(one) for one in committed_values(self.bootstrap, self.topic)]


@pytest.fixture
def shop(tmp_path: Path, bootstrap: str) -> Iterator[Shop]:
    shop = Shop(tmp_path, bootstrap)
    yield shop
    shop.view.close()


def committed_values(bootstrap: str, topic: str, *, partitions: int = 2) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique_name("reader"),
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 3,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values, ends = [], 0
    while ends < partitions:
        message = consumer.poll(WITHIN_S)
        assert message is not None, "the topic could not be read"
        error = message.error()
        if error is None:
            values.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            ends += 1
    consumer.close()
    return values


def client_of(server: ServeProcess, **terms: Any) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=WITHIN_S, **terms)


def test_rows_and_views_are_served(shop: Shop) -> None:
    with shop.served() as server, client_of(server) as client:
        assert client.get("/health").json()["status"] == "ready"
        answer = client.post(shop.records, json={"rows": [{"user": "ada"}, {"user": "bob"}]})
        assert answer.status_code == 201
        assert sorted(row["user"] for row in shop.committed()) == ["ada", "bob"]
        shop.view.write([{"url": "/", "count": 7}])
        assert client.get("/v1/views/clicks_per_url/rows/%2F").json() == {"url": "/", "count": 7}
        assert server.stop() == 0


@pytest.mark.full
def test_a_view_is_read_after_a_write(shop: Shop) -> None:
    """The job is played by a thread, which sees the write some time after it was answered."""
    with shop.served() as server, client_of(server) as client:
        after = client.post(shop.records, json={"user": "ada", "url": "/"}).json()["after"]
        _, partition, offset = after.split(":")
        positions = {shop.topic: {int(partition): int(offset) + 1}}
        rows = [{"url": "/", "count": 1}]
        job = threading.Timer(0.3, shop.view.write, [rows], {"positions": positions})
        job.start()
        query = {"after": after, "timeout": 30}
        row = client.get("/v1/views/clicks_per_url/rows/%2F", params=query)
        job.join()
    assert row.json() == {"url": "/", "count": 1}


# Idempotency keys


@pytest.mark.full
def test_a_key_is_known_after_the_server_was_killed(shop: Shop) -> None:
    """Another body is refused by the process that took the first one. What it was like is kept
    nowhere else, so that nobody can try it out: after a restart it counts as the same request."""
    rows = {"rows": [{"user": "ada"}, {"user": "bob"}, {"user": "cy"}]}
    key, dan = {"Idempotency-Key": "order-17"}, {"user": "dan"}
    with shop.served() as server:
        with client_of(server) as client:
            first = client.post(shop.records, json=rows, headers=key)
            refused = client.post(shop.records, json=dan, headers=key)
        server.kill()
        server.start()
        with client_of(server) as client:
            again = client.post(shop.records, json=rows, headers=key)
            other = client.post(shop.records, json=dan, headers=key)
    assert (first.status_code, again.json()) == (201, first.json())
    assert refused.status_code == 409
    assert other.json() == first.json()
    assert sorted(row["user"] for row in shop.committed()) == ["ada", "bob", "cy"]


@pytest.mark.full
@pytest.mark.timeout(300)
def test_every_request_counts_once_though_the_server_is_killed_again_and_again(
    shop: Shop,
) -> None:
    """A client that gets no answer sends the same again, under the same key."""
    names = [[f"{sender}-{number}" for number in range(15)] for sender in range(3)]
    with shop.served() as server, ThreadPoolExecutor(3) as pool:
        sent = [pool.submit(send_all, shop, server, some) for some in names]
        for _ in range(3):
            time.sleep(0.7)  # at any moment of a transaction; where does not matter
            server.kill()
            server.start()
        for one in sent:
            one.result()
    assert sorted(row["user"] for row in shop.committed()) == sorted(itertools.chain(*names))


def send_all(shop: Shop, server: ServeProcess, names: list[str]) -> list[Any]:
    """Each until it is answered; what the last answer was."""
    answers: dict[str, Any] = {}
    for name in names:
        eventually(
            lambda name=name: is_answered(shop, server, name, answers),  # type: ignore[misc]
            what=f"an answer to {name}",
            within_s=100.0,
        )
    return [answers[name] for name in names]


def is_answered(shop: Shop, server: ServeProcess, name: str, answers: dict[str, Any]) -> bool:
    try:
        answer = httpx.post(
            server.url + shop.records,
            json={"user": name},
            headers={"Idempotency-Key": name},
            timeout=WITHIN_S,
        )
    except httpx.TransportError:
        return False
    assert answer.status_code in (201, 503), answer.text
    answers[name] = answer.json().get("receipts")
    return answer.status_code == 201


@pytest.mark.full
def test_two_servers_of_one_application_count_a_key_once(shop: Shop) -> None:
    keys = [f"key-{number}" for number in range(10)]
    with shop.served() as one, shop.served() as other, ThreadPoolExecutor(2) as pool:
        found, others = pool.map(lambda server: send_all(shop, server, keys), (one, other))
    assert found == others
    assert sorted(row["user"] for row in shop.committed()) == sorted(keys)


@pytest.mark.full
def test_readers_of_committed_rows_do_not_wait_for_a_request_that_was_refused(shop: Shop) -> None:
    """Its rows are in both partitions, but for the one that the broker does not take."""
    admin = AdminClient({"bootstrap.servers": shop.bootstrap, "log_level": 3})
    topic = NewTopic(shop.topic, 2, 1, config={"max.message.bytes": "20000"})
    admin.create_topics([topic])[shop.topic].result(WITHIN_S)
    names = [f"user-{number}" for number in range(20)]
    rows: list[dict[str, str]] = [{"user": name} for name in names]
    large = {"user": "large", "url": "x" * 50_000}
    with shop.served() as server, client_of(server) as client:
        key = {"Idempotency-Key": "order-17"}
        refused = client.post(shop.records, json={"rows": [*rows, large]}, headers=key)
        taken = client.post(shop.records, json={"rows": rows})
        assert (refused.status_code, taken.status_code) == (422, 201)
        assert "None was written" in refused.json()["detail"]
        eventually(
            lambda: sorted(row["user"] for row in shop.committed()) == sorted(names),
            what="readers of committed rows get past the request that was refused",
            within_s=20,  # a transaction that is left open ends after 60
        )


# Feeds


def events(client: httpx.Client, path: str, **headers: str) -> Iterator[dict[str, str]]:
    given = {"Accept": "text/event-stream", **headers}
    event: dict[str, str] = {}
    with client.stream("GET", path, headers=given) as stream:
        assert stream.status_code == 200
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if line and not line.startswith(":"):
                event[name] = value
            elif event:
                yield event
                event = {}


CHANGES = "/v1/views/clicks_per_url/changes"


@pytest.mark.full
def test_a_stream_goes_on_after_the_server_came_back(shop: Shop) -> None:
    shop.view.write([{"url": "/", "count": 1}])
    with shop.served() as server:
        with client_of(server) as client:
            stream = events(client, CHANGES)
            assert [next(stream)["event"] for _ in range(2)] == ["row", "current"]
            shop.view.write([{"url": "/", "count": 2}])
            upsert = next(stream)
            assert json.loads(upsert["data"])["row"] == {"url": "/", "count": 2}
        server.kill()
        shop.view.write([{"url": "/about", "count": 1}])
        shop.view.write([{"url": "/", "count": None}], deletes=True)
        server.start()
        with client_of(server) as client:
            stream = events(client, CHANGES, **{"Last-Event-ID": upsert["id"]})
            missed = [next(stream) for _ in range(2)]
    assert [one["event"] for one in missed] == ["upsert", "delete"]
    assert json.loads(missed[0]["data"])["key"] == {"url": "/about"}


@pytest.mark.full
def test_many_streams_hold_no_threads_and_end_with_the_server(shop: Shop) -> None:
    shop.view.write([{"url": "/", "count": 1}])
    limits = httpx.Limits(max_connections=None)
    with shop.served() as server, client_of(server, limits=limits) as client:
        streams = [events(client, CHANGES) for _ in range(60)]
        for stream in streams:
            assert [next(stream)["event"] for _ in range(2)] == ["row", "current"]
        assert server.threads < 50
        shop.view.write([{"url": "/", "count": 2}])
        assert [next(stream)["event"] for stream in streams] == ["upsert"] * 60
        assert server.stop() == 0
        assert [list(stream) for stream in streams] == [[]] * 60


# What a server takes and does not


@pytest.mark.full
def test_a_body_that_does_not_come_is_not_waited_for(shop: Shop) -> None:
    with shop.served(MILLSTREAM_WEB_BODY_MS_MAX="200ms") as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), WITHIN_S) as slow:
            head = f"POST {shop.records} HTTP/1.1\r\nHost: localhost\r\n"
            slow.sendall(f"{head}Content-Type: application/json\r\n".encode())
            slow.sendall(b"Content-Length: 100\r\n\r\n{")
            assert b" 408 " in slow.recv(4096)


@pytest.mark.full
def test_settings_bound_what_is_taken(shop: Shop) -> None:
    with (
        shop.served(MILLSTREAM_WEB_ROWS_MAX="1", MILLSTREAM_WEB_LIMIT_MAX="5") as server,
        client_of(server) as client,
    ):
        rows = {"rows": [{"user": "ada"}, {"user": "bob"}]}
        assert client.post(shop.records, json=rows).status_code == 413
        assert client.get("/v1/views/clicks_per_url/rows?limit=6").status_code == 400
        assert client.get("/v1/views", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.full
def test_https_with_a_token(shop: Shop, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream", "certs", "tls", "--host", "127.0.0.1"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    token = tmp_path / "http.token"
    token.write_text("correct-horse-battery-staple\n")
    token.chmod(0o600)
    tls = {
        "MILLSTREAM_WEB_TLS_CERTIFICATE": "tls/server.pem",
        "MILLSTREAM_WEB_TLS_KEY": "tls/server.key",
    }
    with shop.served("--token-file", str(token), **tls) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))
        with client_of(server, verify=trusted) as client:
            assert client.get("/v1/views").status_code == 401
            bearer = {"Authorization": "Bearer correct-horse-battery-staple"}
            assert client.get("/v1/views", headers=bearer).status_code == 200


def test_a_server_beyond_loopback_without_a_token_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("import millstream\napp = millstream.App('shop')\n")
    command = [sys.executable, "-m", "millstream", "serve", str(file), "--listen", "0.0.0.0:0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 1
    assert "there is no token" in done.stderr
    assert "--token-file" in done.stderr


@pytest.mark.full
def test_an_address_in_use_is_told_in_one_line(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "millstream", "serve", str(shop.file), "--listen", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 1
    assert f"{address} is in use by another process" in done.stderr
    assert "Traceback" not in done.stderr
