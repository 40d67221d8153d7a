"""One connection from a stranger to a principal."""

import pytest

from millstream.broker.security.credentials import (
    SHA_256,
    SHA_512,
    CredentialId,
    Credentials,
    credential_from_password,
)
from millstream.broker.security.exchange import Exchange
from millstream.broker.security.plain import PlainStart
from millstream.broker.security.sasl_session import (
    RENEWAL_INTERVAL_MS_MIN,
    NotAuthenticated,
    SaslSession,
    SessionExpired,
    SessionState,
)
from millstream.broker.security.scram import ScramStart
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages import ApiKey
from tests.unit.broker.security.test_scram import SECRET, SERVER_NONCE, Client

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
E = ErrorCode
KNOWN = Credentials(
    SECRET,
    {
        CredentialId(user, mechanism): credential_from_password(
            mechanism, f"{user}!", salt=b"salt" * 4
        )
        for user in ("ada", "bob")
        for mechanism in (SHA_256, SHA_512)
    },
)


def plain() -> Exchange:
    return PlainStart(KNOWN)


def scram() -> Exchange:
    return ScramStart(SHA_256, KNOWN, SERVER_NONCE)


def session(**more: int) -> SaslSession:
    return SaslSession({"PLAIN": plain, "SCRAM-SHA-256": scram}, **more)


def logged_in(user: str = "ada", *, lifetime_ms: int = 0) -> SaslSession:
    one = session(lifetime_ms=lifetime_ms)
    one.handshake("PLAIN", version=1, now_ms=NOW_MS)
    response = one.authenticate(f"\0{user}\0{user}!".encode(), now_ms=NOW_MS)
    assert response.error_code == E.NONE
    return one


def begun(mechanism: str = "PLAIN", version: int = 1) -> SaslSession:
    one = session()
    assert one.handshake(mechanism, version=version, now_ms=NOW_MS).error_code == E.NONE
    return one


def is_allowed(one: SaslSession, api_key: int, *, now_ms: int = NOW_MS) -> bool:
    try:
        one.check_allowed(api_key, now_ms=now_ms)
    except (NotAuthenticated, SessionExpired):
        return False
    return True


# --- what may be called when ------------------------------------------------------------------


def test_a_stranger_may_ask_for_versions_and_begin() -> None:
    allowed = {key for key in ApiKey if is_allowed(session(), key)}
    assert allowed == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}


def test_in_the_middle_of_an_exchange_only_its_messages_are_allowed() -> None:
    allowed = {key for key in ApiKey if is_allowed(begun(), key)}
    assert allowed == {ApiKey.SASL_AUTHENTICATE}


def test_after_the_login_everything_may_be_called() -> None:
    assert all(is_allowed(logged_in(), key) for key in ApiKey)


def test_after_a_failure_nothing_may_be_called() -> None:
    one = begun()
    one.authenticate(b"\0ada\0wrong", now_ms=NOW_MS)
    assert not any(is_allowed(one, key) for key in ApiKey)


# --- the login --------------------------------------------------------------------------------


def test_plain_takes_one_message() -> None:
    one = logged_in()
    assert (one.state, one.principal) == (SessionState.AUTHENTICATED, "User:ada")
    assert one.expires_ms is None


def test_scram_takes_two_messages() -> None:
    one, client = begun("SCRAM-SHA-256"), Client("ada", "ada!")
    first = one.authenticate(client.first(), now_ms=NOW_MS)
    assert one.principal is None
    last = one.authenticate(client.final(bytes(first.auth_bytes)), now_ms=NOW_MS)
    assert (last.error_code, last.auth_bytes) == (E.NONE, client.expected)
    assert one.principal == "User:ada"


def test_messages_may_come_bare_after_an_old_handshake() -> None:
    one, client = begun("SCRAM-SHA-256", version=0), Client("ada", "ada!")
    assert one.receives_bare_messages
    first = one.take_bare_message(client.first(), now_ms=NOW_MS)
    assert first is not None
    assert one.take_bare_message(client.final(first), now_ms=NOW_MS) == client.expected
    assert not one.receives_bare_messages
    assert one.principal == "User:ada"


def test_a_bare_failure_has_no_answer() -> None:
    one = begun(version=0)
    assert one.take_bare_message(b"\0ada\0wrong", now_ms=NOW_MS) is None
    assert one.must_close


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are() -> None:
    one = session()
    response = one.handshake("GSSAPI", version=1, now_ms=NOW_MS)
    assert response.error_code == E.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert one.must_close


