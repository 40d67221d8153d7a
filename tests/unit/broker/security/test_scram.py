"""SCRAM, the server's side, against the vectors of the RFCs and against a client of our own."""

import base64
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.security.credentials import (
    SHA_256,
    SHA_512,
    CredentialId,
    Credentials,
    Mechanism,
    credential_from_password,
)
from millstream.broker.security.exchange import (
    SASL_MESSAGE_BYTES_MAX,
    AuthenticationFailed,
    MalformedSaslMessage,
    Step,
)
from millstream.broker.security.scram import ScramProof, ScramStart

SECRET = b"the broker's own secret"
SERVER_NONCE = "3rfcNHYJY1ZVvWVs7j"


@cache  # making one is slow on purpose
def credentials(*users: str, mechanism: Mechanism = SHA_256) -> Credentials:
    """Everybody's password is their name with an exclamation mark."""
    return Credentials(
        SECRET,
        {
            CredentialId(user, mechanism): credential_from_password(
                mechanism, f"{user}!", salt=user.encode() * 4
            )
            for user in users
        },
    )


def start(known: Credentials, mechanism: Mechanism = SHA_256) -> ScramStart:
    return ScramStart(mechanism, known, SERVER_NONCE)


@dataclass
class Client:
    """The other side, written straight from RFC 5802."""

    user: str
    password: str
    mechanism: Mechanism = SHA_256
    header: str = "n,,"
    more: str = ""

    @property
    def bare(self) -> str:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r=fyko+d2lbbFgONRv9qkxdawL{self.more}"

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(
        self, server_first: bytes, *, header: str | None = None, nonce: str | None = None
    ) -> bytes:
        parts = dict(part.split("=", 1) for part in server_first.decode().split(","))
        parts["r"] = nonce or parts["r"]
        salted = self.mechanism.salted_password(
            self.password, base64.b64decode(parts["s"]), int(parts["i"])
        )
        binding = base64.b64encode((header or self.header).encode()).decode()
        without_proof = f"c={binding},r={parts['r']}"
        signed = f"{self.bare},{server_first.decode()},{without_proof}".encode()
        client_key = self.mechanism.hmac(salted, b"Client Key")
        signature = self.mechanism.hmac(self.mechanism.digest(client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = self.mechanism.hmac(salted, b"Server Key")
        self.expected = b"v=" + base64.b64encode(self.mechanism.hmac(server_key, signed))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def log_in(client: Client, known: Credentials) -> Step:
    first = start(known, client.mechanism).take(client.first())
    assert first.then is not None
    assert first.user is None
    return first.then.take(client.final(first.reply))


# --- the vectors ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vector:
    mechanism: Mechanism
    iterations: int
    salt: str
    client_first: str
    server_nonce: str
    server_first: str
    client_final: str
    server_final: str


RFC_7677 = Vector(
    SHA_256,
    4096,
    "W22ZaJ0SNY7soEsUEjb6gQ==",
    "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
# RFC 5802 has SHA-1, which Kafka does not offer; the arithmetic is the same.
RFC_5802 = Vector(
    Mechanism("SCRAM-SHA-1", 0, "sha1"),
    4096,
    "QSXCR+Q6sek8bf92",
    "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    "3rfcNHYJY1ZVvWVs7j",
    "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)


@pytest.mark.parametrize("vector", [RFC_7677, RFC_5802], ids=["RFC 7677", "RFC 5802"])
def test_the_exchange_of_the_rfc_succeeds_byte_for_byte(vector: Vector) -> None:
    credential = credential_from_password(
        vector.mechanism,
        "pencil",
        salt=base64.b64decode(vector.salt),
        iterations=vector.iterations,
    )
    known = Credentials(SECRET, {CredentialId("user", vector.mechanism): credential})
    first = ScramStart(vector.mechanism, known, vector.server_nonce).take(
        vector.client_first.encode()
    )
    assert first.reply.decode() == vector.server_first
    assert first.then is not None
    last = first.then.take(vector.client_final.encode())
    assert last.reply.decode() == vector.server_final
    assert (last.user, last.then) == ("user", None)


# --- who gets in ------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: each.name)
def test_who_knows_the_password_gets_in_and_learns_that_the_server_knows_it_too(
    mechanism: Mechanism,
) -> None:
    client = Client("ada", "ada!", mechanism)
    last = log_in(client, credentials("ada", mechanism=mechanism))
    assert last.user == "ada"
    assert last.reply == client.expected


@given(user=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=9))
@settings(max_examples=25, deadline=None)
def test_any_user_name_can_log_in(user: str) -> None:
    assert log_in(Client(user, f"{user}!"), credentials(user)).user == user


def test_a_wrong_password_fails_and_says_nothing() -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        log_in(Client("ada", "bob!"), credentials("ada"))
    assert caught.value.cause == "wrong password"
    assert "ada" not in str(caught.value)


def test_an_unknown_user_fails_as_late_and_with_the_same_words_as_a_wrong_password() -> None:
    known = credentials("ada")
    with pytest.raises(AuthenticationFailed) as unknown:
        log_in(Client("eve", "eve!"), known)
    with pytest.raises(AuthenticationFailed) as wrong:
        log_in(Client("ada", "eve!"), known)
    assert unknown.value.cause == "unknown user"
    assert str(unknown.value) == str(wrong.value)


def test_a_credential_of_the_other_mechanism_does_not_count() -> None:
    with pytest.raises(AuthenticationFailed):
        log_in(Client("ada", "ada!", SHA_512), credentials("ada", mechanism=SHA_256))


def test_the_first_message_claims_nothing_and_the_proof_claims_its_user() -> None:
    begun = start(credentials("ada"))
    client = Client("ada", "ada!")
    assert begun.claimed_user(client.first()) is None
    then = begun.take(client.first()).then
    assert then is not None
    assert then.claimed_user(b"whatever") == "ada"


# --- decoys -----------------------------------------------------------------------------------


def challenge(known: Credentials, user: str) -> dict[str, str]:
    reply = start(known).take(Client(user, "").first()).reply.decode()
    return dict(part.split("=", 1) for part in reply.split(","))


def test_an_unknown_user_gets_the_same_salt_every_time() -> None:
    known = credentials("ada")
    assert challenge(known, "eve") == challenge(known, "eve")
    assert challenge(known, "eve")["s"] != challenge(known, "mallory")["s"]


def test_a_decoy_looks_like_the_credentials_that_there_are() -> None:
    known = Credentials(
        SECRET,
        {
            CredentialId("ada", SHA_256): credential_from_password(
                SHA_256, "ada!", salt=b"x" * 13, iterations=8192
            )
        },
    )
    seen = challenge(known, "eve")
    assert (len(base64.b64decode(seen["s"])), seen["i"]) == (13, "8192")


@dataclass(frozen=True)
class CountingMechanism(Mechanism):
    """SHA-256 that counts what it is asked to do."""

    work: list[str] = field(default_factory=list, compare=False, hash=False)

    def digest(self, data: bytes) -> bytes:
        self.work.append("digest")
        return super().digest(data)

    def hmac(self, key: bytes, data: bytes) -> bytes:
        self.work.append(f"hmac of {len(key)} and {len(data)}")
        return super().hmac(key, data)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        self.work.append(f"{iterations} iterations over {len(salt)}")
        return super().salted_password(password, salt, iterations)


def work_of_login(user: str, password: str) -> list[str]:
    counting = CountingMechanism("SCRAM-SHA-256", 1, "sha256")
    credential = credential_from_password(SHA_256, "ada!", salt=b"salt" * 6)
    known = Credentials(SECRET, {CredentialId("ada", counting): credential})
    client = Client(user, password)
    first = ScramStart(counting, known, SERVER_NONCE).take(client.first())
    assert first.then is not None
    with suppress(AuthenticationFailed):
        first.then.take(client.final(first.reply))
    return counting.work


def test_an_unknown_user_a_wrong_password_and_a_right_one_cost_the_same() -> None:
    right = work_of_login("ada", "ada!")
    assert right == work_of_login("ada", "bob!") == work_of_login("eve", "eve!")
    assert len(right) == 4  # the decoy, the proof's two, the server's signature


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "RFC 5802"),
        (b"n,,n=ada", "RFC 5802"),
        (b"n,,n=,r=x", "RFC 5802"),
        (b"n,,n=a=b,r=x", "RFC 5802"),
        (b"n,,n=\xff,r=x", "RFC 5802"),
        (b"n,,n=a\0b,r=x", "RFC 5802"),
        (b"x,,n=ada,r=x", "RFC 5802"),
        (b"n,,n=ada,r=x\n", "RFC 5802"),
        (b"p=tls-unique,,n=ada,r=x", "channel binding"),
        (b"n,,m=future,n=ada,r=x", "must be understood"),
        (b"n,a=root,n=ada,r=x", "another user"),
        (b"n,,n=ada,r=x,tokenauth=true", "tokens"),
        (b"n,,n=ada,r=x,TokenAuth=TRUE", "tokens"),
        (b"n,,n=" + b"a" * 256 + b",r=x", "longer than 255"),
        (b"n,,n=ada,r=" + b"x" * 1_025, "longer than 1024"),
        (b"n,,n=ada,r=" + b"x" * SASL_MESSAGE_BYTES_MAX, "are allowed"),
    ],
)
def test_a_first_message_that_is_not_right_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(MalformedSaslMessage, match=why):
        start(credentials("ada")).take(message)


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=ada,"])
def test_headers_without_a_channel_binding_are_fine(header: str) -> None:
    client = Client("ada", "ada!", header=header)
    assert log_in(client, credentials("ada")).user == "ada"


