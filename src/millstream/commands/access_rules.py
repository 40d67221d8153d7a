"""Access rules (ACLs) in the commands' words, and in those of confluent-kafka's admin.

    User:ada  may      read  topic orders*       from anywhere
    User:eve  may not  all   group billing       from 192.0.2.7

Values in, values out; `acls.py` asks the cluster.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

from millstream.commands.connecting import admin_api
from millstream.commands.options import BadOption

ANYWHERE = "*"
USER = "User:"
EVERYBODY, WITHOUT_LOGIN = "*", "ANONYMOUS"
CLUSTER_NAME = "kafka-cluster"
# By the commands' word, the client's name for it.
RESOURCES = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional-id": "TRANSACTIONAL_ID",
    "cluster": "BROKER",  # the client's old word for the cluster
}
OPERATIONS = (
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "describe-configs",
    "alter-configs",
    "cluster-action",
    "idempotent-write",
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Resource:
    """What a rule is about. `name` may be `*`, which is every one of its kind."""

    kind: str
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        if self.kind == "cluster":
            return "cluster"
        return f"{self.kind} {self.name}{'*' if self.is_prefix else ''}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AccessRule:
    principal: str
    resource: Resource
    operation: str
    is_allowed: bool = True
    host: str = ANYWHERE

    def __str__(self) -> str:
        may = "may" if self.is_allowed else "may not"
        where = "" if self.host == ANYWHERE else f" from {self.host}"
        return f"{self.principal} {may} {self.operation} {self.resource}{where}"

    def to_json(self) -> dict[str, Any]:
        return {
            "principal": self.principal,
            "permission": "allow" if self.is_allowed else "deny",
            "operation": self.operation,
            "resource": self.resource.kind,
            "name": self.resource.name,
            "pattern": "prefix" if self.resource.is_prefix else "literal",
            "host": self.host,
        }


def parse_principal(text: str) -> str:
    """`ada` is short for `User:ada`. Of any kind: rules may be there that name one."""
    kind, colon, name = text.partition(":")
    if not text or (colon and not (kind and name)):
        raise BadOption(option="--principal", value=text, allowed="a user, as ada or User:ada")
    return text if colon else f"{USER}{text}"


def parse_user_principal(text: str) -> str:
    """For a new rule: one of another kind, such as `user:ada`, would never match anybody."""
    principal = parse_principal(text)
    if not principal.startswith(USER):
        meant = f"{USER}{principal.partition(':')[2]}"
        raise BadOption(option="--principal", value=text, allowed=f"a user, as {meant}")
    return principal


def unknown_users(principals: Iterable[str], known: Container[str]) -> list[str]:
    """Those that nobody can log in as by a password; a certificate's name has a `=`, as CN=ada."""
    names = dict.fromkeys(principal.removeprefix(USER) for principal in principals)
    return [
        name
        for name in names
        if name not in known and name not in (EVERYBODY, WITHOUT_LOGIN) and "=" not in name
    ]


def parse_operation(text: str) -> str:
    word = text.lower().replace("_", "-")
    if word not in OPERATIONS:
        allowed = f"one of {', '.join(OPERATIONS)}"
        raise BadOption(option="--operation", value=text, allowed=allowed)
    return word


# --- the client's words -----------------------------------------------------------------------


def to_binding(rule: AccessRule) -> Any:
    api = admin_api()
    return api.AclBinding(
        _resource_type(rule.resource.kind),
        rule.resource.name,
        api.ResourcePatternType.PREFIXED
        if rule.resource.is_prefix
        else api.ResourcePatternType.LITERAL,
        rule.principal,
        rule.host,
        api.AclOperation[rule.operation.upper().replace("-", "_")],
        api.AclPermissionType.ALLOW if rule.is_allowed else api.AclPermissionType.DENY,
    )


def from_binding(binding: Any) -> AccessRule:
    kinds = {name: kind for kind, name in RESOURCES.items()}
    kind = binding.restype.name
    resource = Resource(
        kind=kinds.get(kind, kind.lower()),
        name=binding.name,
        is_prefix=binding.resource_pattern_type.name == "PREFIXED",
    )
    return AccessRule(
        principal=binding.principal,
        resource=resource,
        operation=binding.operation.name.lower().replace("_", "-"),
        is_allowed=binding.permission_type.name == "ALLOW",
        host=binding.host,
    )


def filter_for(resource: Resource | None, principal: str | None) -> Any:
    """All rules that decide about the resource, whether by its name, a prefix or `*`."""
    api = admin_api()
    return api.AclBindingFilter(
        api.ResourceType.ANY if resource is None else _resource_type(resource.kind),
        None if resource is None else resource.name,
        api.ResourcePatternType.ANY if resource is None else api.ResourcePatternType.MATCH,
        principal,
        None,
        api.AclOperation.ANY,
        api.AclPermissionType.ANY,
    )


def exactly(rule: AccessRule) -> Any:
    """The filter that finds this rule and no other."""
    api, binding = admin_api(), to_binding(rule)
    return api.AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def _resource_type(kind: str) -> Any:
    return admin_api().ResourceType[RESOURCES[kind]]
