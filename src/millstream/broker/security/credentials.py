"""What is stored instead of passwords: SCRAM credentials (RFC 5802), their records, and the rules
of DescribeUserScramCredentials and AlterUserScramCredentials (APIs 50 and 51, KIP-554).

The password itself never comes here in those APIs: clients send it salted. A copy of the
credentials lets nobody log in, but it can be searched for weak passwords. It checks no login
(`scram.py`, `plain.py`) and writes no record.
"""

import base64
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millstream.base.errors import Corrupt
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from millstream.broker.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResult,
)

ITERATIONS_MIN = 4_096  # RFC 7677 asks for this many at least
# A login by PLAIN costs this many hashes of the broker; Kafka has the same limit.
ITERATIONS_MAX = 16_384
ITERATIONS_DEFAULT = ITERATIONS_MIN
SALT_BYTES_MAX = 1_024
SALT_BYTES_DEFAULT = 24
USER_LENGTH_MAX = 255

CREDENTIAL_KEY = b"scram/"
# The record of the secret that decoys are made from: random bytes, made once.
DECOY_SECRET_KEY = b"security/decoy-secret"
DECOY_SECRET_BYTES = 32


@dataclass(frozen=True)
class Mechanism:
    """One SCRAM mechanism and its arithmetic. `number` is Kafka's, on the wire."""

    name: str
    number: int
    hash_name: str

    @property
    def key_bytes(self) -> int:
        return hashlib.new(self.hash_name).digest_size

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Slow on purpose. Like Kafka, without SASLprep: the password is taken as it is."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


SHA_256 = Mechanism("SCRAM-SHA-256", 1, "sha256")
SHA_512 = Mechanism("SCRAM-SHA-512", 2, "sha512")
MECHANISMS: Mapping[str, Mechanism] = {each.name: each for each in (SHA_256, SHA_512)}
MECHANISM_OF_NUMBER: Mapping[int, Mechanism] = {each.number: each for each in (SHA_256, SHA_512)}


class UnreadableCredential(Corrupt):
    def __init__(self, *, key: bytes, reason: str) -> None:
        super().__init__(
            f"the record {key[:300]!r} cannot be read as a SCRAM credential ({reason}); restore "
            "the data directory from a copy"
        )
        self.key, self.reason = key, reason


class CredentialShape(NamedTuple):
    """What anybody can see of a credential, before any proof."""

    salt_bytes: int
    iterations: int


