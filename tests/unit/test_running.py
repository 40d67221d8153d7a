import asyncio
import ipaddress
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from millstream import running
from millstream.broker.config import BrokerConfig
from millstream.broker.security.tls import ClientCertificates
from millstream.setting_kinds import Address
from millstream.settings import BrokerSettings

# Settings that are not handed on under their own name.
TRANSLATED = {"data", "listen", "durability", "log_level", "advertise", "sasl", "sasl_session_ms"}
TRANSLATED |= {"tls_certificate", "tls_key", "tls_client_ca", "authorization", "super_users"}
TRANSLATED |= {"metrics_listen"}


def test_every_setting_reaches_the_broker() -> None:
    names = {field.name for field in fields(BrokerSettings)} - TRANSLATED
    knows_clients: dict[str, Any] = {"sasl": ("PLAIN",)}
    assert names <= {field.name for field in fields(BrokerConfig)}
    changed: dict[str, Any] = {
        name: _another(value)
        for name in names
        if (value := getattr(BrokerSettings(), name)) is not None
    }
    config = running.broker_config(BrokerSettings(**knows_clients, **changed))
    assert {name: getattr(config, name) for name in names} == changed


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + ("another" if isinstance(value, str) else 1)


def test_what_protects_the_listener_is_translated() -> None:
    names = ("tls_certificate", "tls_key", "tls_client_ca")
    files: dict[str, Any] = {name: Path(name) for name in names}
    settings = BrokerSettings(
        **files, sasl=("PLAIN",), sasl_session_ms=1_000, advertise=Address("broker.example", 0)
    )
    config = running.broker_config(settings)
    assert config.tls is not None
    assert {config.tls.certificate, config.tls.key, config.tls.ca} == set(files.values())
    assert config.tls.client_certificates is ClientCertificates.REQUIRED
    assert (config.sasl_mechanisms, config.sasl_session_ms) == (("PLAIN",), 1_000)
    assert config.advertised == ("broker.example", 0)


@pytest.mark.parametrize(
    ("given", "is_on"),
    [
        ({}, False),
        ({"sasl": ("PLAIN",)}, True),
        ({"sasl": ("PLAIN",), "authorization": "off"}, False),
        ({"authorization": "on"}, True),
    ],
)
def test_rules_decide_where_clients_must_say_who_they_are(
    given: dict[str, Any], is_on: bool
) -> None:
    if given:
        given = given | {"super_users": ("User:admin",)}
    config = running.broker_config(BrokerSettings(**given))
    assert config.is_authorizing is is_on
    assert config.super_users == given.get("super_users", ())


@pytest.mark.parametrize(
    ("given", "per_address"),
    [
        ({}, 1_000),
        ({"connections_max": 400}, 100),
        ({"connections_max": 3}, 1),
        ({"connections_max": 400, "connections_per_address_max": 400}, 400),
    ],
)
def test_one_address_has_a_quarter_of_the_connections_unless_told_otherwise(
    given: dict[str, Any], per_address: int
) -> None:
    config = running.broker_config(BrokerSettings(**given))
    assert config.connections_per_address_max == per_address


def test_the_address_and_the_durability_are_translated() -> None:
    settings = BrokerSettings(listen=Address("0.0.0.0", 1234), durability="relaxed")
    config = running.broker_config(settings)
    assert (config.host, config.port, config.is_relaxed) == ("0.0.0.0", 1234, True)
    assert not running.broker_config(BrokerSettings()).is_relaxed


def test_nothing_listens_beyond_loopback_unless_told_to() -> None:
    assert ipaddress.ip_address(BrokerSettings().listen.host).is_loopback
    assert ipaddress.ip_address(BrokerConfig().host).is_loopback


def test_the_defaults_of_settings_and_broker_agree() -> None:
    assert running.broker_config(BrokerSettings()) == BrokerConfig()


def test_the_loop_is_uvloops_and_asyncios_where_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running._event_loop() as loop:
        assert type(loop).__module__.startswith("uvloop")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with running._event_loop() as loop:
        assert isinstance(loop, asyncio.SelectorEventLoop)
    assert loop.is_closed()