def test_extensions_are_signed_and_not_looked_at() -> None:
    client = Client("ada", "ada!", more=",ext=1,tokenauth=false")
    assert log_in(client, credentials("ada")).user == "ada"


def proof_of(client: Client, known: Credentials) -> tuple[ScramProof, bytes]:
    first = start(known).take(client.first())
    assert isinstance(first.then, ScramProof)
    return first.then, client.final(first.reply)


def test_a_client_that_hides_its_channel_binding_is_refused() -> None:
    client = Client("ada", "ada!", header="y,,")
    first = start(credentials("ada")).take(client.first())
    assert first.then is not None
    with pytest.raises(AuthenticationFailed) as caught:
        first.then.take(client.final(first.reply, header="n,,"))
    assert "binding" in caught.value.cause


def test_a_proof_for_a_nonce_of_the_clients_own_choice_is_refused() -> None:
    client = Client("ada", "ada!")
    first = start(credentials("ada")).take(client.first())
    assert first.then is not None
    with pytest.raises(AuthenticationFailed) as caught:
        first.then.take(client.final(first.reply, nonce="fyko+d2lbbFgONRv9qkxdawL-mine"))
    assert "nonce" in caught.value.cause


def test_a_proof_of_another_exchange_is_refused() -> None:
    known, client = credentials("ada"), Client("ada", "ada!")
    _, old = proof_of(client, known)
    later = ScramStart(SHA_256, known, "another-nonce").take(client.first())
    assert later.then is not None
    with pytest.raises(AuthenticationFailed):
        later.then.take(old)


