"""Where a broker process refuses to listen, what it warns of, and how many it lets in."""

import asyncio
import contextlib
import datetime
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millstream.base.errors import Rejected
from millstream.broker.access.acceptor import Acceptor, AddressInUse, CannotListen
from millstream.broker.access.admission import Admission
from millstream.broker.access.complaints import Complaints
from millstream.broker.access.protection import Protection
from millstream.broker.config import BrokerConfig
from millstream.broker.security.certificates import make_ca, make_server, write_issued
from millstream.broker.security.listening import OPEN_TO_ANYONE
from millstream.broker.security.tls import TlsFiles
from tests.support.broker_process import BrokerProcess
from tests.support.broker_thread import BrokerThread
from tests.support.protected_broker import make_certificates
from tests.support.raw_client import RawClient
from tests.support.waiting import eventually

NOW = datetime.datetime.now(datetime.UTC)


def refused(tmp_path: Path, *options: str) -> str:
    """What a broker says that does not start."""
    command = [sys.executable, "-m", "millstream", "broker", "--data", str(tmp_path / "data")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_broker_beyond_loopback_without_tls_and_login_does_not_start(tmp_path: Path) -> None:
    said = refused(tmp_path, "--listen", "0.0.0.0:0")
    assert "lacks TLS and a login (SASL): anyone there could read and write" in said
    assert OPEN_TO_ANYONE in said
    assert not (tmp_path / "data").exists(), "it did not even begin"


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        ({"sasl_mechanisms": ("SCRAM-SHA-256",)}, "lacks TLS:"),
        ({"sasl_mechanisms": ("PLAIN",)}, "PLAIN without TLS"),
        ({"tls": TlsFiles(certificate=Path("c"), key=Path("k"))}, "lacks a login"),
    ],
)
def test_nor_with_only_one_of_the_two(config: dict[str, Any], missing: str) -> None:
    protection = Protection(BrokerConfig(host="0.0.0.0", **config), now_ms=lambda: 0)
    with pytest.raises(Rejected, match=missing):
        protection.check()


@pytest.mark.parametrize("ca", [None, Path("ca")])
def test_a_client_certificate_is_a_login_too(ca: Path | None) -> None:
    files = TlsFiles(certificate=Path("c"), key=Path("k"), ca=ca)
    protection = Protection(BrokerConfig(host="::", tls=files), now_ms=lambda: 0)
    if ca is None:
        with pytest.raises(Rejected):
            protection.check()
    else:
        protection.check()


def test_it_listens_if_told_so_in_words_and_warns(tmp_path: Path) -> None:
    options = ("--open-listeners", OPEN_TO_ANYONE)
    with BrokerProcess(tmp_path / "data", *options, listen="0.0.0.0:0") as broker:
        assert "0.0.0.0:0 is open without TLS and a login (SASL)" in broker.diagnostics
        port = broker.bootstrap.rsplit(":", 1)[1]
        with RawClient(f"127.0.0.1:{port}") as client:
            assert client.metadata("orders").brokers[0].host == "127.0.0.1"


def test_what_is_wrong_with_a_certificate_is_said_with_its_path(tmp_path: Path) -> None:
    ca = make_ca("test CA", now=NOW - datetime.timedelta(days=100))
    old = make_server(ca, "old", hosts=["localhost"], now=NOW - datetime.timedelta(days=99), days=1)
    certificate, key = write_issued(tmp_path, "old", old)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    assert f"{certificate}: the certificate of CN=old expired on" in refused(tmp_path, *options)


def test_a_certificate_that_ends_soon_is_a_warning(tmp_path: Path) -> None:
    soon = make_server(make_ca("CA", now=NOW), "soon", hosts=["localhost"], now=NOW, days=7)
    certificate, key = write_issued(tmp_path, "soon", soon)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with BrokerProcess(tmp_path / "data", *options) as broker:
        assert f"{certificate}: expires in 6 days" in broker.diagnostics


def test_one_address_gets_so_many_connections_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(tmp_path, connections_per_address_max=3) as broker:
        inside = [RawClient(broker.bootstrap) for _ in range(3)]
        for client in inside:
            client.metadata("orders")
        for _ in range(5):
            with RawClient(broker.bootstrap) as outside:
                assert outside.is_closed()
        lines = [line for line in caplog.messages if "connections_per_address_max" in line]
        assert len(lines) == 1
        assert broker.ask(lambda node: node.admission.refused) == 5
        host, port = broker.bootstrap.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 10, ("127.0.0.2", 0)) as elsewhere:
            eventually(lambda: len(connected(broker)) == 4, what="another address is let in")
            elsewhere.close()
        inside.pop().socket.close()
        eventually(lambda: "127.0.0.2" not in connected(broker), what="both have left")
        eventually(lambda: len(connected(broker)) == 2, what="both have left")
        with RawClient(broker.bootstrap) as next_one:
            next_one.metadata("orders")
        for client in inside:
            client.socket.close()


def connected(broker: BrokerThread) -> list[str]:
    return broker.ask(lambda node: [each.peer.host for each in node.connections])


def test_clients_are_told_the_name_that_the_certificate_has(tmp_path: Path) -> None:
    with (
        BrokerThread(tmp_path, advertised=("broker.example", 0)) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        (told,) = client.metadata("orders").brokers
        assert f"{told.host}:{told.port}" == f"broker.example:{broker.bootstrap.rsplit(':')[1]}"


def test_a_broker_without_a_free_file_descriptor_lets_clients_in_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own process has the same limit here: take what is left, and give it back."""
    with BrokerThread(tmp_path) as broker:
        host, port = broker.bootstrap.rsplit(":", 1)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        client, fill = socket.socket(), [os.dup(0)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (fill[0] + 8, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    fill.append(os.dup(0))
            client.connect((host, int(port)))
            eventually(
                lambda: "no more connections for the moment" in caplog.text, what="it says so"
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in fill:
                os.close(number)
        eventually(lambda: len(connected(broker)) == 1, what="the client is let in")
        client.close()


def test_an_address_that_cannot_be_listened_on_is_named_with_the_reason() -> None:
    async def listen(host: str, port: int) -> None:
        admission = Admission(connections_max=1, per_address_max=1)
        complaints = Complaints(now_ms=lambda: 0)
        acceptor = Acceptor(
            lambda _: asyncio.BufferedProtocol(), admission=admission, complaints=complaints
        )
        await acceptor.listen(host, port)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} is in use by another process"):
            asyncio.run(listen("127.0.0.1", port))
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1:0: [Cc]annot assign"):
        asyncio.run(listen("192.0.2.1", 0))
    with pytest.raises(CannotListen, match="no such host"):
        asyncio.run(listen("nowhere.invalid", 0))


def test_a_tls_handshake_has_its_time_and_takes_a_place_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("millstream.broker.access.acceptor.TLS_HANDSHAKE_SECONDS_MAX", 1.0)
    folder = make_certificates(tmp_path / "certificates")
    files = TlsFiles(certificate=folder / "server.pem", key=folder / "server.key")
    with BrokerThread(tmp_path / "data", tls=files, connections_max=1) as broker:
        with RawClient(broker.bootstrap) as silent, RawClient(broker.bootstrap) as second:
            silent.send_bytes(b"\x16\x03\x01")
            assert second.is_closed(), "the only place is taken"
            assert silent.is_closed(), "after a second"
        eventually(lambda: "no TLS handshake within 1 s" in caplog.text, what="a line of it")
        assert broker.ask(lambda node: node.admission.enter("a")), "the place is free again"
