import asyncio
import ipaddress
import resource
import sys
from dataclasses import fields
from typing import Any

import pytest

from millstream import app
from millstream.broker.config import BrokerConfig
from millstream.settings import Address, BrokerSettings

# Settings that are not handed on under their own name.
TRANSLATED = {"data", "listen", "durability", "log_level"}


def test_every_setting_reaches_the_broker() -> None:
    names = {field.name for field in fields(BrokerSettings)} - TRANSLATED
    assert names <= {field.name for field in fields(BrokerConfig)}
    changed: dict[str, Any] = {
        name: not value if isinstance(value, bool) else value + 1
        for name in names
        if (value := getattr(BrokerSettings(), name)) is not None
    }
    config = app.broker_config(BrokerSettings(**changed))
    assert {name: getattr(config, name) for name in names} == changed


def test_the_address_and_the_durability_are_translated() -> None:
    settings = BrokerSettings(listen=Address("0.0.0.0", 1234), durability="relaxed")
    config = app.broker_config(settings)
    assert (config.host, config.port, config.is_relaxed) == ("0.0.0.0", 1234, True)
    assert not app.broker_config(BrokerSettings()).is_relaxed


def test_nothing_listens_beyond_loopback_unless_told_to() -> None:
    assert ipaddress.ip_address(BrokerSettings().listen.host).is_loopback
    assert ipaddress.ip_address(BrokerConfig().host).is_loopback


def test_the_defaults_of_settings_and_broker_agree() -> None:
    assert app.broker_config(BrokerSettings()) == BrokerConfig()


def test_the_loop_is_uvloops_and_asyncios_where_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with app._event_loop() as loop:
        assert type(loop).__module__.startswith("uvloop")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with app._event_loop() as loop:
        assert isinstance(loop, asyncio.SelectorEventLoop)
    assert loop.is_closed()


def test_the_broker_takes_as_many_files_as_the_system_gives() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        app._raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
