"""Logins over a connection without a socket: what is allowed when, waited for, and counted; users
and quotas on their way to the disk."""

import asyncio
import logging
from typing import Any

import pytest

from millstream.broker.access.admission import NoRoom, Place
from millstream.broker.access.connection_login import LOGIN_FRAME_BYTES_MAX, LOGIN_MS_MAX
from millstream.broker.security.credentials import DECOY_SECRET_KEY
from millstream.broker.server import BrokerServer
from millstream.broker.wire import ErrorCode, Message, decode_response
from millstream.broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from millstream.broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from millstream.broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from millstream.broker.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.broker.wire.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode
from tests.support.socketless_client import SocketlessClient

PLAIN = {"sasl_mechanisms": ("PLAIN",)}


def served_with_user(serve: Serve, **config: Any) -> ServedNode:
    served = serve(**(PLAIN | config))
    served.run(served.node.logins.add_user("ada", "right"))
    return served


class Visitor(SocketlessClient):
    """A client that logs in by PLAIN."""

    def __init__(self, served: ServedNode, place: Place | None = None) -> None:
        super().__init__(served, place)
        self.served = served
        self._read = 0

    def ask(self, request: Message, response_class: Any, version: int = 0) -> Any:
        self.send(request, version)
        self.served.turn()
        return self.answer(response_class, version)

    def answer(self, response_class: Any, version: int = 0) -> Any:
        """The next one; None if there is none yet."""
        answers = self.answers()[self._read :]
        if not answers:
            return None
        self._read += 1
        return decode_response(response_class, version, answers[0])[1]

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)
        assert isinstance(answer, SaslHandshakeResponse)
        return answer

    def try_password(self, password: str) -> None:
        message = b"\0ada\0" + password.encode()
        self.send(SaslAuthenticateRequest(auth_bytes=message), 2)
        self.until_hashed()

    def until_hashed(self) -> None:
        """Until the thread that checks passwords has nothing left to do, and we have heard."""
        threads = self.served.node.logins.threads
        for _ in range(2):
            self.served.run(asyncio.wrap_future(threads.submit(int), loop=self.served.loop))
            self.served.turn()

    def log_in(self, password: str = "right") -> SaslAuthenticateResponse | None:
        assert self.handshake().error_code == 0
        self.try_password(password)
        answer = self.answer(SaslAuthenticateResponse, 2)
        assert answer is None or isinstance(answer, SaslAuthenticateResponse)
        return answer


def test_before_a_login_only_the_login_is_served(serve: Serve) -> None:
    served = served_with_user(serve)
    visitor = Visitor(served)
    assert (
        visitor.ask(
            ApiVersionsRequest(client_software_name="test", client_software_version="1.0"),
            ApiVersionsResponse,
        ).error_code
        == 0
    )
    visitor.send(MetadataRequest(topics=[]), 12)
    assert visitor.transport.is_closed
    assert len(visitor.answers()) == 1
    served.turn()


def test_after_a_login_the_caller_is_the_user(serve: Serve) -> None:
    served = served_with_user(serve)
    visitor = Visitor(served)
    assert visitor.connection.login.principal == "User:ANONYMOUS"
    answer = visitor.log_in()
    assert answer is not None
    assert answer.error_code == 0
    assert visitor.connection.login.principal == "User:ada"
    assert visitor.ask(MetadataRequest(topics=[]), MetadataResponse, 12) is not None
    assert served.node.logins.counts.succeeded == 1
    visitor.go()


@pytest.mark.parametrize(("password", "answers"), [("right", 3), ("wrong", 2)])
def test_what_is_sent_behind_a_login_waits_for_it(
    serve: Serve, password: str, answers: int
) -> None:
    served = served_with_user(serve)
    visitor = Visitor(served)
    visitor.handshake()
    message = b"\0ada\0" + password.encode()
    visitor.send(SaslAuthenticateRequest(auth_bytes=message), 2)
    visitor.send(MetadataRequest(topics=[]), 12)
    assert len(visitor.answers()) == 1
    visitor.until_hashed()
    assert len(visitor.answers()) == answers
    visitor.go()


