"""The client's side, tried on the broker's: whoever lets the right password in refuses others."""

import pytest

from millstream.broker.security.credentials import (
    MECHANISMS,
    SHA_256,
    CredentialId,
    credential_from_password,
)
from millstream.broker.security.credentials import Credentials as KnownUsers
from millstream.broker.security.exchange import AuthenticationFailed, Exchange
from millstream.broker.security.scram import ScramStart
from millstream.queues.access import Credentials
from millstream.queues.login import Login, LoginFailed, login_of

USER = "a=d,a"  # both characters have to be written otherwise in SCRAM


def users(password: str = "secret") -> KnownUsers:
    return KnownUsers(
        b"decoys",
        {
            CredentialId(USER, one): credential_from_password(one, password, salt=b"salt" * 4)
            for one in MECHANISMS.values()
        },
    )


def login(mechanism: str = SHA_256.name, password: str = "secret") -> Login:
    return login_of(Credentials(mechanism=mechanism, user=USER, password=password), nonce="fresh")


def log_in(client: Login, server: Exchange | None) -> str | None:
    message: bytes | None = client.first()
    user = None
    while message is not None:
        assert server is not None, "the client goes on after the end"
        step = server.take(message)
        server, user = step.then, step.user
        message = client.answer(step.reply)
    return user


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password_logs_in(mechanism: str) -> None:
    server = ScramStart(MECHANISMS[mechanism], users(), "servers")
    assert log_in(login(mechanism), server) == USER


def test_a_wrong_password_does_not() -> None:
    with pytest.raises(AuthenticationFailed):
        log_in(login(password="guess"), ScramStart(SHA_256, users(), "servers"))


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    client = login()
    client.first()
    client.answer(b"r=freshservers,s=c2FsdA==,i=4096")
    with pytest.raises(LoginFailed, match="does not know the password"):
        client.answer(b"v=" + b"A" * 43 + b"=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=stale,s=c2FsdA==,i=4096",  # somebody else's nonce
        b"r=freshservers,s=c2FsdA==,i=1",  # would show more of the password than it should
        b"r=freshservers,s=c2FsdA==,i=999999999",  # would compute for hours
        b"nonsense",
    ],
)
def test_a_challenge_that_no_honest_broker_sends_is_refused(challenge: bytes) -> None:
    client = login()
    client.first()
    with pytest.raises(LoginFailed):
        client.answer(challenge)


def test_plain_says_user_and_password_in_one_message() -> None:
    client = login("PLAIN")
    assert client.first() == b"\0a=d,a\0secret"
    assert client.answer(b"") is None
