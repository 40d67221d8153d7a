"""Listing and changing rules: what DescribeAcls, CreateAcls and DeleteAcls (APIs 29 to 31) do.

From a request to the answer and to the rules that must be stored before it is sent. Whether the
caller may ask is decided before (`requirements.py`); nothing is stored here.
"""

from itertools import groupby
from typing import NamedTuple, Protocol, TypeVar

from millstream.base.errors import Rejected
from millstream.broker.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Acls,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from millstream.broker.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from millstream.broker.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

# Far more than people write, and few enough for one batch and for the memory.
ACLS_MAX = 100_000
ACL_TEXT_LENGTH_MAX = 1_000


E = TypeVar("E", ResourceType, PatternType, Operation, Permission)


class InvalidAcl(Rejected):
    def __init__(self, *, reason: str) -> None:
        super().__init__(f"this ACL cannot be: {reason}")
        self.reason = reason


class InvalidAclFilter(Rejected):
    def __init__(self, *, reason: str) -> None:
        super().__init__(f"this ACL filter cannot be: {reason}")
        self.reason = reason


class FilterFields(Protocol):
    """What DescribeAcls and each filter of DeleteAcls have in common."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


# --- create -----------------------------------------------------------------------------------


class CreatedAcls(NamedTuple):
    response: CreateAclsResponse
    new: list[AclBinding]


def create_acls(request: CreateAclsRequest, acls: Acls) -> CreatedAcls:
    """Each rule for itself; one that is there already is no error."""
    results, new = [], dict[AclBinding, None]()
    for creation in request.creations:
        result = AclCreationResult()
        try:
            binding = checked_binding(creation)
            if binding not in acls:
                _check_room(len(acls) + len(new))
                new[binding] = None
        except InvalidAcl as error:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
        results.append(result)
    return CreatedAcls(CreateAclsResponse(results=results), list(new))


def _check_room(count: int) -> None:
    if count >= ACLS_MAX:
        raise InvalidAcl(reason=f"there are {count} already, {ACLS_MAX} are allowed")


def checked_binding(creation: AclCreation) -> AclBinding:
    """The rule that a client wants, if it can decide anything."""
    pattern = Pattern(
        _real(ResourceType, creation.resource_type, "resource type"),
        creation.resource_name,
        _real(PatternType, creation.resource_pattern_type, "pattern type"),
    )
    _check_pattern(pattern)
    _check_principal(creation.principal)
    _check_text("host", creation.host)
    operation = _real(Operation, creation.operation, "operation")
    permission = _real(Permission, creation.permission_type, "permission type")
    return AclBinding(pattern, creation.principal, operation, permission, creation.host)


def _real(kind: type[E], number: int, what: str) -> E:
    """A value that is neither unknown nor a placeholder of filters."""
    try:
        value = kind(number)
    except ValueError:
        raise InvalidAcl(reason=f"unknown {what} {number}") from None
    if value.name in ("UNKNOWN", "ANY", "MATCH"):
        raise InvalidAcl(reason=f"{what} {value.name} is for filters only")
    return value


def _check_pattern(pattern: Pattern) -> None:
    _check_text("resource name", pattern.name)
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidAcl(reason=f"the only CLUSTER is named {CLUSTER_NAME!r}")


def _check_principal(principal: str) -> None:
    _check_text("principal", principal)
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        reason = f"principal {principal!r} is not of the form type:name, as User:ada"
        raise InvalidAcl(reason=reason)


def _check_text(what: str, text: str) -> None:
    if not text:
        raise InvalidAcl(reason=f"the {what} is empty")
    if len(text) > ACL_TEXT_LENGTH_MAX:
        raise InvalidAcl(reason=f"the {what} has more than {ACL_TEXT_LENGTH_MAX} characters")


# --- filters ----------------------------------------------------------------------------------


def read_filter(fields: FilterFields) -> AclFilter:
    try:
        read = AclFilter(
            resource_type=ResourceType(fields.resource_type_filter),
            name=fields.resource_name_filter,
            pattern_type=PatternType(fields.pattern_type_filter),
            principal=fields.principal_filter,
            host=fields.host_filter,
            operation=Operation(fields.operation),
            permission=Permission(fields.permission_type),
        )
    except ValueError as error:
        raise InvalidAclFilter(reason=str(error)) from None
    for value in (read.resource_type, read.pattern_type, read.operation, read.permission):
        if value.name == "UNKNOWN":
            raise InvalidAclFilter(reason=f"the {type(value).__name__} is unknown")
    return read


def describe_acls(request: DescribeAclsRequest, acls: Acls) -> DescribeAclsResponse:
    try:
        found = acls.matching(read_filter(request))
    except InvalidAclFilter as error:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.type,
                acls=[_description(each) for each in rules],
            )
            for pattern, rules in groupby(found, key=lambda each: each.pattern)
        ]
    )


def _description(binding: AclBinding) -> AclDescription:
    return AclDescription(
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


class DeletedAcls(NamedTuple):
    response: DeleteAclsResponse
    gone: list[AclBinding]


def delete_acls(request: DeleteAclsRequest, acls: Acls) -> DeletedAcls:
    """Each filter for itself, all of them against the rules as they were before."""
    results, gone = [], dict[AclBinding, None]()
    for wanted in request.filters:
        try:
            found = acls.matching(read_filter(wanted))
        except InvalidAclFilter as error:
            results.append(
                DeleteAclsFilterResult(
                    error_code=ErrorCode.INVALID_REQUEST, error_message=str(error)
                )
            )
            continue
        gone |= dict.fromkeys(found)
        results.append(DeleteAclsFilterResult(matching_acls=[_deleted(each) for each in found]))
    return DeletedAcls(DeleteAclsResponse(filter_results=results), list(gone))


def _deleted(binding: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=binding.pattern.resource_type,
        resource_name=binding.pattern.name,
        pattern_type=binding.pattern.type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )
