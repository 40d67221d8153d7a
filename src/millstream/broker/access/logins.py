"""Who may log in, and by which mechanisms: the shell around credentials and login attempts.

Credentials live in the broker's metadata and are durable before anybody is told so. Here is what
all connections share; `ConnectionLogin` is the login of one. Checks no password itself
(`security/scram.py`, `security/plain.py`).
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from millstream.base.clock import Clock
from millstream.broker.access.complaints import Complaints
from millstream.broker.durable_state import Change, DurableState
from millstream.broker.security.credentials import (
    CREDENTIAL_KEY,
    DECOY_SECRET_BYTES,
    DECOY_SECRET_KEY,
    MECHANISMS,
    SALT_BYTES_DEFAULT,
    Credential,
    CredentialId,
    Credentials,
    Mechanism,
    alter_credentials,
    credential_from_password,
    read_credential,
)
from millstream.broker.security.exchange import AuthenticationFailed
from millstream.broker.security.login_attempts import LoginAttempts
from millstream.broker.security.plain import PLAIN, PlainStart
from millstream.broker.security.sasl_session import LIFETIME_UNLIMITED, Mechanisms, SaslSession
from millstream.broker.security.scram import SERVER_NONCE_BYTES, ScramStart
from millstream.broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResult,
)

logger = logging.getLogger(__name__)

# PLAIN costs thousands of hashes. One thread: guessers wait for one another, nobody else for them.
HASH_THREADS = 1
SHOWN_NAME_LENGTH_MAX = 100


@dataclass(slots=True)
class LoginCounts:
    """What was done so far, for telemetry and tests."""

    succeeded: int = 0
    failed: int = 0


class Logins:
    """Credentials, and the failures of all who tried. Owned by the broker's loop."""

    def __init__(
        self,
        state: DurableState,
        *,
        mechanisms: tuple[str, ...],
        session_ms: int = LIFETIME_UNLIMITED,
        complaints: Complaints,
        now_ms: Clock,
    ) -> None:
        self._state = state
        self._session_ms = session_ms
        self._complaints = complaints
        self.now_ms = now_ms
        self._must_keep_secret = bool(mechanisms) and DECOY_SECRET_KEY not in state
        self._secret = dict(state).get(DECOY_SECRET_KEY) or secrets.token_bytes(DECOY_SECRET_BYTES)
        self.credentials = Credentials(self._secret, _stored_credentials(state))
        self.attempts = LoginAttempts()
        self.counts = LoginCounts()
        self._mechanisms = self._startable(mechanisms)
        # One change at a time: each is checked against what the one before it has left.
        self._turn = asyncio.Lock()
        self._hashing = ThreadPoolExecutor(HASH_THREADS, thread_name_prefix="login")
        self.hashing = asyncio.Lock()  # whose password the thread checks

    def close(self) -> None:
        self._hashing.shutdown(wait=False, cancel_futures=True)

    async def keep_secret(self) -> None:
        """Decoys must be the same after a restart, or they would give themselves away."""
        if self._must_keep_secret:
            await self._state.put([(DECOY_SECRET_KEY, self._secret)], now_ms=self.now_ms())
            self._must_keep_secret = False

    # --- sessions -----------------------------------------------------------------------------

    @property
    def are_required(self) -> bool:
        return bool(self._mechanisms)

    def open_session(self) -> SaslSession | None:
        """A stranger's way to a login; None where nobody logs in."""
        if not self.are_required:
            return None
        return SaslSession(self._mechanisms, lifetime_ms=self._session_ms)

    def _startable(self, names: tuple[str, ...]) -> Mechanisms:
        scram = {
            name: partial(self._start_scram, mechanism)
            for name, mechanism in MECHANISMS.items()
            if name in names
        }
        plain = {PLAIN: partial(PlainStart, self.credentials)} if PLAIN in names else {}
        return scram | plain

    def _start_scram(self, mechanism: Mechanism) -> ScramStart:
        nonce = secrets.token_urlsafe(SERVER_NONCE_BYTES)
        return ScramStart(mechanism, self.credentials, nonce)

    @property
    def threads(self) -> ThreadPoolExecutor:
        return self._hashing

    def note_success(self, address: str, user: str) -> None:
        self.counts.succeeded += 1
        self.attempts.succeeded(address, user)
        logger.debug("%s logged in from %s", _shown(user), address)

    def note_failure(self, address: str, user: str | None, failure: AuthenticationFailed) -> None:
        self.counts.failed += 1
        if user is not None:
            self.attempts.failed(address, user, now_ms=self.now_ms())
        who = "nobody yet" if user is None else _shown(user)
        reason = f"by {failure.mechanism} failed: {who}: {failure.cause}"
        if line := self._complaints.about(address, reason):
            logger.warning("login from %s %s", address, line)

    # --- credentials --------------------------------------------------------------------------

    async def alter(
        self, request: AlterUserScramCredentialsRequest
    ) -> list[AlterUserScramCredentialsResult]:
        async with self._turn:
            altered = alter_credentials(request, self.credentials)
            await self._store(dict(altered.changes))
            return altered.results

    async def add_user(self, user: str, password: str) -> None:
        """A credential for each mechanism of SCRAM, so that the user can choose."""
        async with self._turn:
            await self._store(
                {
                    CredentialId(user, mechanism): credential_from_password(
                        mechanism, password, salt=secrets.token_bytes(SALT_BYTES_DEFAULT)
                    )
                    for mechanism in MECHANISMS.values()
                }
            )

    async def _store(self, changes: Mapping[CredentialId, Credential | None]) -> None:
        records: list[Change] = [
            (id.to_key(), None if credential is None else credential.to_json())
            for id, credential in changes.items()
        ]
        if records:
            await self._state.put(records, now_ms=self.now_ms())
        for id, credential in changes.items():
            if credential is None:
                self.credentials.remove(id)
            else:
                self.credentials.put(id, credential)


def _stored_credentials(state: DurableState) -> dict[CredentialId, Credential]:
    return dict(
        read_credential(key, value) for key, value in state if key.startswith(CREDENTIAL_KEY)
    )


def _shown(user: str) -> str:
    """Names come from clients: `ascii` keeps line breaks and colours out of the diagnostics."""
    return ascii(user[:SHOWN_NAME_LENGTH_MAX])
