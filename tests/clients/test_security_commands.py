"""`millstream users` and `certs`, how the client commands log in, and what they say if they cannot.

The embedded `Broker` with TLS and a login is behind them: what an application's tests would use.
"""

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from millstream import Broker
from millstream.commands.connecting import NotInCertificate, client_config, trouble_from
from millstream.embedded import BrokerMisused
from millstream.setting_kinds import parse_addresses
from tests.clients.test_cli_commands import Cli
from tests.support.waiting import eventually

ADMIN, PASSWORD = "admin", "pa$$ word, 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protected")
    hosts = ("--host", "localhost", "--host", "127.0.0.1")
    Cli("").run("certs", str(folder / "certificates"), *hosts)
    secret_file(folder / "password", PASSWORD)
    return folder


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    broker = Broker(
        tls_certificate=folder / "certificates" / "server.pem",
        tls_key=folder / "certificates" / "server.key",
        sasl="SCRAM-SHA-256,SCRAM-SHA-512",
        super_users=f"User:{ADMIN}",
    )
    broker.add_user(ADMIN, PASSWORD)
    with broker:
        yield broker


@pytest.fixture
def cli(broker: Broker, folder: Path) -> Cli:
    cli = Cli(broker.bootstrap)
    cli.env |= {
        "MILLSTREAM_TLS_CA": str(folder / "certificates" / "ca.pem"),
        "MILLSTREAM_USER": ADMIN,
        "MILLSTREAM_PASSWORD_FILE": str(folder / "password"),
    }
    return cli


def secret_file(path: Path, content: str) -> str:
    path.write_text(f"{content}\n")
    path.chmod(0o600)
    return str(path)


def test_commands_log_in_as_the_settings_say(cli: Cli) -> None:
    cli.run("produce", "orders", stdin="one\n")
    assert cli.lines("orders") == ["one"]


def test_users_are_added_listed_and_removed(cli: Cli, broker: Broker, tmp_path: Path) -> None:
    password = cli.run("users", "add", "ada", "--generate").strip()
    assert {"user": "ada", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]} in cli.json(
        "users", "list"
    )
    ada = Cli(broker.bootstrap)
    ada.env = cli.env | {
        "MILLSTREAM_USER": "ada",
        "MILLSTREAM_PASSWORD_FILE": secret_file(tmp_path / "ada", password),
        "MILLSTREAM_SASL_MECHANISM": "SCRAM-SHA-512",
    }
    assert ada.run("topics", "list") is not None
    assert "does not exist" in cli.fail("users", "remove", "adda", "--yes")
    cli.run("users", "remove", "ada", "--yes")
    for command in (("topics", "list"), ("capture", "list"), ("queues", "list")):
        said = ada.fail(*command, exit_code=77)
        assert "refuses the login of ada" in said
        assert "user name or password are not right" in said
    cli.run("users", "add", "ada", "--password-file", "-", stdin=password)
    assert ada.run("topics", "list") is not None  # one try for each command holds nobody off


def test_a_new_password_replaces_the_old_one(cli: Cli, broker: Broker, folder: Path) -> None:
    for password in ("first", "second"):
        cli.said("users", "add", "grace", "--password-file", "-", stdin=f"{password}\n")
    config = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": cli.env["MILLSTREAM_TLS_CA"],
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "grace",
        "sasl.password": "second",
    }
    assert Producer(config).list_topics(timeout=20).brokers


def test_a_command_without_tls_or_login_says_what_is_missing(cli: Cli, broker: Broker) -> None:
    assert "it may want TLS (MILLSTREAM_TLS_CA)" in Cli(broker.bootstrap).fail("topics", "list")


def test_a_command_that_trusts_another_authority_names_the_setting(
    cli: Cli, tmp_path: Path
) -> None:
    cli.run("certs", str(tmp_path), "--host", "elsewhere")
    cli.env["MILLSTREAM_TLS_CA"] = str(tmp_path / "ca.pem")
    said = cli.fail("topics", "list")
    assert "certificate verify failed" in said
    assert "MILLSTREAM_TLS_CA" in said


