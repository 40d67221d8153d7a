"""DescribeAcls, CreateAcls and DeleteAcls, from request to answer."""

from typing import Any

import pytest

from millstream.broker.security import acl_apis
from millstream.broker.security.acl_apis import create_acls, delete_acls, describe_acls
from millstream.broker.security.acls import (
    AclBinding,
    Acls,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from millstream.broker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from millstream.broker.wire.messages.describe_acls import DescribeAclsRequest

READ = AclBinding(Pattern(ResourceType.TOPIC, "orders"), "User:ada", Operation.READ)
WRITE = READ._replace(operation=Operation.WRITE)
OTHER = READ._replace(pattern=Pattern(ResourceType.GROUP, "g", PatternType.PREFIXED))
ANYTHING: dict[str, Any] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
}


def creation(binding: AclBinding = READ, **more: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": binding.pattern.resource_type,
        "resource_name": binding.pattern.name,
        "resource_pattern_type": binding.pattern.type,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
    }
    return AclCreation(**(fields | more))


# --- create -----------------------------------------------------------------------------------


def test_new_rules_are_created_and_known_ones_are_no_error() -> None:
    request = CreateAclsRequest(creations=[creation(READ), creation(WRITE), creation(WRITE)])
    created = create_acls(request, Acls([READ]))
    assert created.new == [WRITE]
    assert [each.error_code for each in created.response.results] == [0, 0, 0]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"resource_type": 0}, "resource type UNKNOWN"),
        ({"resource_type": 1}, "resource type ANY"),
        ({"resource_type": 99}, "resource type 99"),
        ({"resource_type": 4}, "kafka-cluster"),
        ({"resource_name": ""}, "resource name is empty"),
        ({"resource_name": "x" * 1_001}, "more than 1000"),
        ({"resource_pattern_type": 1}, "pattern type ANY"),
        ({"resource_pattern_type": 2}, "pattern type MATCH"),
        ({"operation": 0}, "operation UNKNOWN"),
        ({"operation": 1}, "operation ANY"),
        ({"operation": 42}, "operation 42"),
        ({"permission_type": 1}, "permission type ANY"),
        ({"principal": "ada"}, "type:name"),
        ({"principal": "User:"}, "type:name"),
        ({"principal": ""}, "principal is empty"),
        ({"host": ""}, "host is empty"),
    ],
)
def test_a_rule_that_could_decide_nothing_is_refused_alone(wrong: dict[str, Any], why: str) -> None:
    request = CreateAclsRequest(creations=[creation(READ, **wrong), creation(WRITE)])
    created = create_acls(request, Acls())
    assert created.new == [WRITE]
    refused, taken = created.response.results
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert why in (refused.error_message or "")
    assert taken.error_code == ErrorCode.NONE


def test_there_is_a_limit_to_how_many_rules_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_apis, "ACLS_MAX", 2)
    request = CreateAclsRequest(creations=[creation(READ), creation(WRITE), creation(OTHER)])
    created = create_acls(request, Acls([READ]))
    assert created.new == [WRITE]
    assert [each.error_code for each in created.response.results] == [0, 0, 42]


# --- describe ---------------------------------------------------------------------------------


def test_rules_are_described_by_resource() -> None:
    response = describe_acls(DescribeAclsRequest(**ANYTHING), Acls([READ, WRITE, OTHER]))
    assert response.error_code == ErrorCode.NONE
    assert [
        (each.resource_type, each.resource_name, each.pattern_type, len(each.acls))
        for each in response.resources
    ] == [(2, "orders", 3, 2), (3, "g", 4, 1)]
    only = response.resources[1].acls[0]
    assert (only.principal, only.host, only.operation, only.permission_type) == (
        "User:ada",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )


@pytest.mark.parametrize("wrong", [{"operation": 0}, {"resource_type_filter": 99}])
def test_an_unknown_filter_is_an_error(wrong: dict[str, int]) -> None:
    response = describe_acls(DescribeAclsRequest(**(ANYTHING | wrong)), Acls([READ]))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.resources == []


# --- delete -----------------------------------------------------------------------------------


def test_each_filter_says_what_it_deleted_and_a_rule_goes_once() -> None:
    reading = DeleteAclsFilter(**(ANYTHING | {"operation": Operation.READ}))
    topics = DeleteAclsFilter(**(ANYTHING | {"resource_type_filter": ResourceType.TOPIC}))
    wrong = DeleteAclsFilter(**(ANYTHING | {"permission_type": 0}))
    request = DeleteAclsRequest(filters=[reading, wrong, topics])
    deleted = delete_acls(request, Acls([READ, WRITE, OTHER]))
    assert sorted(deleted.gone) == sorted([READ, OTHER, WRITE])
    results = deleted.response.filter_results
    assert [len(each.matching_acls) for each in results] == [2, 0, 2]
    assert [each.error_code for each in results] == [0, ErrorCode.INVALID_REQUEST, 0]
    assert results[0].matching_acls[0].resource_name == "orders"


def test_a_filter_that_finds_nothing_is_no_error() -> None:
    none = DeleteAclsFilter(**ANYTHING, principal_filter="User:nobody")
    deleted = delete_acls(DeleteAclsRequest(filters=[none]), Acls([READ]))
    assert deleted.gone == []
    assert deleted.response.filter_results[0].error_code == ErrorCode.NONE
