"""Who may do what to what."""

import pytest

from millstream.broker.security.acls import (
    ANONYMOUS,
    CLUSTER,
    EVERYONE,
    OPERATIONS_OF,
    AclBinding,
    AclFilter,
    Acls,
    Caller,
    Operation,
    Pattern,
    PatternType,
    Permission,
    Reason,
    Resource,
    ResourceType,
    UnreadableAcl,
    acl_record,
    read_acl,
)

Op, T = Operation, ResourceType
DENY = Permission.DENY
PREFIXED = PatternType.PREFIXED
ADA = Caller("User:ada", "10.0.0.1")
EVE = Caller("User:eve", "10.0.0.9")
ORDERS = Resource(T.TOPIC, "orders")


def topic(name: str, type: PatternType = PatternType.LITERAL) -> Pattern:
    return Pattern(T.TOPIC, name, type)


def rule(
    operation: Operation,
    pattern: Pattern | str = "orders",
    *,
    principal: str = "User:ada",
    permission: Permission = Permission.ALLOW,
    host: str = "*",
) -> AclBinding:
    pattern = topic(pattern) if isinstance(pattern, str) else pattern
    return AclBinding(pattern, principal, operation, permission, host)


def may(acls: Acls, operation: Operation, *, name: str = "orders", who: Caller = ADA) -> bool:
    return acls.is_allowed(who, operation, Resource(T.TOPIC, name))


# --- the decision -----------------------------------------------------------------------------


def test_what_no_rule_allows_is_denied() -> None:
    assert not may(Acls(), Op.READ)
    assert not may(Acls([rule(Op.WRITE)]), Op.READ)


def test_a_rule_is_for_its_principal_operation_and_resource_only() -> None:
    acls = Acls([rule(Op.READ)])
    assert may(acls, Op.READ)
    assert not may(acls, Op.READ, who=EVE)
    assert not may(acls, Op.WRITE)
    assert not may(acls, Op.READ, name="orders2")
    assert not acls.is_allowed(ADA, Op.READ, Resource(T.GROUP, "orders"))


def test_a_denial_wins_over_every_permission() -> None:
    allow = [rule(Op.ALL), rule(Op.ALL, "*"), rule(Op.READ, topic("ord", PREFIXED))]
    for pattern in (topic("orders"), topic("*"), topic("o", PREFIXED)):
        acls = Acls([*allow, rule(Op.READ, pattern, principal=EVERYONE, permission=DENY)])
        assert acls.decide(ADA, Op.READ, ORDERS).reason is Reason.DENY
        assert may(acls, Op.WRITE)


@pytest.mark.parametrize("operation", [Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.ALL])
def test_who_may_use_it_may_describe_it(operation: Operation) -> None:
    assert may(Acls([rule(operation)]), Op.DESCRIBE)


@pytest.mark.parametrize("operation", [Op.CREATE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS])
def test_other_operations_do_not_include_describe(operation: Operation) -> None:
    assert not may(Acls([rule(operation)]), Op.DESCRIBE)


def test_who_may_alter_configs_may_describe_them() -> None:
    assert may(Acls([rule(Op.ALTER_CONFIGS)]), Op.DESCRIBE_CONFIGS)
    assert not may(Acls([rule(Op.ALTER)]), Op.DESCRIBE_CONFIGS)


def test_a_denial_includes_nothing_else() -> None:
    acls = Acls([rule(Op.DESCRIBE), rule(Op.READ, permission=DENY)])
    assert may(acls, Op.DESCRIBE)
    assert not may(acls, Op.READ)


def test_a_denial_of_all_denies_everything() -> None:
    acls = Acls([rule(Op.ALL), rule(Op.ALL, permission=DENY)])
    assert not any(may(acls, operation) for operation in OPERATIONS_OF[T.TOPIC])


def test_a_prefix_is_for_every_name_that_begins_with_it() -> None:
    acls = Acls([rule(Op.READ, topic("orders", PREFIXED))])
    assert may(acls, Op.READ, name="orders")
    assert may(acls, Op.READ, name="orders.eu")
    assert not may(acls, Op.READ, name="order")


def test_a_literal_star_is_every_name_and_a_prefixed_star_is_not() -> None:
    assert may(Acls([rule(Op.READ, "*")]), Op.READ, name="anything")
    assert not may(Acls([rule(Op.READ, topic("*", PREFIXED))]), Op.READ, name="anything")


