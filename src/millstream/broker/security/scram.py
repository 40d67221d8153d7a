"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677).

    client  n,,n=<user>,r=<client nonce>                    client first
    server  r=<client nonce><server nonce>,s=<salt>,i=<n>   server first
    client  c=<binding>,r=<both nonces>,p=<proof>           client final
    server  v=<signature>                                   server final

The password never crosses the wire, and the server proves that it knows the user too. Without
channel binding (no -PLUS), and without Kafka's delegation tokens: those are refused. For an unknown
user everything goes the same way up to the proof, which then cannot be right.
"""

import base64
import binascii
import hmac
import re
from dataclasses import dataclass, field

from millstream.broker.security.credentials import (
    USER_LENGTH_MAX,
    Credential,
    CredentialId,
    Credentials,
    Mechanism,
)
from millstream.broker.security.exchange import (
    AuthenticationFailed,
    MalformedSaslMessage,
    Step,
    check_length,
)

NONCE_LENGTH_MAX = 1_024
SERVER_NONCE_BYTES = 24

SASL_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
NONCE = r"[\x21-\x2b\x2d-\x7e]+"
EXTENSIONS = r"(?:,[A-Za-z]+=[^\x00,]+)*"
BASE64 = r"[a-zA-Z0-9/+]*={0,2}"
CLIENT_FIRST = re.compile(
    rf"(?P<header>(?P<binding>[ny]|p=[^,]+),(?:a=(?P<authorize_as>{SASL_NAME}))?,)"
    rf"(?P<bare>(?P<mandatory>m=[^,]+,)?n=(?P<user>{SASL_NAME}),r=(?P<nonce>{NONCE})"
    rf"(?P<extensions>{EXTENSIONS}))"
)
CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<header>{BASE64}),r=(?P<nonce>{NONCE}){EXTENSIONS})"
    rf",p=(?P<proof>{BASE64})"
)
TOKEN_EXTENSION = "tokenauth=true"


@dataclass(frozen=True, slots=True)
class ScramStart:
    """Waits for the client's first message.

    `server_nonce` is printable without commas, fresh, and unguessable: SERVER_NONCE_BYTES at least.
    """

    mechanism: Mechanism
    credentials: Credentials
    server_nonce: str = field(repr=False)

    def claimed_user(self, message: bytes) -> str | None:
        return None  # the first message proves nothing

    def take(self, message: bytes) -> Step:
        first = self._parse(message)
        user = _read_name(first["user"])
        self._check(first, user)
        credential, is_known = self.credentials.find(CredentialId(user, self.mechanism))
        nonce = first["nonce"] + self.server_nonce
        salt = base64.b64encode(credential.salt).decode()
        reply = f"r={nonce},s={salt},i={credential.iterations}"
        proof = ScramProof(
            mechanism=self.mechanism,
            user=user,
            credential=credential,
            is_known=is_known,
            header=first["header"],
            nonce=nonce,
            messages=f"{first['bare']},{reply}",
        )
        return Step(reply=reply.encode(), then=proof)

    def _parse(self, message: bytes) -> re.Match[str]:
        match = _match(CLIENT_FIRST, message, self.mechanism)
        if match["binding"].startswith("p="):
            raise self._malformed("channel binding is not offered")
        if match["mandatory"]:
            raise self._malformed("an extension that must be understood, and is not")
        if TOKEN_EXTENSION in match["extensions"].lower().split(","):
            raise self._malformed("delegation tokens are not supported")
        return match

    def _check(self, first: re.Match[str], user: str) -> None:
        if len(user) > USER_LENGTH_MAX:
            raise self._malformed(f"a user name longer than {USER_LENGTH_MAX} characters")
        if len(first["nonce"]) > NONCE_LENGTH_MAX:
            raise self._malformed(f"a nonce longer than {NONCE_LENGTH_MAX} characters")
        if first["authorize_as"] and _read_name(first["authorize_as"]) != user:
            raise self._malformed("acting as another user is not supported")

    def _malformed(self, cause: str) -> MalformedSaslMessage:
        return MalformedSaslMessage(mechanism=self.mechanism.name, cause=cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramProof:
    """Waits for the client's proof that it knows the password."""

    mechanism: Mechanism
    user: str
    credential: Credential
    is_known: bool
    header: str
    nonce: str = field(repr=False)
    messages: str = field(repr=False)  # the client's first, bare, and the server's first

    def claimed_user(self, message: bytes) -> str | None:
        return self.user

    def take(self, message: bytes) -> Step:
        final = _match(CLIENT_FINAL, message, self.mechanism)
        header = _decode_base64(final["header"], self.mechanism)
        proof = _decode_base64(final["proof"], self.mechanism)
        auth_message = f"{self.messages},{final['without_proof']}".encode()
        is_proved = self._is_proved(proof, auth_message)
        signature = self.mechanism.hmac(self.credential.server_key, auth_message)
        if not hmac.compare_digest(final["nonce"].encode(), self.nonce.encode()):
            raise self._failed("a nonce of another exchange")
        if header != self.header.encode():
            raise self._failed("a channel binding that differs from the first message")
        if not (is_proved and self.is_known):
            raise self._failed("wrong password" if self.is_known else "unknown user")
        return Step(reply=b"v=" + base64.b64encode(signature), user=self.user)

    def _is_proved(self, proof: bytes, auth_message: bytes) -> bool:
        """ClientKey = proof XOR HMAC(StoredKey, AuthMessage); its hash is what is stored."""
        signature = self.mechanism.hmac(self.credential.stored_key, auth_message)
        padded = proof[: len(signature)].ljust(len(signature), b"\0")
        client_key = bytes(a ^ b for a, b in zip(padded, signature, strict=True))
        stored_key = self.mechanism.digest(client_key)
        is_right = hmac.compare_digest(stored_key, self.credential.stored_key)
        return is_right and len(proof) == len(signature)

    def _failed(self, cause: str) -> AuthenticationFailed:
        return AuthenticationFailed(mechanism=self.mechanism.name, cause=cause, user=self.user)


def _match(pattern: re.Pattern[str], message: bytes, mechanism: Mechanism) -> re.Match[str]:
    check_length(message, mechanism.name)
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise MalformedSaslMessage(mechanism=mechanism.name, cause="not a message of RFC 5802")
    return match


def _decode_base64(text: str, mechanism: Mechanism) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise MalformedSaslMessage(mechanism=mechanism.name, cause="not base64") from None


def _read_name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")