DECOY_SHAPE = CredentialShape(SALT_BYTES_DEFAULT, ITERATIONS_DEFAULT)  # while there is no user


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """How one user's password is checked. The keys must not be shown: `repr` leaves them out."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"

    @property
    def shape(self) -> CredentialShape:
        return CredentialShape(len(self.salt), self.iterations)

    def to_json(self) -> bytes:
        content = {
            "salt": base64.b64encode(self.salt).decode(),
            "iterations": self.iterations,
            "stored_key": base64.b64encode(self.stored_key).decode(),
            "server_key": base64.b64encode(self.server_key).decode(),
        }
        return json.dumps(content, sort_keys=True).encode()


def credential_from_salted(
    mechanism: Mechanism, salted_password: bytes, *, salt: bytes, iterations: int
) -> Credential:
    client_key = mechanism.hmac(salted_password, b"Client Key")
    return Credential(
        salt=salt,
        iterations=iterations,
        stored_key=mechanism.digest(client_key),
        server_key=mechanism.hmac(salted_password, b"Server Key"),
    )


def credential_from_password(
    mechanism: Mechanism, password: str, *, salt: bytes, iterations: int = ITERATIONS_DEFAULT
) -> Credential:
    salted = mechanism.salted_password(password, salt, iterations)
    return credential_from_salted(mechanism, salted, salt=salt, iterations=iterations)


# --- records ----------------------------------------------------------------------------------


class CredentialId(NamedTuple):
    user: str
    mechanism: Mechanism

    def to_key(self) -> bytes:
        """`scram/<user>/<mechanism>`: a user may have slashes, a mechanism has none."""
        return CREDENTIAL_KEY + f"{self.user}/{self.mechanism.name}".encode()


def read_credential(key: bytes, value: bytes) -> tuple[CredentialId, Credential]:
    """A record of the log, checked."""
    try:
        user, _, name = key.removeprefix(CREDENTIAL_KEY).decode().rpartition("/")
        mechanism = MECHANISMS[name]
        return CredentialId(user, mechanism), _from_json(mechanism, value)
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableCredential(key=key, reason=f"{error!r}") from error


def _from_json(mechanism: Mechanism, value: bytes) -> Credential:
    content = json.loads(value)
    read = Credential(
        salt=base64.b64decode(content["salt"], validate=True),
        iterations=int(content["iterations"]),
        stored_key=base64.b64decode(content["stored_key"], validate=True),
        server_key=base64.b64decode(content["server_key"], validate=True),
    )
    if not ITERATIONS_MIN <= read.iterations <= ITERATIONS_MAX:
        raise ValueError(f"{read.iterations} iterations")
    if {len(read.stored_key), len(read.server_key)} != {mechanism.key_bytes}:
        raise ValueError("a key of the wrong length")
    return read


# --- look up ----------------------------------------------------------------------------------


class Credentials:
    """Every credential by user and mechanism. Owned by the broker's loop.

    Unknown users get a decoy, so that neither an answer nor the time it takes tells who exists.
    `secret` makes the decoys: it must be the same for the life of the data, and not be known.
    """

    def __init__(self, secret: bytes, known: Mapping[CredentialId, Credential] | None = None):
        self._secret = secret
        self._of_user: dict[str, dict[Mechanism, Credential]] = {}
        for id, credential in (known or {}).items():
            self._of_user.setdefault(id.user, {})[id.mechanism] = credential
        self._note_shapes()

    def __contains__(self, id: CredentialId) -> bool:
        return id.mechanism in self.of_user(id.user)

    @property
    def users(self) -> list[str]:
        return sorted(self._of_user)

    def of_user(self, user: str) -> Mapping[Mechanism, Credential]:
        return self._of_user.get(user, {})

    def put(self, id: CredentialId, credential: Credential) -> None:
        self._of_user.setdefault(id.user, {})[id.mechanism] = credential
        self._note_shapes()

    def remove(self, id: CredentialId) -> None:
        left = dict(self.of_user(id.user))
        left.pop(id.mechanism, None)
        if left:
            self._of_user[id.user] = left
        else:
            self._of_user.pop(id.user, None)
        self._note_shapes()

    def find(self, id: CredentialId) -> tuple[Credential, bool]:
        """The user's credential and True, or one that no password fits and False.

        Both cost the same: the decoy is always made.
        """
        decoy = self._decoy(id)
        found = self.of_user(id.user).get(id.mechanism)
        return (decoy, False) if found is None else (found, True)

    def find_any(self, user: str, mechanisms: Sequence[Mechanism]) -> CredentialId:
        """Which credential a plain password is checked against: the first that the user has.

        An unknown user is given one of those that known users have.
        """
        seed = hmac.digest(self._secret, user.encode(), "sha256")
        usual = [each for each in mechanisms if self._shapes.get(each)] or mechanisms
        decoy = usual[seed[0] % len(usual)]
        has = self.of_user(user)
        return CredentialId(user, next((each for each in mechanisms if each in has), decoy))

    def _note_shapes(self) -> None:
        shapes: dict[Mechanism, set[CredentialShape]] = {}
        for has in self._of_user.values():
            for mechanism, credential in has.items():
                shapes.setdefault(mechanism, set()).add(credential.shape)
        self._shapes = {mechanism: sorted(seen) for mechanism, seen in shapes.items()}

    def _decoy(self, id: CredentialId) -> Credential:
        """Always the same for a name, and of a shape that a real one has."""
        mechanism = id.mechanism
        seed = mechanism.hmac(self._secret, id.user.encode())
        shapes = self._shapes.get(mechanism) or [DECOY_SHAPE]
        shape = shapes[int.from_bytes(seed[:4], "big") % len(shapes)]
        keys = hashlib.shake_256(b"keys" + seed).digest(2 * mechanism.key_bytes)
        return Credential(
            salt=hashlib.shake_256(b"salt" + seed).digest(shape.salt_bytes),
            iterations=shape.iterations,
            stored_key=keys[: mechanism.key_bytes],
            server_key=keys[mechanism.key_bytes :],
        )


# --- the two APIs -----------------------------------------------------------------------------


class AlteredCredentials(NamedTuple):
    """What to answer, and what to store before: a None removes."""

    results: list[AlterUserScramCredentialsResult]
    changes: list[tuple[CredentialId, Credential | None]]


class _Refusal(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def alter_credentials(
    request: AlterUserScramCredentialsRequest, known: Credentials
) -> AlteredCredentials:
    """A user that is named twice is not changed at all, whatever the mechanisms (as in Kafka)."""
    times_named = Counter(each.name for each in request.deletions)
    times_named.update(each.name for each in request.upsertions)
    altered = AlteredCredentials([], [])
    for name in times_named:
        refusal = None
        try:
            _check_named_once(name, times_named[name])
            altered.changes.append(_change_of(name, request, known))
        except _Refusal as caught:
            refusal = caught
        altered.results.append(_result(name, refusal))
    return altered


def _result(name: str, refusal: _Refusal | None) -> AlterUserScramCredentialsResult:
    if refusal is None:
        return AlterUserScramCredentialsResult(user=name)
    return AlterUserScramCredentialsResult(
        user=name, error_code=refusal.code, error_message=refusal.message
    )


def _check_named_once(name: str, times: int) -> None:
    if times > 1:
        reason = f"user {name[:USER_LENGTH_MAX]!r} is named {times} times in one request"
        raise _Refusal(ErrorCode.DUPLICATE_RESOURCE, reason)


def _change_of(
    name: str, request: AlterUserScramCredentialsRequest, known: Credentials
) -> tuple[CredentialId, Credential | None]:
    for deletion in request.deletions:
        if deletion.name == name:
            return _checked_deletion(deletion, known), None
    upsertion = next(each for each in request.upsertions if each.name == name)
    return _checked_upsertion(upsertion)


def _checked_id(name: str, mechanism_number: int) -> CredentialId:
    if not name:
        raise _Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user name is empty")
    if len(name) > USER_LENGTH_MAX:
        reason = f"the user name is longer than {USER_LENGTH_MAX} characters"
        raise _Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    mechanism = MECHANISM_OF_NUMBER.get(mechanism_number)
    if mechanism is None:
        reason = f"no SCRAM mechanism has the number {mechanism_number}"
        raise _Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, reason)
    return CredentialId(name, mechanism)


def _checked_deletion(deletion: ScramCredentialDeletion, known: Credentials) -> CredentialId:
    id = _checked_id(deletion.name, deletion.mechanism)
    if id not in known:
        reason = f"user {id.user!r} has no credential for {id.mechanism.name}"
        raise _Refusal(ErrorCode.RESOURCE_NOT_FOUND, reason)
    return id


def _checked_upsertion(upsertion: ScramCredentialUpsertion) -> tuple[CredentialId, Credential]:
    id = _checked_id(upsertion.name, upsertion.mechanism)
    if not ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
        reason = (
            f"{upsertion.iterations} iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
        )
        raise _Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    if not 0 < len(upsertion.salt) <= SALT_BYTES_MAX:
        reason = f"a salt of {len(upsertion.salt)} bytes: 1 to {SALT_BYTES_MAX} are allowed"
        raise _Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    if len(upsertion.salted_password) != id.mechanism.key_bytes:
        reason = f"a salted password of {id.mechanism.name} has {id.mechanism.key_bytes} bytes"
        raise _Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    salted, salt = bytes(upsertion.salted_password), bytes(upsertion.salt)
    made = credential_from_salted(id.mechanism, salted, salt=salt, iterations=upsertion.iterations)
    return id, made


def describe_credentials(
    names: Iterable[str] | None, known: Credentials
) -> list[DescribeUserScramCredentialsResult]:
    """None, or no names, asks for every user."""
    times_named = Counter(names or known.users)
    return [_described(name, times, known) for name, times in times_named.items()]


def _described(name: str, times: int, known: Credentials) -> DescribeUserScramCredentialsResult:
    has = known.of_user(name)
    if times == 1 and has:
        infos = [
            CredentialInfo(mechanism=mechanism.number, iterations=credential.iterations)
            for mechanism, credential in sorted(has.items(), key=lambda item: item[0].number)
        ]
        return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        reason = f"user {name[:USER_LENGTH_MAX]!r} is named {times} times in one request"
    else:
        code = ErrorCode.RESOURCE_NOT_FOUND
        reason = f"user {name[:USER_LENGTH_MAX]!r} has no SCRAM credential"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=reason)
