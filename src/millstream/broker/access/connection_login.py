"""What one connection may do yet: nothing but log in, if logins are required, then everything.

The shell around `SaslSession`: it waits for the turn that a guesser must wait for, lets a thread
check a plain password, and counts how it went. It answers; `connection.py` sends and closes.
"""

import asyncio
from typing import Any

from millstream.broker.access.logins import Logins
from millstream.broker.security.acls import ANONYMOUS
from millstream.broker.security.exchange import AuthenticationFailed
from millstream.broker.security.login_attempts import TooManyAttempts
from millstream.broker.security.plain import PLAIN
from millstream.broker.security.sasl_session import SessionState
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from millstream.broker.wire.messages.sasl_handshake import SaslHandshakeResponse

# How long a connection may take to log in, apart from what we make it wait.
LOGIN_MS_MAX = 30_000
# A request before the login: more than any mechanism needs, and nothing that takes memory.
LOGIN_FRAME_BYTES_MAX = 32 << 10


class ConnectionLogin:
    """Owned by its connection. What requests ask of it is plain values, as each request asks.

    `principal` is who the other side has proved to be. `is_done`: requests are served; a login
    that is being renewed still counts. `must_close`: after the answer, if there is one.
    """

    __slots__ = (
        "_address",
        "_by_certificate",
        "_has_turn",
        "_is_refused",
        "_logins",
        "_mechanism",
        "_session",
        "is_done",
        "must_close",
        "principal",
        "receives_bare_messages",
    )

    def __init__(self, logins: Logins, address: str, *, principal: str | None = None) -> None:
        self._logins = logins
        self._address = address
        self._session = logins.open_session()
        self._by_certificate = principal
        self._mechanism = ""
        self._is_refused = False
        self._has_turn = False
        self._look()

    def _look(self) -> None:
        """After each step: where the session is now."""
        session = self._session
        by_login = session.principal if session else self._by_certificate
        self.principal = by_login or ANONYMOUS
        self.is_done = session is None or session.principal is not None
        self.must_close = self._is_refused or (session is not None and session.must_close)
        self.receives_bare_messages = session is not None and session.receives_bare_messages

    def check_allowed(self, api_key: int) -> None:
        """Raise unless this API may be called now; then the connection must be closed."""
        if self._session is not None:
            self._session.check_allowed(api_key, now_ms=self._logins.now_ms())

    # --- the login ----------------------------------------------------------------------------

    def handshake(self, mechanism: str, *, version: int) -> SaslHandshakeResponse:
        if self._session is None:  # as Kafka on a listener without SASL
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        self._mechanism = mechanism
        now_ms = self._logins.now_ms()
        answer = self._session.handshake(mechanism, version=version, now_ms=now_ms)
        self._look()
        return answer

    async def authenticate(self, message: bytes) -> SaslAuthenticateResponse:
        """The answer to SaslAuthenticate, when it is this attempt's turn."""
        if self._session is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="nobody logs in here: use security.protocol=PLAINTEXT or SSL",
            )
        try:
            answer: SaslAuthenticateResponse = await self._check(message, self._take_wrapped)
        except TooManyAttempts as error:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
            )
        return answer

    async def take_bare_message(self, message: bytes) -> bytes | None:
        """The same after a handshake of version 0; None: close without an answer."""
        try:
            reply: bytes | None = await self._check(message, self._take_bare)
        except TooManyAttempts:
            return None
        return reply

    def _take_wrapped(self, message: bytes) -> SaslAuthenticateResponse:
        assert self._session is not None
        return self._session.authenticate(message, now_ms=self._logins.now_ms())

    def _take_bare(self, message: bytes) -> bytes | None:
        assert self._session is not None
        return self._session.take_bare_message(message, now_ms=self._logins.now_ms())

    async def _check(self, message: bytes, take: Any) -> Any:
        assert self._session is not None
        user = self._session.claimed_user(message)
        try:
            if self._mechanism == PLAIN:
                return await self._check_plain(message, take, user)
            await _wait_ms(self._take_turn(user))
        except asyncio.CancelledError:
            self._give_up_turn(user)
            raise
        return self._noted(take(message), user)

    async def _check_plain(self, message: bytes, take: Any, user: str | None) -> Any:
        """One after the other, so that what became of an attempt counts for the next."""
        async with self._logins.hashing:
            wait_ms = self._take_turn(user)
            if not wait_ms:
                return await self._check_in_thread(message, take, user)
        await _wait_ms(wait_ms)
        async with self._logins.hashing:
            return await self._check_in_thread(message, take, user)

    async def _check_in_thread(self, message: bytes, take: Any, user: str | None) -> Any:
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._logins.threads, take, message)
        return self._noted(answer, user)

    def _noted(self, answer: Any, user: str | None) -> Any:
        assert self._session is not None
        self._has_turn = False
        self._look()
        self._note_outcome(user, self._session.state, self._session.failure)
        return answer

    def _take_turn(self, user: str | None) -> int:
        if user is None:  # nothing will be checked yet
            return 0
        try:
            wait_ms = self._logins.attempts.take_turn(
                self._address, user, now_ms=self._logins.now_ms()
            )
        except TooManyAttempts:
            self._is_refused = True
            self._look()
            raise
        self._has_turn = True
        return wait_ms

    def _give_up_turn(self, user: str | None) -> None:
        """The client has gone; one that only waited for the thread has no turn yet."""
        if self._has_turn and user is not None:
            self._logins.attempts.gave_up(self._address, user)

    def _note_outcome(
        self, user: str | None, state: SessionState, failure: AuthenticationFailed | None
    ) -> None:
        if failure is not None:
            self._logins.note_failure(self._address, user or failure.user, failure)
        elif user is not None and state is SessionState.AUTHENTICATED:
            self._logins.note_success(self._address, user)


async def _wait_ms(wait_ms: int) -> None:
    if wait_ms:
        await asyncio.sleep(wait_ms / 1000)
