"""librdkafka logs in: its TLS and its SASL against our TLS files, mechanisms and sessions.

The server here is as small as can be (it knows three APIs); what it tests is `broker/security`.
"""

import asyncio
import contextlib
import datetime
import secrets
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from millstream.broker.security.certificates import make_ca, make_server, write_issued
from millstream.broker.security.credentials import (
    MECHANISMS,
    CredentialId,
    Credentials,
    credential_from_password,
)
from millstream.broker.security.exchange import Exchange
from millstream.broker.security.plain import PlainStart
from millstream.broker.security.sasl_session import (
    NotAuthenticated,
    SaslSession,
    SessionExpired,
    SessionState,
)
from millstream.broker.security.scram import SERVER_NONCE_BYTES, ScramStart
from millstream.broker.security.tls import TlsFiles, open_server_tls
from millstream.broker.wire import (
    REQUESTS,
    ApiKey,
    Message,
    decode_from,
    encode_response,
    read_request_header,
)
from millstream.broker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from millstream.broker.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

OFFERED: Mapping[int, tuple[int, int]] = {
    ApiKey.METADATA: (0, 13),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.SASL_AUTHENTICATE: (0, 1),
}
# A broker before Kafka 1.0: messages of the mechanism come without a request around them.
OFFERED_OF_OLD: Mapping[int, tuple[int, int]] = {
    ApiKey.METADATA: (0, 13),
    ApiKey.SASL_HANDSHAKE: (0, 0),
    ApiKey.API_VERSIONS: (0, 3),
}
KNOWN = Credentials(
    secrets.token_bytes(32),
    {
        CredentialId("ada", mechanism): credential_from_password(
            mechanism, "ada, the 1=st", salt=secrets.token_bytes(24)
        )
        for mechanism in MECHANISMS.values()
    },
)


def start_scram(name: str) -> Exchange:
    nonce = secrets.token_urlsafe(SERVER_NONCE_BYTES)
    return ScramStart(MECHANISMS[name], KNOWN, nonce)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass
class SmallServer:
    """Answers ApiVersions, Metadata and a login, on a loop in a thread of its own."""

    tls: ssl.SSLContext | None
    lifetime_ms: int = 0
    offered: Mapping[int, tuple[int, int]] = field(default_factory=lambda: OFFERED)
    port: int = 0
    sessions: list[SaslSession] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    logins: list[SaslSession] = field(default_factory=list)  # one for each login, and renewal

    def __enter__(self) -> "SmallServer":
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    async def _listen(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self.server.close()
        for writer in self.writers:
            writer.close()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scram = {name: lambda name=name: start_scram(name) for name in MECHANISMS}
        session = SaslSession(
            {**scram, "PLAIN": lambda: PlainStart(KNOWN)}, lifetime_ms=self.lifetime_ms
        )
        self.sessions.append(session)
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while not session.must_close:
                size = int.from_bytes(await reader.readexactly(4), "big")
                writer.writelines(self._take(session, await reader.readexactly(size)))
                await writer.drain()
        writer.close()

    def _take(self, session: SaslSession, frame: bytes) -> list[Any]:
        if session.receives_bare_messages:
            reply = session.take_bare_message(frame, now_ms=now_ms())
            return [] if reply is None else [len(reply).to_bytes(4, "big"), reply]
        header = read_request_header(frame)
        try:
            session.check_allowed(header.api_key, now_ms=now_ms())
        except (NotAuthenticated, SessionExpired) as error:
            raise ConnectionError("to be closed") from error
        request, _ = decode_from(
            REQUESTS[header.api_key], header.api_version, frame, header.body_position
        )
        answer = self._answer(session, header.api_key, header.api_version, request)
        return encode_response(answer, header.api_version, header.correlation_id)

    def _answer(self, session: SaslSession, api_key: int, version: int, request: Any) -> Message:
        if api_key == ApiKey.SASL_HANDSHAKE:
            return session.handshake(request.mechanism, version=version, now_ms=now_ms())
        if api_key == ApiKey.SASL_AUTHENTICATE:
            answer = session.authenticate(bytes(request.auth_bytes), now_ms=now_ms())
            if session.state is SessionState.AUTHENTICATED:
                self.logins.append(session)
            return answer
        if api_key == ApiKey.API_VERSIONS:
            offered = [
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in self.offered.items()
            ]
            return ApiVersionsResponse(api_keys=offered)
        node = MetadataResponseBroker(node_id=0, host="localhost", port=self.port)
        return MetadataResponse(brokers=[node], cluster_id="small", controller_id=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    now = datetime.datetime.now(datetime.UTC)
    ca = make_ca("test CA", now=now)
    write_issued(tmp_path, "ca", ca)
    write_issued(tmp_path, "server", make_server(ca, "broker", hosts=["localhost"], now=now))
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[SmallServer]:
    files = TlsFiles(certificate=folder / "server.pem", key=folder / "server.key")
    tls = open_server_tls(files, now=datetime.datetime.now(datetime.UTC))
    with SmallServer(tls.context) as running:
        yield running


def client(server: SmallServer, folder: Path, **more: Any) -> tuple[Producer, list[KafkaError]]:
    errors: list[KafkaError] = []
    config = {
        "bootstrap.servers": f"localhost:{server.port}",
        "broker.address.family": "v4",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ada",
        "sasl.password": "ada, the 1=st",
        "log_level": 0,
        "error_cb": errors.append,
    }
    return Producer(
        config | {name.replace("_", "."): value for name, value in more.items()}
    ), errors


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_librdkafka_logs_in(server: SmallServer, folder: Path, mechanism: str) -> None:
    producer, _ = client(server, folder, sasl_mechanism=mechanism)
    assert producer.list_topics(timeout=10).cluster_id == "small"
    assert {each.principal for each in server.sessions} == {"User:ada"}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize("wrong", [{"sasl_password": "x"}, {"sasl_username": "eve"}])
def test_who_has_no_right_password_is_told_that_this_is_the_reason(
    server: SmallServer, folder: Path, mechanism: str, wrong: dict[str, str]
) -> None:
    producer, errors = client(server, folder, sasl_mechanism=mechanism, **wrong)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=2)
    producer.poll(0)
    told = [each.str() for each in errors if each.code() == KafkaError._AUTHENTICATION]
    assert told
    assert "user name or password" in told[0]
    assert not any(each.principal for each in server.sessions)


def test_a_client_that_does_not_trust_the_ca_does_not_connect(
    server: SmallServer, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    write_issued(other, "ca", make_ca("another", now=datetime.datetime.now(datetime.UTC)))
    producer, errors = client(server, other)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=2)
    producer.poll(0)
    assert KafkaError._SSL in {each.code() for each in errors}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_messages_may_come_without_a_request_around_them(folder: Path, mechanism: str) -> None:
    with SmallServer(None, offered=OFFERED_OF_OLD) as server:
        producer, _ = client(
            server, folder, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism
        )
        assert producer.list_topics(timeout=10).cluster_id == "small"
        assert {each.principal for each in server.sessions} == {"User:ada"}


def test_librdkafka_renews_its_login_in_time(folder: Path) -> None:
    with SmallServer(None, lifetime_ms=1_500) as server:
        producer, _ = client(server, folder, security_protocol="SASL_PLAINTEXT")
        producer.list_topics(timeout=10)
        deadline = time.monotonic() + 10
        while most_logins(server) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert most_logins(server) >= 3
        assert {each.principal for each in server.sessions} == {"User:ada"}


def most_logins(server: SmallServer) -> int:
    """Of one connection: its login and its renewals."""
    return max(Counter(map(id, server.logins)).values())