def test_everyone_is_also_whoever_has_no_name() -> None:
    acls = Acls([rule(Op.READ, principal=EVERYONE)])
    assert may(acls, Op.READ, who=Caller(ANONYMOUS, "::1"))
    assert not may(Acls([rule(Op.READ, principal="Group:*")]), Op.READ)


def test_a_rule_for_a_host_is_for_that_host_only() -> None:
    acls = Acls([rule(Op.READ, host="10.0.0.1")])
    assert may(acls, Op.READ)
    assert not may(acls, Op.READ, who=Caller("User:ada", "10.0.0.2"))


def test_a_super_user_may_do_everything_even_what_is_denied() -> None:
    acls = Acls([rule(Op.ALL, principal=EVERYONE, permission=DENY)], super_users=["User:ada"])
    assert acls.decide(ADA, Op.ALTER, CLUSTER).reason is Reason.SUPER_USER
    assert may(acls, Op.READ)
    assert not may(acls, Op.READ, who=EVE)


def test_resources_without_any_rule_may_be_left_open() -> None:
    acls = Acls([rule(Op.READ)], is_allowed_without_rule=True)
    assert may(acls, Op.READ, name="other", who=EVE)
    assert acls.decide(EVE, Op.READ, ORDERS).reason is Reason.NO_MATCH
    assert not may(acls, Op.READ, who=EVE)


def test_a_removed_rule_is_as_if_it_had_never_been() -> None:
    acls = Acls([rule(Op.READ), rule(Op.WRITE), rule(Op.READ, topic("o", PREFIXED))])
    acls.remove(rule(Op.READ))
    assert (may(acls, Op.READ), may(acls, Op.WRITE), len(acls)) == (True, True, 2)
    acls.remove(rule(Op.READ, topic("o", PREFIXED)))
    assert (may(acls, Op.READ), may(acls, Op.WRITE), len(acls)) == (False, True, 1)
    acls.remove(rule(Op.READ))  # nothing to do
    acls.remove(rule(Op.WRITE))
    assert (len(acls), list(acls)) == (0, [])
    assert acls.decide(ADA, Op.READ, ORDERS).reason is Reason.NO_RULE


def test_the_same_rule_twice_is_one_rule() -> None:
    acls = Acls([rule(Op.READ), rule(Op.READ)])
    acls.remove(rule(Op.READ))
    assert len(acls) == 0
    assert not may(acls, Op.READ)


def test_the_rule_behind_a_decision_can_be_shown() -> None:
    denial = rule(Op.READ, "*", permission=DENY)
    acls = Acls([rule(Op.READ), denial, rule(Op.WRITE)])
    assert acls.deciding(ADA, Op.READ, ORDERS) == denial
    assert str(denial) == "DENY User:ada from * READ on TOPIC:LITERAL:*"
    assert acls.deciding(ADA, Op.DESCRIBE, ORDERS) in (rule(Op.READ), rule(Op.WRITE))
    assert acls.deciding(EVE, Op.READ, ORDERS) is None


def test_the_operations_that_are_allowed_come_as_bits() -> None:
    acls = Acls([rule(Op.READ)])
    assert acls.authorized_operations(ADA, ORDERS) == (1 << Op.READ) | (1 << Op.DESCRIBE)
    everything = Acls(super_users=["User:ada"]).authorized_operations(ADA, ORDERS)
    assert everything == 0b1101_1111_1000  # READ to DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS


# --- any resource (KIP-679) -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "is_allowed"),
    [
        ([], False),
        ([rule(Op.WRITE)], True),
        ([rule(Op.ALL)], True),
        ([rule(Op.READ)], False),
        ([rule(Op.WRITE, "*")], True),
        ([rule(Op.WRITE, topic("o", PREFIXED))], True),
        ([rule(Op.WRITE), rule(Op.WRITE, permission=DENY)], False),
        ([rule(Op.WRITE), rule(Op.READ, permission=DENY)], True),
        ([rule(Op.WRITE), rule(Op.WRITE, "*", permission=DENY)], False),
        ([rule(Op.WRITE), rule(Op.WRITE, topic("ord", PREFIXED), permission=DENY)], False),
        ([rule(Op.WRITE), rule(Op.WRITE, topic("ordersX", PREFIXED), permission=DENY)], True),
        (
            [
                rule(Op.WRITE, topic("ord", PREFIXED)),
                rule(Op.WRITE, topic("o", PREFIXED), permission=DENY),
            ],
            False,
        ),
        (
            [
                rule(Op.WRITE, topic("o", PREFIXED)),
                rule(Op.WRITE, topic("ord", PREFIXED), permission=DENY),
            ],
            True,
        ),
        ([rule(Op.WRITE, principal="User:eve")], False),
        ([rule(Op.WRITE, host="10.0.0.2")], False),
        ([rule(Op.WRITE, Pattern(T.GROUP, "g"))], False),
    ],
)
def test_whether_there_can_be_a_topic_to_write_to(
    rules: list[AclBinding], is_allowed: bool
) -> None:
    assert Acls(rules).is_allowed_on_any(ADA, Op.WRITE, T.TOPIC) is is_allowed


def test_a_super_user_can_always_write_somewhere() -> None:
    assert Acls(super_users=["User:ada"]).is_allowed_on_any(ADA, Op.WRITE, T.TOPIC)


# --- filters ----------------------------------------------------------------------------------

LITERAL_RULE = rule(Op.READ, "orders")
PREFIX_RULE = rule(Op.READ, topic("ord", PREFIXED))
STAR_RULE = rule(Op.READ, "*")
GROUP_RULE = rule(Op.READ, Pattern(T.GROUP, "orders"))
EVE_RULE = rule(Op.WRITE, "orders", principal="User:eve", permission=DENY, host="1.2.3.4")
ALL_RULES = [LITERAL_RULE, PREFIX_RULE, STAR_RULE, GROUP_RULE, EVE_RULE]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), ALL_RULES),
        (AclFilter(resource_type=T.GROUP), [GROUP_RULE]),
        (AclFilter(name="orders"), [LITERAL_RULE, GROUP_RULE, EVE_RULE]),
        (AclFilter(name="*"), [STAR_RULE]),
        (AclFilter(pattern_type=PREFIXED), [PREFIX_RULE]),
        (AclFilter(name="ord", pattern_type=PREFIXED), [PREFIX_RULE]),
        (AclFilter(name="orders", pattern_type=PREFIXED), []),
        (AclFilter(name="ord", pattern_type=PatternType.LITERAL), []),
        (
            AclFilter(resource_type=T.TOPIC, name="orders", pattern_type=PatternType.MATCH),
            [LITERAL_RULE, PREFIX_RULE, STAR_RULE, EVE_RULE],
        ),
        (AclFilter(name="or", pattern_type=PatternType.MATCH), [STAR_RULE]),
        (AclFilter(pattern_type=PatternType.MATCH), ALL_RULES),
        (AclFilter(principal="User:eve"), [EVE_RULE]),
        (AclFilter(host="1.2.3.4"), [EVE_RULE]),
        (AclFilter(operation=Op.WRITE), [EVE_RULE]),
        (AclFilter(permission=DENY), [EVE_RULE]),
        (AclFilter(permission=DENY, operation=Op.READ), []),
    ],
)
def test_a_filter_finds_the_rules_that_it_means(wanted: AclFilter, found: list[AclBinding]) -> None:
    assert Acls(ALL_RULES).matching(wanted) == sorted(found)


# --- records ----------------------------------------------------------------------------------


@pytest.mark.parametrize("binding", ALL_RULES, ids=str)
def test_a_record_is_read_as_it_was_written(binding: AclBinding) -> None:
    assert read_acl(*acl_record(binding)) == binding


def test_the_same_rule_has_one_key() -> None:
    assert acl_record(rule(Op.READ))[0] == acl_record(rule(Op.READ))[0]
    assert len({acl_record(each)[0] for each in ALL_RULES}) == len(ALL_RULES)


@pytest.mark.parametrize("value", [b"{}", b"[", b"[]", acl_record(GROUP_RULE)[1]])
def test_a_record_that_cannot_be_is_corrupt(value: bytes) -> None:
    with pytest.raises(UnreadableAcl, match="restore"):
        read_acl(acl_record(LITERAL_RULE)[0], value)
