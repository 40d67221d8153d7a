"""librdkafka against a broker process with TLS and logins, and what goes wrong with them."""

import os
import re
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.support.broker_process import assert_no_traceback
from tests.support.protected_broker import PASSWORD, ProtectedBroker, make_certificates
from tests.support.raw_client import RawClient
from tests.support.users import SHA_512, open_admin, with_password, without_password
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProtectedBroker]:
    with ProtectedBroker(tmp_path_factory.mktemp("protected")) as running:
        yield running
        assert running.stop() == 0
        assert_no_traceback(running.diagnostics)


def send_and_read(config: dict[str, Any], topic: str, value: bytes = b"hello") -> bytes:
    """One record there and back."""
    producer = Producer(config)
    producer.produce(topic, value)
    assert producer.flush(15) == 0
    consumer = Consumer(config | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(15)
    consumer.close()
    assert message is not None
    assert message.error() is None, message.error()
    return bytes(message.value() or b"")


def refused(config: dict[str, Any], code: int = KafkaError._ALL_BROKERS_DOWN) -> None:
    """The client can ask nothing, and has been told this reason."""
    errors: list[KafkaError] = []
    client = Producer(config | {"error_cb": errors.append})

    def is_told() -> bool:
        client.poll(0.02)
        return code in {error.code() for error in errors}

    eventually(is_told, what=f"error {code}", within_s=60)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)


def says(broker: ProtectedBroker, text: str) -> None:
    eventually(lambda: text in broker.diagnostics, what=text)


# --- logins -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_client_logs_in_by_tls_and_reads_what_it_wrote(
    broker: ProtectedBroker, mechanism: str
) -> None:
    config = broker.client(sasl_mechanism=mechanism)
    assert send_and_read(config, f"by-{mechanism}") == b"hello"


def test_a_large_record_crosses_tls_as_it_is(broker: ProtectedBroker) -> None:
    value = os.urandom(900_000)
    assert send_and_read(broker.client(), "large", value) == value


@pytest.mark.parametrize("wrong", [{"sasl_password": "x"}, {"sasl_username": "eve"}])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(
    broker: ProtectedBroker, wrong: dict[str, str]
) -> None:
    refused(broker.client(**wrong), KafkaError._AUTHENTICATION)


def test_a_client_without_a_login_is_served_nothing(broker: ProtectedBroker) -> None:
    refused(broker.client(security_protocol="SSL"))
    says(broker, "log in first")


def test_a_user_comes_and_goes_while_the_broker_runs(broker: ProtectedBroker) -> None:
    admin = open_admin(broker.client())
    new = with_password("grace", b"hopper 9", mechanism=SHA_512, iterations=8_192)
    admin.alter_user_scram_credentials([new])["grace"].result()
    grace = broker.client(
        sasl_mechanism="SCRAM-SHA-512", sasl_username="grace", sasl_password="hopper 9"
    )
    assert Producer(grace).list_topics(timeout=10).brokers
    described = admin.describe_user_scram_credentials().result()
    assert [each.iterations for each in described["grace"].scram_credential_infos] == [8_192]
    gone = without_password("grace", SHA_512)
    admin.alter_user_scram_credentials([gone])["grace"].result()
    refused(grace, KafkaError._AUTHENTICATION)


def test_users_are_there_after_a_kill(tmp_path: Path) -> None:
    broker = ProtectedBroker(tmp_path, has_tls=False, sasl="SCRAM-SHA-256")
    with broker:
        new = with_password("grace", b"hopper")
        admin = open_admin(broker.client())
        admin.alter_user_scram_credentials([new])["grace"].result()
        broker.process.kill()
        broker.wait()
        broker.start()
        grace = broker.client(sasl_username="grace", sasl_password="hopper")
        assert Producer(grace).list_topics(timeout=10).brokers


def test_a_login_of_limited_life_is_renewed_on_its_connection(tmp_path: Path) -> None:
    options = ("--sasl-session-ms", "1500ms", "--log-level", "debug")
    with ProtectedBroker(tmp_path, *options, has_tls=False, sasl="SCRAM-SHA-256") as broker:
        producer = Producer(broker.client(topic_metadata_refresh_interval_ms=200))
        producer.list_topics(timeout=10)

        def logins_of_a_connection() -> int:
            lines = broker.diagnostics.splitlines()
            made = [line.split()[4] for line in lines if "SASL_HANDSHAKE" in line]
            return max(map(made.count, made), default=0)

        eventually(lambda: logins_of_a_connection() >= 3, what="two renewals", within_s=60)
        producer.produce("renewed", b"still here")
        assert producer.flush(10) == 0


def test_guessing_is_slower_with_each_failure(tmp_path: Path) -> None:
    """In real time: librdkafka tries twenty times a second if nobody makes it wait."""
    with ProtectedBroker(tmp_path, has_tls=False, sasl="SCRAM-SHA-256,PLAIN") as broker:
        new = with_password("grace", b"hopper")
        admin = open_admin(broker.client())
        admin.alter_user_scram_credentials([new])["grace"].result()
        errors: list[KafkaError] = []
        config = broker.client(sasl_mechanism="PLAIN", sasl_password="guess")
        pace = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 50}
        client = Producer(config | pace | {"error_cb": errors.append})
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            client.poll(0.1)
        failed = [each for each in errors if each.code() == KafkaError._AUTHENTICATION]
        # 2 at once, then after 0.2, 0.4, 0.8 and 1.6 s: 5 within 3 s.
        assert 1 <= len(failed) <= 7
        assert broker.diagnostics.count("wrong password") == 1, "one line, not one for each"
        grace = Producer(broker.client(sasl_username="grace", sasl_password="hopper"))
        assert grace.list_topics(timeout=10).brokers, "another user of the same machine"
        del client
        patient = Producer(broker.client())
        assert patient.list_topics(timeout=20).brokers, "who knows the password gets a turn"


