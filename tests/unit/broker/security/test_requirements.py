"""Every API says what it needs, and nothing can be called that does not."""

import pytest
from kio.schema.index import api_key_map

from millstream.broker.handlers import HANDLERS
from millstream.broker.security.acls import OPERATIONS_OF, Operation, ResourceType
from millstream.broker.security.requirements import (
    PRIVATE_TOPICS,
    REQUIREMENTS,
    Access,
    Denial,
    NoRequirement,
    Requirement,
    requirement_of,
)
from millstream.broker.security.sasl_session import (
    ALLOWED_WHILE_EXCHANGING,
    ALLOWED_WHILE_NEW,
)
from millstream.broker.topics import METADATA_TOPIC
from millstream.broker.wire import ApiKey
from millstream.broker.wire.error_codes import ErrorCode

ROWS = pytest.mark.parametrize(
    "row", REQUIREMENTS.values(), ids=[each.name for each in REQUIREMENTS.values()]
)


def test_every_api_that_kafka_has_is_in_the_table() -> None:
    """kio knows every API of the protocol."""
    names = {key: name.replace("_", "") for key, name in api_key_map.items()}
    assert {key: row.name.lower() for key, row in REQUIREMENTS.items()} == names


def test_every_api_that_is_answered_here_is_in_the_table() -> None:
    import millstream.broker.apis  # noqa: F401 # fills HANDLERS

    assert HANDLERS
    assert HANDLERS.keys() <= REQUIREMENTS.keys()
    assert {int(key) for key in ApiKey} <= REQUIREMENTS.keys()


def test_the_topic_that_holds_the_credentials_is_private() -> None:
    assert METADATA_TOPIC in PRIVATE_TOPICS


def test_an_api_without_a_line_is_refused() -> None:
    with pytest.raises(NoRequirement, match="4711"):
        requirement_of(4711)
    assert requirement_of(ApiKey.PRODUCE).name == "Produce"


def test_what_needs_no_login_is_what_a_login_begins_with() -> None:
    open = {key for key, row in REQUIREMENTS.items() if row.access is Access.ANYONE}
    assert open == ALLOWED_WHILE_NEW | ALLOWED_WHILE_EXCHANGING


def test_few_apis_need_a_login_and_nothing_else() -> None:
    """A new line here is a decision, not an oversight."""
    open = {row.name for row in REQUIREMENTS.values() if row.access is Access.AUTHENTICATED}
    assert open == {
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
    }


@ROWS
def test_a_line_has_needs_exactly_if_rules_decide(row: Requirement) -> None:
    assert bool(row.needs) == (row.access is Access.BY_ACL)


@ROWS
def test_a_line_asks_for_operations_that_the_resource_has(row: Requirement) -> None:
    for need in row.needs:
        for grant in need.any_of:
            is_delete_all = grant == DELETE_CLUSTER  # Kafka asks for it, and documents it nowhere
            assert is_delete_all or grant.operation in OPERATIONS_OF[grant.resource_type]


@ROWS
def test_each_need_is_for_all_requests_or_says_for_which(row: Requirement) -> None:
    needs = [(need.any_of, need.when) for need in row.needs]
    assert len(needs) == len(set(needs))


@ROWS
def test_a_denial_has_an_error_that_speaks_of_authorization(row: Requirement) -> None:
    for need in row.needs:
        assert need.error.name.endswith("_AUTHORIZATION_FAILED")


DELETE_CLUSTER = next(
    grant
    for need in REQUIREMENTS[ApiKey.DELETE_TOPICS].needs
    for grant in need.any_of
    if grant.resource_type is ResourceType.CLUSTER
)

GRANTS = {
    ApiKey.PRODUCE: ["WRITE TRANSACTIONAL_ID", "WRITE TOPIC"],
    ApiKey.FETCH: ["READ TOPIC", "CLUSTER_ACTION CLUSTER"],
    ApiKey.OFFSET_COMMIT: ["READ GROUP", "READ TOPIC"],
    ApiKey.OFFSET_DELETE: ["DELETE GROUP", "READ TOPIC"],
    ApiKey.CREATE_ACLS: ["ALTER CLUSTER"],
    ApiKey.DESCRIBE_ACLS: ["DESCRIBE CLUSTER"],
    ApiKey.ALTER_CLIENT_QUOTAS: ["ALTER_CONFIGS CLUSTER"],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ["ALTER CLUSTER"],
    ApiKey.SHARE_FETCH: ["READ GROUP", "READ TOPIC"],
    ApiKey.LIST_GROUPS: ["DESCRIBE CLUSTER or DESCRIBE GROUP"],
}


@pytest.mark.parametrize("api_key", GRANTS, ids=lambda key: key.name)
def test_what_some_apis_need_as_kafka_documents_it(api_key: ApiKey) -> None:
    needs = [
        " or ".join(f"{each.operation.name} {each.resource_type.name}" for each in need.any_of)
        for need in REQUIREMENTS[api_key].needs
    ]
    assert needs == GRANTS[api_key]


def test_an_idempotent_producer_needs_one_topic_to_write_to() -> None:
    need = REQUIREMENTS[ApiKey.INIT_PRODUCER_ID].needs[-1]
    assert [grant.on_any for grant in need.any_of] == [False, True]
    assert need.any_of[1].operation is Operation.WRITE
    assert need.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_lists_leave_out_what_the_caller_may_not_see() -> None:
    for key in (ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS):
        assert {need.denial for need in REQUIREMENTS[key].needs} == {Denial.HIDES_ITEM}
