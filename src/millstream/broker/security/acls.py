"""Access control lists: who may do what to what, decided as Kafka's StandardAuthorizer does.

    super user                 allowed
    a DENY that matches        denied, whatever else there is
    an ALLOW that matches      allowed
    only rules of others       denied
    no rule for the resource   denied, or allowed if so configured (allow.everyone.if.no.acl.found)

A rule matches a resource by its name (LITERAL), by how the name begins (PREFIXED), or every name
(LITERAL `*`). ALLOW to READ, WRITE, DELETE or ALTER also allows DESCRIBE, ALTER_CONFIGS also
DESCRIBE_CONFIGS; a DENY implies nothing. Knows no request and no wire; `acl_apis.py` does.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from millstream.base.errors import Corrupt

WILDCARD = "*"
EVERYONE = "User:*"
ANONYMOUS = "User:ANONYMOUS"
CLUSTER_NAME = "kafka-cluster"

ACL_KEY = b"acl/"


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1  # filters only: LITERAL or PREFIXED
    MATCH = 2  # filters only: whatever decides about a resource of this name
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


ALLOWED_ALONG: Mapping[Operation, tuple[Operation, ...]] = {
    Operation.READ: (Operation.DESCRIBE,),
    Operation.WRITE: (Operation.DESCRIBE,),
    Operation.DELETE: (Operation.DESCRIBE,),
    Operation.ALTER: (Operation.DESCRIBE,),
    Operation.ALTER_CONFIGS: (Operation.DESCRIBE_CONFIGS,),
}
# What can be done to a resource at all: the bits of `authorized_operations` in answers (KIP-430).
OPERATIONS_OF: Mapping[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
            Operation.ALTER,
            Operation.DESCRIBE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset(
        {Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT}
    ),
    ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}


class Resource(NamedTuple):
    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name}:{self.name}"


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


class Pattern(NamedTuple):
    """Which resources a rule is about."""

    resource_type: ResourceType
    name: str
    type: PatternType = PatternType.LITERAL

    def matches(self, resource: Resource) -> bool:
        if self.resource_type is not resource.type:
            return False
        if self.type is PatternType.PREFIXED:
            return resource.name.startswith(self.name)
        return self.name in (WILDCARD, resource.name)


class AclBinding(NamedTuple):
    """One rule. `host` is an address as text, or `*`."""

    pattern: Pattern
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    host: str = WILDCARD

    def __str__(self) -> str:
        pattern = self.pattern
        what = f"{pattern.resource_type.name}:{pattern.type.name}:{pattern.name}"
        who = f"{self.principal} from {self.host}"
        return f"{self.permission.name} {who} {self.operation.name} on {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which rules are meant; None and ANY stand for all."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: AclBinding) -> bool:
        return (
            self._matches_pattern(binding.pattern)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
        )

    def _matches_pattern(self, pattern: Pattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type is PatternType.MATCH:
            resource = Resource(pattern.resource_type, self.name or "")
            return self.name is None or pattern.matches(resource)
        is_type = self.pattern_type in (PatternType.ANY, pattern.type)
        return is_type and self.name in (None, pattern.name)


# --- the decision -----------------------------------------------------------------------------


class Reason(Enum):
    SUPER_USER = "a super user"
    ALLOW = "an ALLOW matches"
    DENY = "a DENY matches"
    NO_MATCH = "no rule of this resource matches"
    NO_RULE = "the resource has no rule"
    PRIVATE = "nobody is served this topic"


class Decision(NamedTuple):
    is_allowed: bool
    reason: Reason


class Caller(NamedTuple):
    """Who asks, and from which address."""

    principal: str
    host: str


SUPER_USER = Decision(True, Reason.SUPER_USER)
ALLOWED = Decision(True, Reason.ALLOW)
DENIED = Decision(False, Reason.DENY)
NO_MATCH = Decision(False, Reason.NO_MATCH)
PRIVATE = Decision(False, Reason.PRIVATE)

ALL_OPERATIONS = (1 << (max(Operation) + 1)) - 1


class Masks(NamedTuple):
    """One bit for each operation."""

    allow: int
    deny: int


Who = tuple[str, str]  # principal and host, as rules name them
# What the rules of one pattern say of each of these.
MasksOfCaller = dict[Who, Masks]
RulesOfCaller = dict[Who, set[AclBinding]]


class Patterns:
    """The rules for one type of resource, by the name in their pattern.

    Plain strings as keys, as this is looked at several times for every topic of every request.
    """

    def __init__(self) -> None:
        self._literal: dict[str, MasksOfCaller] = {}
        self._prefixed: dict[str, MasksOfCaller] = {}
        self._prefixes_of_length: Counter[int] = Counter()
        self._prefix_lengths: list[int] = []

    def put(self, pattern: Pattern, masks: MasksOfCaller) -> None:
        """A pattern that was not there. Its masks may change later."""
        if pattern.type is PatternType.PREFIXED:
            self._prefixed[pattern.name] = masks
            self._count_prefix(len(pattern.name), 1)
        else:
            self._literal[pattern.name] = masks

    def remove(self, pattern: Pattern) -> None:
        if pattern.type is PatternType.PREFIXED:
            del self._prefixed[pattern.name]
            self._count_prefix(len(pattern.name), -1)
        else:
            del self._literal[pattern.name]

    def _count_prefix(self, length: int, change: int) -> None:
        self._prefixes_of_length[length] += change
        self._prefix_lengths = sorted(+self._prefixes_of_length)

    def matching(self, name: str) -> list[MasksOfCaller]:
        found = [self._literal.get(name), self._literal.get(WILDCARD)]
        for length in self._prefix_lengths:
            if length > len(name):
                break
            found.append(self._prefixed.get(name[:length]))
        return [masks for masks in found if masks is not None]


class Acls:
    """All rules, indexed for decisions. Owned by the broker's loop.

    A decision looks up the name, `*`, and as many prefixes as rules have different lengths; how
    many rules there are does not matter, nor does it for a change.
    """

    def __init__(
        self,
        bindings: Iterable[AclBinding] = (),
        *,
        super_users: Iterable[str] = (),
        is_allowed_without_rule: bool = False,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._no_rule = Decision(is_allowed_without_rule, Reason.NO_RULE)
        self._rules: dict[Pattern, RulesOfCaller] = {}
        self._masks: dict[Pattern, MasksOfCaller] = {}
        self._patterns = [Patterns() for _ in ResourceType]  # by the number of the type
        self._count = 0
        for binding in bindings:
            self.add(binding)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[AclBinding]:
        for rules_of in self._rules.values():
            for rules in rules_of.values():
                yield from rules

    def __contains__(self, binding: AclBinding) -> bool:
        rules_of = self._rules.get(binding.pattern, {})
        return binding in rules_of.get((binding.principal, binding.host), ())

    # --- change -------------------------------------------------------------------------------

    def add(self, binding: AclBinding) -> None:
        if binding in self:
            return
        pattern, who = binding.pattern, (binding.principal, binding.host)
        if pattern not in self._rules:
            self._rules[pattern], self._masks[pattern] = {}, {}
            self._patterns[pattern.resource_type].put(pattern, self._masks[pattern])
        self._rules[pattern].setdefault(who, set()).add(binding)
        self._masks[pattern][who] = _merged(self._rules[pattern][who])
        self._count += 1

    def remove(self, binding: AclBinding) -> None:
        if binding not in self:
            return
        pattern, who = binding.pattern, (binding.principal, binding.host)
        rules_of, masks_of = self._rules[pattern], self._masks[pattern]
        rules_of[who].remove(binding)
        masks_of[who] = _merged(rules_of[who])
        self._count -= 1
        if not rules_of[who]:
            del rules_of[who], masks_of[who]
        if not rules_of:
            del self._rules[pattern], self._masks[pattern]
            self._patterns[pattern.resource_type].remove(pattern)

    # --- decide -------------------------------------------------------------------------------

    def decide(self, caller: Caller, operation: Operation, resource: Resource) -> Decision:
        if caller.principal in self._super_users:
            return SUPER_USER
        masks = self._masks_for(caller, resource)
        if masks is None:
            return self._no_rule
        bit = 1 << operation
        if masks.deny & bit:
            return DENIED
        return ALLOWED if masks.allow & bit else NO_MATCH

    def is_allowed(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return self.decide(caller, operation, resource).is_allowed

    def authorized_operations(self, caller: Caller, resource: Resource) -> int:
        """The bits of everything that the caller may do to the resource (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[resource.type]
            if self.is_allowed(caller, operation, resource)
        )

    def is_allowed_on_any(
        self, caller: Caller, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there can be a resource that the caller may do this to (KIP-679).

        Walks all rules: it is asked once in the life of a producer.
        """
        if self.is_allowed(caller, operation, Resource(resource_type, ANY_NAME)):
            return True
        about = [each for each in self if _is_about(each, caller, operation, resource_type)]
        denied = {each.pattern for each in about if each.permission is Permission.DENY}
        if Pattern(resource_type, WILDCARD) in denied:
            return False
        allowed = {each.pattern for each in about if each.permission is Permission.ALLOW}
        return any(not _is_dominated(pattern, denied) for pattern in allowed)

    def deciding(
        self, caller: Caller, operation: Operation, resource: Resource
    ) -> AclBinding | None:
        """The rule behind a decision, for people. A DENY first."""
        about = [
            each
            for each in self
            if each.pattern.matches(resource) and _applies(each, caller, operation)
        ]
        return min(about, key=lambda each: (each.permission, each), default=None)

    def matching(self, wanted: AclFilter) -> list[AclBinding]:
        return sorted(each for each in self if wanted.matches(each))

    def _masks_for(self, caller: Caller, resource: Resource) -> Masks | None:
        """What all patterns of the resource say about the caller; None without any pattern."""
        found = self._patterns[resource.type].matching(resource.name)
        if not found:
            return None
        allow = deny = 0
        for masks_of in found:
            for who in _as_whom(caller):
                if (masks := masks_of.get(who)) is not None:
                    allow |= masks.allow
                    deny |= masks.deny
        return Masks(allow, deny)


ALL_CALLERS = (EVERYONE, WILDCARD)
ANY_NAME = "any-name"  # only rules for every name, or for none, speak of it


def _as_whom(caller: Caller) -> tuple[Who, ...]:
    principal, host = caller
    return (principal, host), (principal, WILDCARD), (EVERYONE, host), ALL_CALLERS


def _merged(rules: Iterable[AclBinding]) -> Masks:
    allow = deny = 0
    for rule in rules:
        if rule.permission is Permission.DENY:
            deny |= _bits(rule.operation)
        else:
            allow |= _bits(rule.operation, *ALLOWED_ALONG.get(rule.operation, ()))
    return Masks(allow, deny)


def _bits(*operations: Operation) -> int:
    if Operation.ALL in operations:
        return ALL_OPERATIONS
    return sum(1 << operation for operation in operations)


def _applies(binding: AclBinding, caller: Caller, operation: Operation) -> bool:
    is_principal = binding.principal in (caller.principal, EVERYONE)
    is_host = binding.host in (caller.host, WILDCARD)
    return is_principal and is_host and _covers(binding, operation)


def _covers(binding: AclBinding, operation: Operation) -> bool:
    masks = _merged([binding])
    return bool((masks.allow | masks.deny) & (1 << operation))


def _is_about(
    binding: AclBinding, caller: Caller, operation: Operation, resource_type: ResourceType
) -> bool:
    """Without what is implied: Kafka asks for this operation itself here."""
    return (
        _applies(binding, caller, operation)
        and binding.pattern.resource_type is resource_type
        and binding.operation in (operation, Operation.ALL)
    )


def _is_dominated(allowed: Pattern, denied: set[Pattern]) -> bool:
    """Whether denials leave nothing of what a pattern allows."""
    if allowed in denied and allowed.type is PatternType.LITERAL:
        return True
    return any(
        Pattern(allowed.resource_type, allowed.name[:length], PatternType.PREFIXED) in denied
        for length in range(1, len(allowed.name) + 1)
    )


# --- records ----------------------------------------------------------------------------------


class UnreadableAcl(Corrupt):
    def __init__(self, *, key: bytes, reason: str) -> None:
        super().__init__(
            f"the record {key[:300]!r} cannot be read as an ACL ({reason}); restore the data "
            "directory from a copy"
        )
        self.key, self.reason = key, reason


def acl_record(binding: AclBinding) -> tuple[bytes, bytes]:
    """Key and value. The key is made from the value: the same rule twice is one record."""
    content = {
        "resource_type": binding.pattern.resource_type.name,
        "name": binding.pattern.name,
        "pattern_type": binding.pattern.type.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission": binding.permission.name,
    }
    value = json.dumps(content, sort_keys=True).encode()
    return ACL_KEY + hashlib.sha256(value).hexdigest()[:32].encode(), value


def read_acl(key: bytes, value: bytes) -> AclBinding:
    """A record of the log, checked."""
    try:
        content: dict[str, str] = json.loads(value)
        pattern = Pattern(
            ResourceType[content["resource_type"]],
            content["name"],
            PatternType[content["pattern_type"]],
        )
        read = AclBinding(
            pattern,
            content["principal"],
            Operation[content["operation"]],
            Permission[content["permission"]],
            content["host"],
        )
        if acl_record(read)[0] != key:
            raise ValueError("it is not the rule that its key names")
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableAcl(key=key, reason=f"{error!r}") from error
    return read
