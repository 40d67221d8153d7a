"""The client's side of a SASL login: PLAIN (RFC 4616) and SCRAM (RFC 5802), as values.

Pure: a nonce is a parameter. Each login says its first message, and answers the broker's until it
is done; a SCRAM login ends only when the broker has proved that it knows the user, too.
"""

import base64
import binascii
import hmac
import re
from typing import Protocol

from millstream.base.errors import Rejected
from millstream.broker.security.credentials import MECHANISMS, Mechanism
from millstream.queues.access import Credentials

SERVER_FIRST = re.compile(r"r=(?P<nonce>[^,]+),s=(?P<salt>[^,]+),i=(?P<iterations>\d{1,9})")
# RFC 7677's least. A broker that asks for fewer would learn more of the password than it should.
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 1_000_000
WITHOUT_BINDING = "n,,"


class LoginFailed(Rejected):
    def __init__(self, *, user: str, reason: str) -> None:
        super().__init__(f"the login of user {user} failed: {reason}")
        self.user, self.reason = user, reason


class Login(Protocol):
    def first(self) -> bytes: ...
    def answer(self, message: bytes) -> bytes | None:
        """What to say to the broker's message; None when the login is done."""


class PlainLogin:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        return f"\0{self._credentials.user}\0{self._credentials.password}".encode()

    def answer(self, message: bytes) -> bytes | None:
        return None


class ScramLogin:
    def __init__(self, credentials: Credentials, *, nonce: str) -> None:
        self._mechanism: Mechanism = MECHANISMS[credentials.mechanism]
        self._credentials, self._nonce = credentials, nonce
        self._signature: bytes | None = None  # what the broker has to show at the end

    @property
    def _bare(self) -> str:
        name = self._credentials.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self._nonce}"

    def first(self) -> bytes:
        return f"{WITHOUT_BINDING}{self._bare}".encode()

    def answer(self, message: bytes) -> bytes | None:
        if self._signature is None:
            return self._prove(message)
        if not hmac.compare_digest(_signature_in(message), self._signature):
            raise self._failed("the broker does not know the password either: is it the right one?")
        return None

    def _prove(self, message: bytes) -> bytes:
        nonce, salt, iterations = self._challenge_in(message)
        hashed = self._mechanism
        salted = hashed.salted_password(self._credentials.password, salt, iterations)
        client_key = hashed.hmac(salted, b"Client Key")
        final = f"c={base64.b64encode(WITHOUT_BINDING.encode()).decode()},r={nonce}"
        signed = b",".join([self._bare.encode(), message, final.encode()])
        mask = hashed.hmac(hashed.digest(client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True))
        self._signature = hashed.hmac(hashed.hmac(salted, b"Server Key"), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _challenge_in(self, message: bytes) -> tuple[str, bytes, int]:
        match = SERVER_FIRST.match(message.decode("utf-8", "replace"))
        if match is None or not match["nonce"].startswith(self._nonce):
            raise self._failed("the broker's challenge cannot be read")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise self._failed(f"the broker asks for {iterations} iterations")
        return match["nonce"], base64.b64decode(match["salt"]), iterations

    def _failed(self, reason: str) -> LoginFailed:
        return LoginFailed(user=self._credentials.user, reason=reason)


def _signature_in(message: bytes) -> bytes:
    try:
        return base64.b64decode(message.removeprefix(b"v=").partition(b",")[0], validate=True)
    except binascii.Error:
        return b""


def login_of(credentials: Credentials, *, nonce: str) -> Login:
    if credentials.mechanism == "PLAIN":
        return PlainLogin(credentials)
    return ScramLogin(credentials, nonce=nonce)
