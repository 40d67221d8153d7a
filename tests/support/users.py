"""Changes of users, for librdkafka's admin: its module does not export these names to mypy."""

from typing import Any

import confluent_kafka.admin

api: Any = confluent_kafka.admin
SHA_256, SHA_512 = api.ScramMechanism.SCRAM_SHA_256, api.ScramMechanism.SCRAM_SHA_512


def open_admin(config: dict[str, Any]) -> Any:
    return api.AdminClient(config)


def with_password(
    user: str,
    password: bytes,
    *,
    mechanism: Any = SHA_256,
    iterations: int = 4_096,
    salt: bytes | None = None,
) -> Any:
    info = api.ScramCredentialInfo(mechanism, iterations)
    return api.UserScramCredentialUpsertion(user, info, password, salt)


def without_password(user: str, mechanism: Any = SHA_256) -> Any:
    return api.UserScramCredentialDeletion(user, mechanism)