def test_every_flipped_bit_of_a_proof_is_refused() -> None:
    proof, final = proof_of(Client("ada", "ada!"), credentials("ada"))
    head, _, text = final.rpartition(b",p=")
    right = base64.b64decode(text)
    for bit in range(8 * len(right)):
        wrong = bytearray(right)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(AuthenticationFailed):
            proof.take(head + b",p=" + base64.b64encode(bytes(wrong)))


def test_a_proof_of_another_length_is_refused() -> None:
    proof, final = proof_of(Client("ada", "ada!"), credentials("ada"))
    head, _, text = final.rpartition(b",p=")
    right = base64.b64decode(text)
    for wrong in (right[:-1], right + b"\0", b""):
        with pytest.raises(AuthenticationFailed):
            proof.take(head + b",p=" + base64.b64encode(wrong))


@given(message=st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_refused_and_nothing_else(message: bytes) -> None:
    begun = start(credentials("ada"))
    then = begun.take(Client("ada", "").first()).then
    assert then is not None
    for exchange in (begun, then):
        try:
            exchange.take(message)
        except AuthenticationFailed:
            continue
        assert exchange is begun  # bytes that happen to be a first message


def test_secrets_are_not_in_what_is_printed() -> None:
    proof, _ = proof_of(Client("ada", "ada!"), credentials("ada"))
    secrets = (proof.credential.stored_key, proof.credential.server_key, proof.credential.salt)
    for secret in secrets:
        assert repr(secret) not in repr(proof)
    assert repr(proof.credential) == "Credential(iterations=4096)"
