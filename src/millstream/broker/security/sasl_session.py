"""One connection's way from a stranger to a principal, and how long that lasts.

    NEW ──handshake──> EXCHANGING ──last message──> AUTHENTICATED ──handshake──> EXCHANGING ...
     └─────────────────────┴── anything wrong ──> FAILED: answer, then close the connection

SaslHandshake 0 lets bare messages follow in frames of their own; 1 wraps them in SaslAuthenticate.
A session of limited life (KIP-368) must be renewed on the same connection by the same user with the
same mechanism. Time is a parameter; the shell waits for turns (`login_attempts.py`) and closes.
"""

from collections.abc import Callable, Mapping
from enum import Enum

from millstream.base.errors import Rejected
from millstream.broker.security.exchange import AuthenticationFailed, Exchange, Step
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages import ApiKey
from millstream.broker.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from millstream.broker.wire.messages.sasl_handshake import SaslHandshakeResponse

ALLOWED_WHILE_NEW = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
ALLOWED_WHILE_EXCHANGING = frozenset({ApiKey.SASL_AUTHENTICATE})
# A client that renews more often than this is told that it is too early, as in Kafka.
RENEWAL_INTERVAL_MS_MIN = 1_000
LIFETIME_UNLIMITED = 0

Mechanisms = Mapping[str, Callable[[], Exchange]]


class SessionState(Enum):
    NEW = "new"
    EXCHANGING = "exchanging"
    AUTHENTICATED = "authenticated"
    FAILED = "failed"


class NotAuthenticated(Rejected):
    """A request that needs a login came without one. There is no answer: close the connection."""

    def __init__(self, *, api_key: int, state: SessionState) -> None:
        super().__init__(
            f"API {api_key} while {state.value}: log in first (sasl.mechanism, sasl.username and "
            "sasl.password of the client, security.protocol=SASL_SSL)"
        )
        self.api_key, self.state = api_key, state


class SessionExpired(Rejected):
    """The login was not renewed in time. Close the connection, as Kafka does."""

    def __init__(self, *, principal: str, expired_ms: int) -> None:
        super().__init__(f"{principal}: the login ended {expired_ms} ms ago and was not renewed")
        self.principal, self.expired_ms = principal, expired_ms


