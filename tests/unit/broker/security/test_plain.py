"""PLAIN against the credentials of SCRAM."""

import pytest

from millstream.broker.security.credentials import SHA_256, SHA_512, CredentialId, Credentials
from millstream.broker.security.credentials import credential_from_password as credential
from millstream.broker.security.exchange import AuthenticationFailed, MalformedSaslMessage
from millstream.broker.security.plain import PlainStart
from tests.unit.broker.security.test_scram import SECRET, CountingMechanism

KNOWN = Credentials(
    SECRET,
    {
        CredentialId("ada", SHA_256): credential(SHA_256, "ada!", salt=b"salt"),
        CredentialId("bob", SHA_512): credential(SHA_512, "bob!", salt=b"salt"),
        CredentialId("cy", SHA_256): credential(SHA_256, "old", salt=b"salt"),
        CredentialId("cy", SHA_512): credential(SHA_512, "new", salt=b"salt"),
    },
)


@pytest.mark.parametrize(
    ("message", "user"),
    [(b"\0ada\0ada!", "ada"), (b"bob\0bob\0bob!", "bob"), (b"\0cy\0new", "cy")],
)
def test_the_right_password_gets_in(message: bytes, user: str) -> None:
    begun = PlainStart(KNOWN)
    assert begun.claimed_user(message) == user
    step = begun.take(message)
    assert (step.user, step.reply, step.then) == (user, b"", None)


@pytest.mark.parametrize("message", [b"\0ada\0bob!", b"\0eve\0eve!", b"\0cy\0old"])
def test_a_wrong_password_and_an_unknown_user_fail_alike(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="user name or password") as caught:
        PlainStart(KNOWN).take(message)
    assert not isinstance(caught.value, MalformedSaslMessage)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "NUL"),
        (b"ada\0ada!", "NUL"),
        (b"\0ada\0ada!\0", "NUL"),
        (b"\0\xff\0x", "NUL"),
        (b"\0\0ada!", "empty"),
        (b"\0ada\0", "empty"),
        (b"root\0ada\0ada!", "another user"),
        (b"\0" + b"a" * 256 + b"\0x", "255"),
        (b"\0ada\0" + b"x" * 20_000, "allowed"),
    ],
)
def test_a_message_that_is_not_right_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(MalformedSaslMessage, match=why):
        PlainStart(KNOWN).take(message)


def test_an_unknown_user_costs_as_much_as_a_wrong_password() -> None:
    counting = CountingMechanism("SCRAM-SHA-256", 1, "sha256")
    known = Credentials(
        SECRET, {CredentialId("ada", counting): credential(SHA_256, "ada!", salt=b"salt" * 4)}
    )
    work = []
    for message in (b"\0ada\0nope", b"\0eve\0nope"):
        counting.work.clear()
        with pytest.raises(AuthenticationFailed):
            PlainStart(known, (counting,)).take(message)
        work.append(list(counting.work))
    assert work[0] == work[1]
    assert "4096 iterations over 16" in work[0]