# --- TLS ----------------------------------------------------------------------------------------


def test_a_client_that_trusts_another_authority_does_not_connect(
    broker: ProtectedBroker, tmp_path: Path
) -> None:
    other = make_certificates(tmp_path / "other")
    config = broker.client(ssl_ca_location=str(other / "ca.pem"))
    refused(config, KafkaError._SSL)
    says(broker, "the client does not trust our certificate")


def test_a_client_without_tls_on_a_port_with_it_is_one_line(broker: ProtectedBroker) -> None:
    refused(broker.client(security_protocol="PLAINTEXT"))
    says(broker, "the client does not speak TLS")
    assert broker.diagnostics.count("the client does not speak TLS") == 1


def test_a_client_with_tls_on_a_port_without_is_one_line(tmp_path: Path) -> None:
    with ProtectedBroker(tmp_path, has_tls=False, sasl="") as broker:
        certificates = make_certificates(tmp_path / "certificates")
        ca = str(certificates / "ca.pem")
        refused(broker.client(security_protocol="SSL", ssl_ca_location=ca))
        says(broker, "a TLS handshake, on a port without TLS")
        assert broker.diagnostics.count("a TLS handshake, on a port without TLS") == 1


def test_one_that_only_looks_whether_the_port_is_open_leaves_no_line(
    broker: ProtectedBroker,
) -> None:
    with RawClient(broker.bootstrap) as looker:
        port = looker.port
    send_and_read(broker.client(), "after-a-look")
    assert f":{port} " not in broker.diagnostics


def test_a_handshake_that_stays_silent_does_not_keep_others_waiting(
    broker: ProtectedBroker,
) -> None:
    with RawClient(broker.bootstrap) as silent:
        silent.send_bytes(b"\x16\x03\x01")
        assert send_and_read(broker.client(), "meanwhile") == b"hello"


def test_tls_is_1_2_or_newer(broker: ProtectedBroker) -> None:
    host, port = broker.bootstrap.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(broker.path("ca.pem"))
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        assert tls.version() in ("TLSv1.2", "TLSv1.3")


def test_a_client_certificate_is_who_the_client_is(tmp_path: Path) -> None:
    folder = make_certificates(tmp_path / "certificates", "grace", "eve")
    options = ("--tls-client-ca", str(folder / "ca.pem"), "--super-users", "User:CN=grace")
    with ProtectedBroker(tmp_path, *options, sasl="") as broker:

        def certified(name: str) -> dict[str, Any]:
            return broker.client(
                ssl_certificate_location=broker.path(f"{name}.pem"),
                ssl_key_location=broker.path(f"{name}.key"),
            )

        assert send_and_read(certified("grace"), "by-certificate") == b"hello"
        topics = Producer(certified("eve")).list_topics(timeout=10).topics
        assert "by-certificate" not in topics, "eve has a certificate, and no rights"
        refused(broker.client())
        says(broker, "the client has no certificate")


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    with ProtectedBroker(tmp_path) as broker:
        config = broker.client()
        stays = Producer(config)
        assert stays.list_topics(timeout=10).brokers
        before = shown_certificate(broker)
        Path(broker.path("server.pem")).write_text("nonsense")
        broker.process.send_signal(signal.SIGHUP)
        eventually(
            lambda: "the certificate stays as it was" in broker.diagnostics, what="a line of it"
        )
        assert shown_certificate(broker) == before
        for name in ("server.pem", "server.key"):
            Path(broker.path(name)).unlink()
        make_certificates(broker.certificates)
        broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: shown_certificate(broker) != before, what="the new certificate")
        assert stays.list_topics(timeout=10).brokers
        assert send_and_read(config, "renewed") == b"hello"


def shown_certificate(broker: ProtectedBroker) -> str:
    host, port = broker.bootstrap.rsplit(":", 1)
    return ssl.get_server_certificate((host, int(port)), timeout=10)


# --- secrets ------------------------------------------------------------------------------------


def test_no_secret_is_ever_written_to_the_diagnostics(tmp_path: Path) -> None:
    with ProtectedBroker(tmp_path, "--log-level", "debug") as broker:
        new = with_password("grace", b"hopper-secret", salt=b"salt-of-grace")
        admin = open_admin(broker.client())
        admin.alter_user_scram_credentials([new])["grace"].result()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
            assert Producer(broker.client(sasl_mechanism=mechanism)).list_topics(timeout=10)
            refused(
                broker.client(sasl_mechanism=mechanism, sasl_password="guess-1"),
                KafkaError._AUTHENTICATION,
            )
        records = b"".join(
            file.read_bytes() for file in (tmp_path / "data").glob("__millstream_metadata-0/*.log")
        )
        assert broker.stop() == 0
        assert b"stored_key" in records, "the keys are looked for in the right place"
        for secret in (PASSWORD, "hopper-secret", "guess-1", *stored_keys(records)):
            assert secret not in broker.diagnostics
            assert secret.encode().hex() not in broker.diagnostics
        assert "logged in" in broker.diagnostics


def stored_keys(records: bytes) -> list[str]:
    """What the broker keeps of passwords, in base64 as it is stored."""
    found = re.findall(rb'"(?:stored_key|server_key|salt)": "([^"]+)"', records)
    assert len(found) >= 9
    return [each.decode() for each in found]