class SaslSession:
    """The authentication of one connection. `principal` is set while it counts."""

    def __init__(self, mechanisms: Mechanisms, *, lifetime_ms: int = LIFETIME_UNLIMITED) -> None:
        self._mechanisms = mechanisms
        self._lifetime_ms = lifetime_ms
        self._exchange: Exchange | None = None
        self._mechanism: str | None = None
        self._refusal: str | None = None  # why the exchange under way cannot succeed
        self._began_ms = 0
        self.state = SessionState.NEW
        self.principal: str | None = None
        self.expires_ms: int | None = None
        self.receives_bare_messages = False
        self.failure: AuthenticationFailed | None = None

    @property
    def must_close(self) -> bool:
        """After the answer, if there is one."""
        return self.state is SessionState.FAILED

    def check_allowed(self, api_key: int, *, now_ms: int) -> None:
        """Raise unless this API may be called now; then the connection must be closed."""
        if self.state is SessionState.AUTHENTICATED:
            self._check_not_expired(api_key, now_ms)
            return
        is_new = self.state is SessionState.NEW
        is_exchanging = self.state is SessionState.EXCHANGING
        if is_new and api_key in ALLOWED_WHILE_NEW:
            return
        if is_exchanging and api_key in ALLOWED_WHILE_EXCHANGING:
            return
        raise NotAuthenticated(api_key=api_key, state=self.state)

    def _check_not_expired(self, api_key: int, now_ms: int) -> None:
        """A handshake renews the login, so it may come late."""
        if self.expires_ms is None or now_ms <= self.expires_ms:
            return
        if api_key != ApiKey.SASL_HANDSHAKE:
            raise SessionExpired(
                principal=self.principal or "", expired_ms=now_ms - self.expires_ms
            )

    # --- handshake ----------------------------------------------------------------------------

    def handshake(self, mechanism: str, *, version: int, now_ms: int) -> SaslHandshakeResponse:
        if self.state is SessionState.AUTHENTICATED and not self._may_renew(now_ms):
            return self._handshake_answer(ErrorCode.ILLEGAL_SASL_STATE)
        if self.state not in (SessionState.NEW, SessionState.AUTHENTICATED):
            return self._handshake_answer(ErrorCode.ILLEGAL_SASL_STATE)
        start = self._mechanisms.get(mechanism)
        if start is None:
            self.state = SessionState.FAILED
            return self._handshake_answer(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        if self.principal is not None and mechanism != self._mechanism:
            self._refusal = f"a login by {self._mechanism} cannot be renewed by {mechanism}"
        self._mechanism = mechanism
        self._exchange = start()
        self._began_ms = now_ms
        self.receives_bare_messages = version == 0
        self.state = SessionState.EXCHANGING
        return self._handshake_answer(ErrorCode.NONE)

    def _may_renew(self, now_ms: int) -> bool:
        return now_ms - self._began_ms >= RENEWAL_INTERVAL_MS_MIN

    def _handshake_answer(self, code: ErrorCode) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=code, mechanisms=sorted(self._mechanisms))

    # --- messages of the mechanism ------------------------------------------------------------

    def claimed_user(self, message: bytes) -> str | None:
        """Whose password `authenticate` would check, for whoever counts wrong ones."""
        try:
            return self._exchange.claimed_user(message) if self._exchange else None
        except AuthenticationFailed:
            return None  # malformed: nothing will be checked

    def authenticate(self, message: bytes, *, now_ms: int) -> SaslAuthenticateResponse:
        """The answer to SaslAuthenticate."""
        if self._exchange is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="no exchange is under way; it begins with SaslHandshake",
            )
        try:
            reply = self._take(self._exchange, message, now_ms)
        except AuthenticationFailed as error:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
            )
        is_done = self.state is SessionState.AUTHENTICATED
        lifetime_ms = self._lifetime_ms if is_done else LIFETIME_UNLIMITED
        return SaslAuthenticateResponse(auth_bytes=reply, session_lifetime_ms=lifetime_ms)

    def take_bare_message(self, message: bytes, *, now_ms: int) -> bytes | None:
        """The same after a handshake of version 0; None: close without an answer."""
        if self._exchange is None:
            return None
        try:
            return self._take(self._exchange, message, now_ms)
        except AuthenticationFailed:
            return None

    def _take(self, exchange: Exchange, message: bytes, now_ms: int) -> bytes:
        try:
            step = exchange.take(message)
            self._check_renewal(step)
        except AuthenticationFailed as error:
            self._fail(error)
            raise
        self._exchange = step.then
        if step.user is not None:
            self._succeed(step.user, now_ms)
        return step.reply

    def _check_renewal(self, step: Step) -> None:
        refusal = self._refusal
        if step.user is not None and self.principal not in (None, f"User:{step.user}"):
            refusal = f"a login of {self.principal} cannot be renewed by another user"
        if refusal is not None:
            assert self._mechanism is not None
            raise RenewalRefused(mechanism=self._mechanism, cause=refusal, user=step.user)

    def _succeed(self, user: str, now_ms: int) -> None:
        self.state = SessionState.AUTHENTICATED
        self.principal = f"User:{user}"
        self.receives_bare_messages = False
        is_limited = self._lifetime_ms != LIFETIME_UNLIMITED
        self.expires_ms = now_ms + self._lifetime_ms if is_limited else None

    def _fail(self, error: AuthenticationFailed) -> None:
        self.state = SessionState.FAILED
        self.failure = error
        self.principal = None
        self._exchange = None


class RenewalRefused(AuthenticationFailed):
    """The one that renews has a login already, so it may know why."""

    def __init__(self, *, mechanism: str, cause: str, user: str | None) -> None:
        super().__init__(mechanism=mechanism, cause=cause, user=user)
        self.args = (f"{mechanism}: {cause}",)
