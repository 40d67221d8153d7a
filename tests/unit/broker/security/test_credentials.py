"""What is stored of passwords, and the rules of the two SCRAM APIs."""

from typing import Any

import pytest

from millstream.broker.security.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SHA_256,
    SHA_512,
    CredentialId,
    Credentials,
    UnreadableCredential,
    alter_credentials,
    credential_from_password,
    describe_credentials,
    read_credential,
)
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest as Request,
)
from millstream.broker.wire.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

ADA = CredentialId("ada", SHA_256)
CREDENTIAL = credential_from_password(SHA_256, "ada!", salt=b"salt")
E = ErrorCode


def known() -> Credentials:
    return Credentials(b"secret", {ADA: CREDENTIAL})


def upsertion(name: str = "bob", **more: Any) -> ScramCredentialUpsertion:
    fields: dict[str, Any] = {
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"s",
        "salted_password": b"p" * 32,
    }
    return ScramCredentialUpsertion(name=name, **(fields | more))


def deletion(name: str = "ada", mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def codes(request: Request) -> dict[str, int]:
    return {each.user: each.error_code for each in alter_credentials(request, known()).results}


# --- records ----------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["ada", "a/b", "x/SCRAM-SHA-512", "žofie"])
def test_a_record_is_read_as_it_was_written(user: str) -> None:
    id = CredentialId(user, SHA_256)
    assert read_credential(id.to_key(), CREDENTIAL.to_json()) == (id, CREDENTIAL)


def test_the_key_names_user_and_mechanism() -> None:
    assert ADA.to_key() == b"scram/ada/SCRAM-SHA-256"


def test_the_password_is_not_in_the_record() -> None:
    secret = credential_from_password(SHA_256, "correct horse", salt=b"salt").to_json()
    assert b"correct horse" not in secret
    assert SHA_256.salted_password("correct horse", b"salt", 4096).hex().encode() not in secret


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (ADA.to_key(), b"{}"),
        (ADA.to_key(), b"["),
        (ADA.to_key(), b"[1]"),
        (b"scram/ada/SCRAM-MD5", CREDENTIAL.to_json()),
        (b"scram/\xff/SCRAM-SHA-256", CREDENTIAL.to_json()),
        (b"scram/ada/SCRAM-SHA-512", CREDENTIAL.to_json()),  # keys of the wrong length
        (ADA.to_key(), CREDENTIAL.to_json().replace(b"4096", b"1")),
    ],
)
def test_a_record_that_cannot_be_is_corrupt(key: bytes, value: bytes) -> None:
    with pytest.raises(UnreadableCredential, match="restore"):
        read_credential(key, value)


# --- alter ------------------------------------------------------------------------------------


def test_a_salted_password_becomes_a_credential_that_the_password_fits() -> None:
    salted = SHA_256.salted_password("bob!", b"pepper", 5000)
    wanted = upsertion(salt=b"pepper", iterations=5000, salted_password=salted)
    altered = alter_credentials(Request(upsertions=[wanted]), known())
    made = credential_from_password(SHA_256, "bob!", salt=b"pepper", iterations=5000)
    assert altered.changes == [(CredentialId("bob", SHA_256), made)]
    assert [(each.user, each.error_code) for each in altered.results] == [("bob", 0)]


def test_a_deletion_removes() -> None:
    altered = alter_credentials(Request(deletions=[deletion()]), known())
    assert altered.changes == [(ADA, None)]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (upsertion(""), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x" * 256), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x" * 255), E.NONE),
        (upsertion(mechanism=0), E.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), E.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=ITERATIONS_MIN - 1), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=ITERATIONS_MIN), E.NONE),
        (upsertion(iterations=ITERATIONS_MAX), E.NONE),
        (upsertion(iterations=ITERATIONS_MAX + 1), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=b"short"), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=2), E.UNACCEPTABLE_CREDENTIAL),  # 32 bytes are not SHA-512
        (upsertion(mechanism=2, salted_password=b"p" * 64), E.NONE),
    ],
)
def test_each_upsertion_is_checked(wanted: ScramCredentialUpsertion, code: ErrorCode) -> None:
    altered = alter_credentials(Request(upsertions=[wanted]), known())
    assert [each.error_code for each in altered.results] == [code]
    assert bool(altered.changes) == (code is E.NONE)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (deletion("eve"), E.RESOURCE_NOT_FOUND),
        (deletion("ada", 2), E.RESOURCE_NOT_FOUND),
        (deletion("ada", 9), E.UNSUPPORTED_SASL_MECHANISM),
        (deletion(""), E.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_each_deletion_is_checked(wanted: ScramCredentialDeletion, code: ErrorCode) -> None:
    assert list(codes(Request(deletions=[wanted])).values()) == [code]


def test_a_user_that_is_named_twice_is_not_changed_and_the_others_are() -> None:
    request = Request(deletions=[deletion()], upsertions=[upsertion("ada"), upsertion("bob")])
    altered = alter_credentials(request, known())
    assert {each.user: each.error_code for each in altered.results} == {
        "ada": E.DUPLICATE_RESOURCE,
        "bob": E.NONE,
    }
    assert [id.user for id, _ in altered.changes] == ["bob"]


# --- describe ---------------------------------------------------------------------------------


def test_all_users_are_described_when_none_is_named() -> None:
    both = known()
    both.put(CredentialId("ada", SHA_512), CREDENTIAL)
    both.put(CredentialId("bob", SHA_512), CREDENTIAL)
    results = describe_credentials(None, both)
    assert {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in results
    } == {"ada": [(1, 4096), (2, 4096)], "bob": [(2, 4096)]}
    assert describe_credentials([], both) == results


def test_unknown_and_repeated_names_have_an_error_each() -> None:
    results = describe_credentials(["ada", "eve", "bob", "bob"], known())
    assert [(each.user, each.error_code) for each in results] == [
        ("ada", E.NONE),
        ("eve", E.RESOURCE_NOT_FOUND),
        ("bob", E.DUPLICATE_RESOURCE),
    ]


def test_a_removed_credential_is_gone_and_the_user_with_the_last_one() -> None:
    some = known()
    some.put(CredentialId("ada", SHA_512), CREDENTIAL)
    some.remove(ADA)
    assert ADA not in some
    assert some.users == ["ada"]
    some.remove(CredentialId("ada", SHA_512))
    assert some.users == []
    some.remove(ADA)  # nothing to do