def test_a_name_that_is_not_in_the_certificate_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka has the same words for it as for another authority."""
    Cli("").run("certs", str(tmp_path), "--host", "elsewhere")
    monkeypatch.setenv("MILLSTREAM_TLS_CA", str(tmp_path / "ca.pem"))
    errors: list[KafkaError] = []
    with Broker(tls_certificate=tmp_path / "server.pem", tls_key=tmp_path / "server.key") as broker:
        config = client_config(parse_addresses(broker.bootstrap))
        client = Producer(config | {"error_cb": errors.append})

        def is_told() -> bool:
            client.poll(0.05)
            return "_SSL" in {error.name() for error in errors}

        eventually(is_told, what="an error of TLS")
        trouble = trouble_from(errors, brokers=broker.bootstrap, user="")
        assert isinstance(trouble, NotInCertificate)
        assert f"the broker at {broker.bootstrap} is not for 127.0.0.1" in str(trouble)


def test_who_may_not_list_users_is_told_what_it_takes(
    cli: Cli, broker: Broker, tmp_path: Path
) -> None:
    """librdkafka ends the process with a signal when the broker refuses: it is not asked."""
    password = cli.run("users", "add", "eve", "--generate").strip()
    eve = Cli(broker.bootstrap)
    eve.env = cli.env | {
        "MILLSTREAM_USER": "eve",
        "MILLSTREAM_PASSWORD_FILE": secret_file(tmp_path / "eve", password),
    }
    for command in (("list",), ("remove", "admin", "--yes")):
        said = eve.fail("users", *command, exit_code=77)
        assert "Cannot list users" in said
        assert "describe on the cluster" in said


def test_a_file_that_is_no_authority_is_named(cli: Cli, tmp_path: Path) -> None:
    cli.env["MILLSTREAM_TLS_CA"] = secret_file(tmp_path / "nonsense", "nonsense")
    assert f"{tmp_path / 'nonsense'}: not usable for TLS" in cli.fail("topics", "list")
    cli.env["MILLSTREAM_TLS_CA"] = str(tmp_path / "nowhere")
    assert f"{tmp_path / 'nowhere'}: no such file" in cli.fail("topics", "list")


def test_a_password_that_others_can_read_is_not_used(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "open"
    file.write_text("secret")
    file.chmod(0o644)
    cli.env["MILLSTREAM_PASSWORD_FILE"] = str(file)
    assert "every user of the machine can read this password" in cli.fail("topics", "list")
    file.write_text("\n")
    file.chmod(0o600)
    assert "its first line is empty" in cli.fail("topics", "list")
    cli.env["MILLSTREAM_PASSWORD_FILE"] = "none"
    assert "there is no terminal to ask at" in cli.fail("topics", "list")


def test_plain_without_tls_is_refused_before_anything_is_sent(cli: Cli) -> None:
    cli.env |= {"MILLSTREAM_TLS_CA": "none", "MILLSTREAM_SASL_MECHANISM": "PLAIN"}
    assert "would show the password" in cli.fail("topics", "list", exit_code=2)


def test_certificates_are_not_overwritten_and_keys_are_secret(cli: Cli, folder: Path) -> None:
    certificates = folder / "certificates"
    assert "is not overwritten" in cli.fail("certs", str(certificates), "--host", "localhost")
    cli.run("certs", str(certificates), "--client", "ada")
    for name in ("ca.key", "server.key", "ada.key"):
        assert stat.S_IMODE((certificates / name).stat().st_mode) == 0o600
    assert "name at least one --host" in cli.fail("certs", str(certificates), exit_code=2)


def test_a_user_is_added_offline_only_to_a_broker_that_is_stopped(broker: Broker) -> None:
    with pytest.raises(BrokerMisused, match="stopped"):
        broker.add_user("ada", "secret")
    command = [sys.executable, "-m", "millstream", "users", "add", "ada", "--generate"]
    done = subprocess.run(
        [*command, "--data", str(broker.data_dir)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "in use" in done.stderr or "process" in done.stderr
    assert done.stdout == ""
