"""Nothing listens beyond loopback without protection, unless somebody says so in words."""

import pytest

from millstream.broker.security.listening import (
    OPEN_TO_ANYONE,
    Listener,
    OpenListener,
    UnprotectedPlain,
    check_listeners,
)

LOOPBACK = ["127.0.0.1", "127.8.9.10", "localhost", "LOCALHOST", "::1", "[::1]", "::ffff:127.0.0.1"]
BEYOND = [
    "0.0.0.0",
    "::",
    "",
    "10.0.0.1",
    "192.168.1.5",
    "::ffff:10.0.0.1",
    "fe80::1%eth0",
    "broker.example.com",
    "localhost.example.com",
    "127.0.0.1.example.com",
    "my-host",
]


def listener(host: str, *, has_tls: bool = False, has_login: bool = False) -> Listener:
    return Listener(host=host, port=9092, has_tls=has_tls, has_login=has_login)


@pytest.mark.parametrize("host", LOOPBACK)
def test_on_loopback_nothing_is_needed(host: str) -> None:
    assert check_listeners([listener(host)]) == []


@pytest.mark.parametrize("host", BEYOND)
@pytest.mark.parametrize(("has_tls", "has_login"), [(False, False), (True, False), (False, True)])
def test_beyond_it_both_tls_and_a_login_are_needed(
    host: str, has_tls: bool, has_login: bool
) -> None:
    with pytest.raises(OpenListener, match="Listen on 127"):
        check_listeners([listener(host, has_tls=has_tls, has_login=has_login)])


@pytest.mark.parametrize("host", BEYOND)
def test_with_both_it_may_listen_anywhere(host: str) -> None:
    assert check_listeners([listener(host, has_tls=True, has_login=True)]) == []


def test_one_open_listener_among_good_ones_is_enough_to_refuse() -> None:
    good = listener("10.0.0.1", has_tls=True, has_login=True)
    with pytest.raises(OpenListener) as caught:
        check_listeners([listener("127.0.0.1"), good, listener("0.0.0.0")])
    assert caught.value.listener.host == "0.0.0.0"


def test_the_words_open_it_with_a_warning_that_says_what_is_missing() -> None:
    warnings = check_listeners([listener("0.0.0.0")], open_listeners=OPEN_TO_ANYONE)
    assert warnings == ["0.0.0.0:9092 is open without TLS and a login (SASL)"]


@pytest.mark.parametrize("words", ["true", "yes", "1", OPEN_TO_ANYONE.upper()])
def test_other_words_do_not(words: str) -> None:
    with pytest.raises(OpenListener, match="anyone-on-the-network"):
        check_listeners([listener("0.0.0.0")], open_listeners=words)


def test_passwords_do_not_cross_a_network_as_they_are_whatever_the_words() -> None:
    exposed = listener("10.0.0.1", has_login=True)
    with pytest.raises(UnprotectedPlain):
        check_listeners([exposed], mechanisms=["PLAIN"], open_listeners=OPEN_TO_ANYONE)
    assert check_listeners([exposed], mechanisms=["SCRAM-SHA-256"], open_listeners=OPEN_TO_ANYONE)
    local = listener("127.0.0.1", has_login=True)
    assert check_listeners([local], mechanisms=["PLAIN"]) == []
