"""Random rules against a naive evaluator, written from the words of Kafka's documentation."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.security.acls import (
    AclBinding,
    Acls,
    Caller,
    Operation,
    Pattern,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)

Op = Operation
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
# Few of each, so that rules meet.
OPERATIONS = [Op.READ, Op.DELETE, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS]
CALLERS = [
    Caller("User:ada", "10.0.0.1"),
    Caller("User:ada", "10.0.0.2"),
    Caller("User:eve", "10.0.0.1"),
    Caller("User:root", "10.0.0.1"),
]
RESOURCES = [Resource(type, name) for type in TYPES for name in ("a", "ab", "abc", "b")]
ASKED = list(product(CALLERS, OPERATIONS, RESOURCES))

PATTERNS = st.builds(
    Pattern,
    st.sampled_from(TYPES),
    st.sampled_from(["a", "ab", "b", "*"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
BINDINGS = st.builds(
    AclBinding,
    PATTERNS,
    st.sampled_from(["User:ada", "User:eve", "User:*"]),
    st.sampled_from([*OPERATIONS, Op.ALL]),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    st.sampled_from(["10.0.0.1", "*"]),
)

DESCRIBING = {Op.DESCRIBE, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}
DESCRIBING_CONFIGS = {Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS}


def is_named(pattern: Pattern, resource: Resource) -> bool:
    if pattern.resource_type != resource.type:
        return False
    if pattern.type == PatternType.PREFIXED:
        return resource.name.startswith(pattern.name)
    return pattern.name == "*" or pattern.name == resource.name


def is_meant(rule: AclBinding, caller: Caller, operation: Operation) -> bool:
    if rule.principal not in ("User:*", caller.principal) or rule.host not in ("*", caller.host):
        return False
    if rule.operation in (Op.ALL, operation):
        return True
    if rule.permission == Permission.DENY:
        return False
    if operation == Op.DESCRIBE:
        return rule.operation in DESCRIBING
    return operation == Op.DESCRIBE_CONFIGS and rule.operation in DESCRIBING_CONFIGS


def naive(
    rules: set[AclBinding], caller: Caller, operation: Operation, resource: Resource, *, open: bool
) -> bool:
    if caller.principal == "User:root":
        return True
    about = [rule for rule in rules if is_named(rule.pattern, resource)]
    if not about:
        return open
    permissions = {rule.permission for rule in about if is_meant(rule, caller, operation)}
    return Permission.ALLOW in permissions and Permission.DENY not in permissions


@given(
    added=st.lists(BINDINGS, max_size=20),
    removed=st.lists(st.integers(0, 19), max_size=5),
    open=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_index_decides_as_one_who_looks_at_every_rule(
    added: list[AclBinding], removed: list[int], open: bool
) -> None:
    acls = Acls(added, super_users=["User:root"], is_allowed_without_rule=open)
    rules = set(added)
    for binding in [added[number] for number in removed if number < len(added)]:
        acls.remove(binding)
        rules.discard(binding)
    assert set(acls) == rules
    assert len(acls) == len(rules)
    for caller, operation, resource in ASKED:
        decided = acls.is_allowed(caller, operation, resource)
        assert decided == naive(rules, caller, operation, resource, open=open)


SOME_NAMES = ["a", "ab", "abc", "b", "ba", "*", "ab.", "a.", "b.", "ba.", "abc.", "*."]


@given(rules=st.sets(BINDINGS, max_size=8), caller=st.sampled_from(CALLERS))
@settings(max_examples=150, deadline=None)
def test_there_is_a_resource_to_use_exactly_if_one_can_be_named(
    rules: set[AclBinding], caller: Caller
) -> None:
    """Of names longer than all patterns there is always one that only prefixes speak of."""
    acls = Acls(rules)
    names = [Resource(ResourceType.TOPIC, name) for name in [*SOME_NAMES, "any-name"]]
    can = any(acls.is_allowed(caller, Op.READ, name) for name in names)
    assert acls.is_allowed_on_any(caller, Op.READ, ResourceType.TOPIC) is can
