"""How a cluster is reached: addresses, TLS and login, read from librdkafka's own config names.

One config serves both of a queue's clients, librdkafka that puts and ours that gets, so they cannot
disagree. Opens nothing.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from millstream.base.errors import Rejected

PORT_DEFAULT = 9092
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnusableAccess(Rejected):
    def __init__(self, *, name: str, value: object, allowed: str) -> None:
        super().__init__(
            f"{name}={value!r} is not known to Millstream's own client, which queues and "
            f"doctor use: give {allowed}"
        )
        self.name, self.value = name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    ca: Path | None = None  # else the system's
    certificate: Path | None = None  # for a broker that asks its clients for one
    key: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    checks_certificate: bool = True

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        context.check_hostname = self.checks_host and self.checks_certificate
        if not self.checks_certificate:
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, self.key_password)
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    mechanism: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    brokers: tuple[Address, ...]
    tls: Tls | None = None
    credentials: Credentials | None = None

    def __str__(self) -> str:
        return ",".join(map(str, self.brokers))


def access_from(config: Mapping[str, object]) -> Access:
    """From a librdkafka config; what a queue's own client cannot do is refused, never left out."""
    protocol = str(config.get("security.protocol", "plaintext")).lower()
    if protocol not in PROTOCOLS:
        allowed = ", ".join(PROTOCOLS)
        raise UnusableAccess(name="security.protocol", value=protocol, allowed=allowed)
    return Access(
        brokers=addresses_from(str(config["bootstrap.servers"])),
        tls=_tls_from(config) if protocol.endswith("ssl") else None,
        credentials=_credentials_from(config) if protocol.startswith("sasl") else None,
    )


def addresses_from(text: str) -> tuple[Address, ...]:
    return tuple(_address_from(part.strip()) for part in text.split(",") if part.strip())


def _address_from(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return Address(text.strip("[]"), PORT_DEFAULT)
    if not port.isdecimal():
        raise UnusableAccess(name="bootstrap.servers", value=text, allowed="host:port")
    return Address(host.strip("[]"), int(port))


def _tls_from(config: Mapping[str, object]) -> Tls:
    password = config.get("ssl.key.password")
    identification = config.get("ssl.endpoint.identification.algorithm", "https")
    verification = config.get("enable.ssl.certificate.verification", True)
    return Tls(
        ca=_path(config, "ssl.ca.location"),
        certificate=_path(config, "ssl.certificate.location"),
        key=_path(config, "ssl.key.location"),
        key_password=None if password is None else str(password),
        checks_host=str(identification).lower() == "https",
        checks_certificate=str(verification).lower() == "true",
    )


def _path(config: Mapping[str, object], name: str) -> Path | None:
    value = config.get(name)
    return Path(str(value)) if value else None


def _credentials_from(config: Mapping[str, object]) -> Credentials:
    mechanism = str(config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "")
    if mechanism not in MECHANISMS:
        allowed = ", ".join(MECHANISMS)
        raise UnusableAccess(name="sasl.mechanism", value=mechanism, allowed=allowed)
    return Credentials(
        mechanism=mechanism,
        user=str(config.get("sasl.username", "")),
        password=str(config.get("sasl.password", "")),
    )