def test_a_failed_login_is_answered_and_then_the_connection_closed(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = served_with_user(serve)
    visitor = Visitor(served)
    answer = visitor.log_in("wrong")
    assert answer is not None
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert visitor.transport.is_closed
    assert served.node.logins.counts.failed == 1
    assert "login from 192.0.2.7 by PLAIN failed: 'ada': wrong password" in caplog.text
    assert "wrong\n" not in caplog.text.replace("wrong password", "")


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(serve: Serve) -> None:
    visitor = Visitor(served_with_user(serve))
    answer = visitor.handshake("GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN"]
    assert visitor.transport.is_closed


def test_where_nobody_logs_in_a_handshake_is_out_of_place(serve: Serve) -> None:
    visitor = Visitor(serve())
    assert visitor.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert not visitor.transport.is_closed
    visitor.go()


def test_a_third_failure_makes_the_next_attempt_wait(serve: Serve) -> None:
    served = served_with_user(serve)
    for _ in range(3):
        assert Visitor(served).log_in("wrong") is not None
    visitor = Visitor(served)
    assert visitor.log_in() is None, "it is not its turn yet"
    served.advance(0.199)
    visitor.until_hashed()
    assert visitor.answer(SaslAuthenticateResponse, 2) is None
    served.advance(0.002)
    visitor.until_hashed()
    answer = visitor.answer(SaslAuthenticateResponse, 2)
    assert answer is not None
    assert answer.error_code == 0
    visitor.go()


def test_many_guesses_at_once_are_not_faster_than_one_after_the_other(serve: Serve) -> None:
    served = served_with_user(serve)
    guessers = [Visitor(served) for _ in range(10)]
    for guesser in guessers:
        guesser.handshake()
    for guesser in guessers:
        guesser.send(SaslAuthenticateRequest(auth_bytes=b"\0ada\0guess"), 2)
    for guesser in guessers:
        guesser.until_hashed()
    assert served.node.logins.counts.failed == 3
    for guesser in guessers:
        guesser.go()


def test_one_that_waits_for_its_turn_and_goes_leaves_nothing_behind(serve: Serve) -> None:
    served = served_with_user(serve)
    for _ in range(3):
        Visitor(served).log_in("wrong")
    visitor = Visitor(served)
    visitor.log_in()
    visitor.go()
    served.advance(1)
    assert served.node.logins.counts.succeeded == 0


def test_a_turn_that_is_far_away_is_refused_at_once_with_the_time(serve: Serve) -> None:
    served = served_with_user(serve)
    for _ in range(12):
        served.node.logins.attempts.failed("192.0.2.7", "ada", now_ms=served.now_ms)
    visitor = Visitor(served)
    answer = visitor.log_in()
    assert answer is not None
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message is not None
    assert "too many failed logins of this user from 192.0.2.7; try again in 31 s" in (
        answer.error_message
    )
    assert visitor.transport.is_closed


def test_whoever_else_guesses_there_a_right_password_gets_in_within_a_second(serve: Serve) -> None:
    served = served_with_user(serve)
    for number in range(1_000):
        attempts, user = served.node.logins.attempts, f"user{number % 10}"
        attempts.failed("192.0.2.7", user, now_ms=served.now_ms)
    visitor = Visitor(served)
    assert visitor.log_in() is None
    served.advance(1.001)
    visitor.until_hashed()
    assert visitor.connection.login.principal == "User:ada"
    visitor.go()


def test_one_that_goes_before_its_turn_leaves_it_to_another(serve: Serve) -> None:
    served = served_with_user(serve)
    for _ in range(3):
        Visitor(served).log_in("wrong")
    for _ in range(5):
        visitor = Visitor(served)
        assert visitor.log_in() is None
        visitor.go()
        served.turn()
    patient = Visitor(served)
    assert patient.log_in() is None
    served.advance(0.201)
    patient.until_hashed()
    answer = patient.answer(SaslAuthenticateResponse, 2)
    assert answer is not None
    assert answer.error_code == 0
    patient.go()


def test_a_login_makes_the_place_a_settled_one(serve: Serve) -> None:
    served = served_with_user(serve, connections_max=4)
    admission = served.node.admission
    visitor = Visitor(served, admission.enter("192.0.2.7"))
    with pytest.raises(NoRoom, match="without a login"):
        admission.enter("192.0.2.7")
    assert visitor.log_in() is not None
    admission.enter("192.0.2.7")
    visitor.go()


def test_messages_may_come_without_a_request_around_them(serve: Serve) -> None:
    served = served_with_user(serve)
    visitor = Visitor(served)
    assert visitor.handshake(version=0).error_code == 0
    visitor.send_frame(b"\0ada\0right")
    visitor.until_hashed()
    assert visitor.answers()[1:] == [b""]
    assert visitor.connection.login.principal == "User:ada"
    visitor.go()


def test_a_bare_message_with_a_wrong_password_closes_without_an_answer(serve: Serve) -> None:
    served = served_with_user(serve)
    visitor = Visitor(served)
    visitor.handshake(version=0)
    visitor.send_frame(b"\0ada\0wrong")
    visitor.until_hashed()
    assert len(visitor.answers()) == 1
    assert visitor.transport.is_closed


@pytest.mark.parametrize(("surplus", "is_closed"), [(0, False), (1, True)])
def test_before_a_login_requests_are_small(serve: Serve, surplus: int, is_closed: bool) -> None:
    visitor = Visitor(served_with_user(serve))
    size = LOGIN_FRAME_BYTES_MAX + surplus
    visitor.send_bytes(size.to_bytes(4, "big"))
    assert visitor.transport.is_closed is is_closed
    visitor.go()


def test_one_that_does_not_log_in_is_closed_after_a_while(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    served = served_with_user(serve)
    stranger, member = Visitor(served), Visitor(served)
    assert member.log_in() is not None
    close_idle = BrokerServer.close_idle
    for late_ms, is_closed in ((LOGIN_MS_MAX, False), (LOGIN_MS_MAX + 1, True)):
        close_idle(None, served.node, now_ms=served.now_ms + late_ms)  # type: ignore[arg-type]
        assert stranger.transport.is_closed is is_closed
    assert not member.transport.is_closed
    assert "without a login" in caplog.text
    member.go()


def test_an_expired_login_closes_the_connection(serve: Serve) -> None:
    served = served_with_user(serve, sasl_session_ms=60_000)
    visitor = Visitor(served)
    answer = visitor.log_in()
    assert answer is not None
    assert answer.session_lifetime_ms == 60_000
    served.advance(61)
    visitor.send(MetadataRequest(topics=[]), 12)
    assert visitor.transport.is_closed


def test_the_secret_of_decoys_is_made_once(serve: Serve) -> None:
    served = serve(**PLAIN)
    served.run(served.node.logins.keep_secret())
    first = dict(served.node.metadata)[DECOY_SECRET_KEY]
    assert len(first) == 32
    served.close()
    again = serve(**PLAIN)
    again.run(again.node.logins.keep_secret())
    assert dict(again.node.metadata)[DECOY_SECRET_KEY] == first


def test_without_logins_no_secret_is_kept(serve: Serve) -> None:
    served = serve()
    served.run(served.node.logins.keep_secret())
    assert DECOY_SECRET_KEY not in served.node.metadata


def test_a_user_can_log_in_when_that_is_on_disk_and_not_before(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    new = ScramCredentialUpsertion(
        name="ada", mechanism=1, iterations=4_096, salt=b"salt", salted_password=b"p" * 32
    )
    gate.shut()
    answer = served.ask_soon(AlterUserScramCredentialsRequest(upsertions=[new]))
    gate.until_a_sync_waits()
    assert not answer.done()
    assert not served.node.logins.credentials.users
    gate.open_gate()
    served.settle()
    assert answer.result().results[0].error_code == 0
    assert served.node.logins.credentials.users == ["ada"]


def test_a_quota_counts_when_it_is_on_disk_and_not_before(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    entity = [EntityData(entity_type="user", entity_name="ada")]
    entry = RequestEntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=1.0)])
    gate.shut()
    answer = served.ask_soon(AlterClientQuotasRequest(entries=[entry]))
    gate.until_a_sync_waits()
    assert not answer.done()
    assert not served.node.quotas.has_any
    gate.open_gate()
    served.settle()
    assert answer.result().entries[0].error_code == 0
    assert served.node.quotas.has_any
