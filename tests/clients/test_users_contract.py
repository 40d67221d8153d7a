"""Users and their passwords (SCRAM credentials) as librdkafka's admin manages them."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.clients.steps import unique_name
from tests.support.users import SHA_256, SHA_512, open_admin, with_password, without_password
from tests.support.waiting import eventually


@pytest.fixture
def user() -> str:
    return unique_name("user")


def upsert(user: str, iterations: int = 4_096, mechanism: Any = SHA_256) -> Any:
    return with_password(user, b"secret", mechanism=mechanism, iterations=iterations)


def error_of(future: "Future[Any]") -> str:
    with pytest.raises(KafkaException) as caught:
        future.result(20)
    return str(caught.value.args[0].name())


def iterations_of(admin: Any, user: str) -> dict[str, int]:
    found = admin.describe_user_scram_credentials().result(20)
    infos = found[user].scram_credential_infos if user in found else []
    return {info.mechanism.name: info.iterations for info in infos}


def test_a_user_is_added_changed_and_removed(bootstrap: str, user: str) -> None:
    admin = open_admin({"bootstrap.servers": bootstrap})
    for change, then in (
        (upsert(user), {"SCRAM_SHA_256": 4_096}),
        (upsert(user, 8_192, SHA_512), {"SCRAM_SHA_256": 4_096, "SCRAM_SHA_512": 8_192}),
        (upsert(user, 16_384), {"SCRAM_SHA_256": 16_384, "SCRAM_SHA_512": 8_192}),
        (without_password(user, SHA_256), {"SCRAM_SHA_512": 8_192}),
        (without_password(user, SHA_512), {}),
    ):
        admin.alter_user_scram_credentials([change])[user].result(20)
        eventually(lambda then=then: iterations_of(admin, user) == then, what=f"{then}")  # type: ignore[misc]


def test_what_cannot_be_is_refused(bootstrap: str, user: str) -> None:
    admin = open_admin({"bootstrap.servers": bootstrap})
    for change, code in (
        (upsert(user, 4_095), "UNACCEPTABLE_CREDENTIAL"),
        (upsert(user, 16_385), "UNACCEPTABLE_CREDENTIAL"),
        (without_password(user, SHA_256), "RESOURCE_NOT_FOUND"),
    ):
        assert error_of(admin.alter_user_scram_credentials([change])[user]) == code
    described = admin.describe_user_scram_credentials([user])
    assert error_of(described[user]) == "RESOURCE_NOT_FOUND"
    twice = [upsert(user), upsert(user, mechanism=SHA_512)]
    assert error_of(admin.alter_user_scram_credentials(twice)[user]) == "DUPLICATE_RESOURCE"
