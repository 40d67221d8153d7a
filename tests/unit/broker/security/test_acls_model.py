"""Random rules against a naive evaluator, written from the words of Kafka's documentation."""

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
TYPES = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
NAMES = st.sampled_from(["a", "ab", "abc", "b", "ba", "*"])
PRINCIPALS = st.sampled_from(["User:ada", "User:eve", "User:*", "User:root"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2", "*"])
RULE_OPERATIONS = st.sampled_from([o for o in Operation if o not in (Op.UNKNOWN, Op.ANY)])
ASKED_OPERATIONS = st.sampled_from([o for o in Operation if o > Op.ALL])

PATTERNS = st.builds(
    Pattern, TYPES, NAMES, st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])
)
PERMISSIONS = st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY])
BINDINGS = st.builds(AclBinding, PATTERNS, PRINCIPALS, RULE_OPERATIONS, PERMISSIONS, HOSTS)
CALLERS = st.builds(
    Caller,
    st.sampled_from(["User:ada", "User:eve", "User:root"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2"]),
)
RESOURCES = st.builds(Resource, TYPES, st.sampled_from(["a", "ab", "abc", "abcd", "b", "c"]))

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
    added=st.lists(BINDINGS, max_size=30),
    removed=st.lists(st.integers(0, 29), max_size=10),
    asked=st.lists(st.tuples(CALLERS, ASKED_OPERATIONS, RESOURCES), min_size=1, max_size=20),
    open=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_index_decides_as_one_who_looks_at_every_rule(
    added: list[AclBinding],
    removed: list[int],
    asked: list[tuple[Caller, Operation, Resource]],
    open: bool,
) -> None:
    acls = Acls(added, super_users=["User:root"], is_allowed_without_rule=open)
    rules = set(added)
    for binding in [added[number] for number in removed if number < len(added)]:
        acls.remove(binding)
        rules.discard(binding)
    assert set(acls) == rules
    assert len(acls) == len(rules)
    for caller, operation, resource in asked:
        decided = acls.is_allowed(caller, operation, resource)
        assert decided == naive(rules, caller, operation, resource, open=open)


SOME_NAMES = ["a", "ab", "abc", "b", "ba", "*", "ab.", "a.", "b.", "ba.", "abc.", "*."]


@given(rules=st.sets(BINDINGS, max_size=8), caller=CALLERS)
@settings(max_examples=150, deadline=None)
def test_there_is_a_resource_to_write_to_exactly_if_one_can_be_named(
    rules: set[AclBinding], caller: Caller
) -> None:
    """Of names longer than all patterns there is always one that only prefixes speak of."""
    acls = Acls(rules)
    names = [Resource(ResourceType.TOPIC, name) for name in [*SOME_NAMES, "any-name"]]
    can = any(acls.is_allowed(caller, Operation.WRITE, name) for name in names)
    assert acls.is_allowed_on_any(caller, Operation.WRITE, ResourceType.TOPIC) is can