@pytest.mark.parametrize("message", [b"\0ada\0wrong", b"\0eve\0eve!", b"nonsense"])
def test_a_failed_login_is_answered_and_then_the_connection_ends(message: bytes) -> None:
    one = begun()
    response = one.authenticate(message, now_ms=NOW_MS)
    assert response.error_code == E.SASL_AUTHENTICATION_FAILED
    assert one.must_close
    assert one.principal is None
    assert one.failure is not None


def test_authenticate_without_a_handshake_is_out_of_place() -> None:
    assert session().authenticate(b"", now_ms=NOW_MS).error_code == E.ILLEGAL_SASL_STATE
    one = logged_in()
    assert one.authenticate(b"", now_ms=NOW_MS).error_code == E.ILLEGAL_SASL_STATE
    assert one.principal == "User:ada"


def test_the_user_of_a_message_is_known_before_it_is_checked() -> None:
    assert begun().claimed_user(b"\0ada\0x") == "ada"
    assert begun().claimed_user(b"nonsense") is None
    one, client = begun("SCRAM-SHA-256"), Client("ada", "ada!")
    assert one.claimed_user(client.first()) is None
    one.authenticate(client.first(), now_ms=NOW_MS)
    assert one.claimed_user(b"any") == "ada"


# --- a login of limited life (KIP-368) --------------------------------------------------------


def renew(one: SaslSession, message: bytes, *, mechanism: str = "PLAIN", now_ms: int) -> int:
    handshake = one.handshake(mechanism, version=1, now_ms=now_ms)
    if handshake.error_code != E.NONE:
        return handshake.error_code
    return one.authenticate(message, now_ms=now_ms).error_code


def test_the_lifetime_is_told_at_the_end_of_the_login_only() -> None:
    one, client = session(lifetime_ms=HOUR_MS), Client("ada", "ada!")
    one.handshake("SCRAM-SHA-256", version=1, now_ms=NOW_MS)
    first = one.authenticate(client.first(), now_ms=NOW_MS)
    assert first.session_lifetime_ms == 0
    last = one.authenticate(client.final(bytes(first.auth_bytes)), now_ms=NOW_MS)
    assert last.session_lifetime_ms == HOUR_MS


def test_when_a_login_is_over_only_a_renewal_is_allowed() -> None:
    one = logged_in(lifetime_ms=HOUR_MS)
    end_ms = NOW_MS + HOUR_MS
    assert is_allowed(one, ApiKey.PRODUCE, now_ms=end_ms)
    with pytest.raises(SessionExpired, match="User:ada"):
        one.check_allowed(ApiKey.PRODUCE, now_ms=end_ms + 1)
    assert is_allowed(one, ApiKey.SASL_HANDSHAKE, now_ms=end_ms + 1)


def test_a_renewed_login_begins_anew() -> None:
    one = logged_in(lifetime_ms=HOUR_MS)
    later_ms = NOW_MS + HOUR_MS - 1
    assert renew(one, b"\0ada\0ada!", now_ms=later_ms) == E.NONE
    assert one.expires_ms == later_ms + HOUR_MS


def test_during_a_renewal_nothing_else_is_served() -> None:
    one = logged_in(lifetime_ms=HOUR_MS)
    one.handshake("PLAIN", version=1, now_ms=NOW_MS + 60_000)
    assert not is_allowed(one, ApiKey.PRODUCE, now_ms=NOW_MS + 60_000)


def test_a_login_cannot_be_renewed_by_another_user() -> None:
    one = logged_in(lifetime_ms=HOUR_MS)
    later_ms = NOW_MS + 60_000
    assert renew(one, b"\0bob\0bob!", now_ms=later_ms) == E.SASL_AUTHENTICATION_FAILED
    assert one.must_close
    assert one.principal is None


def test_a_login_cannot_be_renewed_by_another_mechanism() -> None:
    one = logged_in(lifetime_ms=HOUR_MS)
    client = Client("ada", "ada!")
    code = renew(one, client.first(), mechanism="SCRAM-SHA-256", now_ms=NOW_MS + 60_000)
    assert code == E.SASL_AUTHENTICATION_FAILED
    assert one.must_close


def test_a_wrong_password_ends_the_login_that_it_should_renew() -> None:
    one = logged_in(lifetime_ms=HOUR_MS)
    assert renew(one, b"\0ada\0wrong", now_ms=NOW_MS + 60_000) == E.SASL_AUTHENTICATION_FAILED
    assert one.principal is None


def test_a_renewal_right_after_the_login_is_too_early() -> None:
    one = logged_in(lifetime_ms=HOUR_MS)
    early_ms = NOW_MS + RENEWAL_INTERVAL_MS_MIN - 1
    assert renew(one, b"", now_ms=early_ms) == E.ILLEGAL_SASL_STATE
    assert one.principal == "User:ada"
    assert renew(one, b"\0ada\0ada!", now_ms=early_ms + 1) == E.NONE
