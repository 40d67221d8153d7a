"""A broker with TLS and logins, as an operator sets one up: its own authority, and one user."""

import datetime
import json
from pathlib import Path
from typing import Any

from millstream.broker.security.certificates import write_test_certificates
from millstream.running import change_stopped
from millstream.settings import BrokerSettings
from tests.support.broker_process import BrokerProcess

USER, PASSWORD = "ada", "ada, the 1=st"
EVERY_MECHANISM = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"


def make_certificates(folder: Path, *clients: str) -> Path:
    now = datetime.datetime.now(datetime.UTC)
    hosts = ["localhost", "127.0.0.1"]
    write_test_certificates(folder, hosts=hosts, clients=clients, now=now)
    return folder


def add_user(data_dir: Path, user: str = USER, password: str = PASSWORD) -> None:
    """Into the data of a broker that does not run."""
    change_stopped(BrokerSettings(data=data_dir), lambda node: node.logins.add_user(user, password))


class ProtectedBroker(BrokerProcess):
    """SASL_SSL on loopback, or what the options make of it; `ada` may do everything."""

    def __init__(
        self, folder: Path, *options: str, sasl: str = EVERY_MECHANISM, has_tls: bool = True
    ) -> None:
        self.certificates = folder / "certificates"
        self.sasl, self.has_tls = sasl, has_tls
        data_dir = folder / "data"
        if has_tls and not self.certificates.exists():
            make_certificates(self.certificates)
        if not data_dir.exists():
            add_user(data_dir)
        tls = ("--tls-certificate", self.path("server.pem"), "--tls-key", self.path("server.key"))
        login = ("--sasl", sasl, "--super-users", f"User:{USER}")
        super().__init__(data_dir, *(tls if has_tls else ()), *(login if sasl else ()), *options)

    def path(self, name: str) -> str:
        return str(self.certificates / name)

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.sasl else "") + ("SSL" if self.has_tls else "PLAINTEXT")

    def client(self, **more: Any) -> dict[str, Any]:
        """What librdkafka needs to know to log in as `ada`."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "log_level": 0,
        }
        if self.has_tls:
            config["ssl.ca.location"] = self.path("ca.pem")
        if self.sasl:
            config |= {
                "sasl.mechanism": self.sasl.split(",")[0],
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        return config | {name.replace("_", "."): value for name, value in more.items()}

    def java_client(self, file: Path, mechanism: str = "SCRAM-SHA-256") -> Path:
        """The same for Kafka's own tools: a properties file, written."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        properties = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.path("ca.pem"),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": (
                f"{module} required username={json.dumps(USER)} password={json.dumps(PASSWORD)};"
            ),
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return file
