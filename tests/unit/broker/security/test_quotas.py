"""Which quota counts for whom, and the rules of the two quota APIs."""

from typing import Any

import pytest

from millstream.broker.security import quotas as quotas_module
from millstream.broker.security.quotas import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Applied,
    Entity,
    Quotas,
    UnreadableQuota,
    alter_quotas,
    describe_quotas,
    quota_record,
    read_quota,
)
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages import alter_client_quotas as altering
from millstream.broker.wire.messages import describe_client_quotas as describing

# Kafka's order: what is more special counts, users before clients.
IN_ORDER = [
    (Entity("ada", "app"), ("ada", "app")),
    (Entity("ada", DEFAULT), ("ada", "app")),
    (Entity("ada"), ("ada", None)),
    (Entity(DEFAULT, "app"), ("ada", "app")),
    (Entity(DEFAULT, DEFAULT), ("ada", "app")),
    (Entity(DEFAULT), ("ada", None)),
    (Entity(None, "app"), (None, "app")),
    (Entity(None, DEFAULT), (None, "app")),
]


# --- which one counts -------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_first_in_order_counts_and_says_who_shares_it(first: int) -> None:
    """Every entity has a quota, but for those before `first`."""
    known = {
        entity: {PRODUCER_BYTE_RATE: float(place)}
        for place, (entity, _) in enumerate(IN_ORDER)
        if place >= first
    }
    applied = Quotas(known).applied(PRODUCER_BYTE_RATE, "ada", "app")
    assert applied == Applied(float(first), IN_ORDER[first][1])


def test_a_quota_of_another_name_is_passed_over() -> None:
    known = Quotas({Entity("ada"): {CONSUMER_BYTE_RATE: 1.0}, Entity(DEFAULT): {"x": 2.0}})
    assert known.applied("x", "ada", "app") == Applied(2.0, ("ada", None))
    assert known.applied(PRODUCER_BYTE_RATE, "ada", "app") is None


def test_without_quotas_nobody_is_limited() -> None:
    assert Quotas().applied(PRODUCER_BYTE_RATE, "ada", "app") is None
    of_bob = Quotas({Entity("bob"): {PRODUCER_BYTE_RATE: 1.0}})
    assert of_bob.applied(PRODUCER_BYTE_RATE, "ada", "app") is None


# --- alter ------------------------------------------------------------------------------------

Parts = dict[str, str | None]


def entry(entity: Parts, *ops: altering.OpData) -> altering.RequestEntryData:
    named = [altering.EntityData(entity_type=t, entity_name=n) for t, n in entity.items()]
    return altering.RequestEntryData(entity=named, ops=list(ops))


def put(key: str, value: float) -> altering.OpData:
    return altering.OpData(key=key, value=value)


def drop(key: str) -> altering.OpData:
    return altering.OpData(key=key, remove=True)


def alter(
    known: Quotas, *entries: altering.RequestEntryData, validate_only: bool = False
) -> tuple[list[int], list[tuple[Entity, dict[str, float]]]]:
    request = altering.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    altered = alter_quotas(request, known)
    return [each.error_code for each in altered.response.entries], altered.changes


def test_limits_are_put_changed_and_removed_together() -> None:
    known = Quotas({Entity("ada"): {PRODUCER_BYTE_RATE: 1.0, CONSUMER_BYTE_RATE: 2.0}})
    ops = [put(PRODUCER_BYTE_RATE, 9), drop(CONSUMER_BYTE_RATE), put(REQUEST_PERCENTAGE, 0.5)]
    codes, changes = alter(known, entry({"user": "ada"}, *ops))
    assert codes == [0]
    assert changes == [(Entity("ada"), {PRODUCER_BYTE_RATE: 9.0, REQUEST_PERCENTAGE: 0.5})]
    assert known.of(Entity("ada"))[PRODUCER_BYTE_RATE] == 1.0  # the shell puts it, once stored


def test_a_null_name_is_the_default() -> None:
    _, changes = alter(Quotas(), entry({"client-id": None}, put(CONSUMER_BYTE_RATE, 5)))
    assert changes == [(Entity(None, DEFAULT), {CONSUMER_BYTE_RATE: 5.0})]


def test_to_remove_what_is_not_there_is_no_error() -> None:
    assert alter(Quotas(), entry({"user": "x"}, drop("whatever"))) == ([0], [(Entity("x"), {})])


@pytest.mark.parametrize(
    "wrong",
    [
        entry({}, put(PRODUCER_BYTE_RATE, 1)),
        entry({"user": ""}, put(PRODUCER_BYTE_RATE, 1)),
        entry({"user": "x" * 1_001}, put(PRODUCER_BYTE_RATE, 1)),
        entry({"ip": "10.0.0.1"}, put("connection_creation_rate", 1)),
        entry({"team": "a"}, put(PRODUCER_BYTE_RATE, 1)),
        entry({"user": "a"}, put("controller_mutation_rate", 1)),
        entry({"user": "a"}, put("SCRAM-SHA-256", 1)),
        entry({"user": "a"}, put(PRODUCER_BYTE_RATE, 0)),
        entry({"user": "a"}, put(PRODUCER_BYTE_RATE, -1)),
        entry({"user": "a"}, put(PRODUCER_BYTE_RATE, 1.5)),
        entry({"user": "a"}, put(REQUEST_PERCENTAGE, float("nan"))),
        entry({"user": "a"}, put(REQUEST_PERCENTAGE, float("inf"))),
        entry({"user": "a"}, put(PRODUCER_BYTE_RATE, 1), put(PRODUCER_BYTE_RATE, 2)),
        entry({"user": "a"}, put(CONSUMER_BYTE_RATE, 5), put(PRODUCER_BYTE_RATE, -1)),
    ],
)
def test_an_entry_with_anything_wrong_changes_nothing_and_the_others_do(
    wrong: altering.RequestEntryData,
) -> None:
    right = entry({"user": "bob"}, put(PRODUCER_BYTE_RATE, 1))
    codes, changes = alter(Quotas(), wrong, right)
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert [entity for entity, _ in changes] == [Entity("bob")]


def test_an_entity_that_is_named_twice_is_not_changed() -> None:
    one = entry({"user": "a", "client-id": "b"}, put(PRODUCER_BYTE_RATE, 1))
    other = entry({"client-id": "b", "user": "a"}, put(CONSUMER_BYTE_RATE, 1))
    assert alter(Quotas(), one, other) == ([42, 42], [])


def test_a_dry_run_says_what_is_wrong_and_changes_nothing() -> None:
    right = entry({"user": "a"}, put(PRODUCER_BYTE_RATE, 1))
    wrong = entry({"user": "b"}, put(PRODUCER_BYTE_RATE, -1))
    assert alter(Quotas(), right, wrong, validate_only=True) == ([0, 42], [])


def test_there_is_a_limit_to_how_many_entities_there_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quotas_module, "ENTITIES_MAX", 1)
    known = Quotas({Entity("a"): {PRODUCER_BYTE_RATE: 1.0}})
    limit = put(PRODUCER_BYTE_RATE, 2)
    assert alter(known, entry({"user": "a"}, limit))[0] == [0]
    assert alter(known, entry({"user": "b"}, limit))[0] == [42]


# --- describe ---------------------------------------------------------------------------------

SOME = Quotas(
    {entity: {PRODUCER_BYTE_RATE: 1.0} for entity, _ in IN_ORDER}
    | {Entity("bob"): {CONSUMER_BYTE_RATE: 2.0}}
)
EXACT, AS_DEFAULT, SPECIFIED = 0, 1, 2


def component(what: str, match_type: int, match: str | None = None) -> describing.ComponentData:
    return describing.ComponentData(entity_type=what, match_type=match_type, match=match)


def describe(*components: describing.ComponentData, strict: bool = False) -> Any:
    request = describing.DescribeClientQuotasRequest(components=list(components), strict=strict)
    return describe_quotas(request, SOME)


def found(response: describing.DescribeClientQuotasResponse) -> set[tuple[Any, ...]]:
    assert response.error_code == ErrorCode.NONE
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity)
        for each in response.entries or []
    }


def test_without_a_filter_everything_is_described() -> None:
    assert len(found(describe())) == len(SOME)
    assert found(describe(strict=True)) == set()


def test_a_name_a_default_or_any_can_be_asked_for() -> None:
    ada = component("user", EXACT, "ada")
    assert found(describe(ada)) == {
        (("user", "ada"), ("client-id", "app")),
        (("user", "ada"), ("client-id", None)),
        (("user", "ada"),),
    }
    assert found(describe(ada, strict=True)) == {(("user", "ada"),)}
    assert found(describe(ada, component("client-id", AS_DEFAULT))) == {
        (("user", "ada"), ("client-id", None))
    }
    of_users = component("user", SPECIFIED)
    assert found(describe(of_users, strict=True)) == {
        (("user", "ada"),),
        (("user", "bob"),),
        (("user", None),),
    }


def test_values_come_with_their_names() -> None:
    response = describe(component("user", EXACT, "bob"))
    values = [(each.key, each.value) for each in response.entries[0].values]
    assert values == [(CONSUMER_BYTE_RATE, 2.0)]


def test_there_are_no_quotas_by_address() -> None:
    assert found(describe(component("ip", SPECIFIED))) == set()


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([component("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([component("team", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([component("user", EXACT)], ErrorCode.INVALID_REQUEST),
        ([component("user", AS_DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([component("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST),
        ([component("user", 3)], ErrorCode.INVALID_REQUEST),
        ([component("user", EXACT, "a"), component("user", SPECIFIED)], ErrorCode.INVALID_REQUEST),
        ([component("ip", SPECIFIED), component("user", SPECIFIED)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_cannot_be_is_an_error(
    components: list[describing.ComponentData], code: ErrorCode
) -> None:
    response = describe(*components)
    assert (response.error_code, response.entries) == (code, None)


# --- records ----------------------------------------------------------------------------------


@pytest.mark.parametrize("entity", [entity for entity, _ in IN_ORDER], ids=str)
def test_a_record_is_read_as_it_was_written(entity: Entity) -> None:
    limits = {PRODUCER_BYTE_RATE: 1024.0, REQUEST_PERCENTAGE: 12.5}
    key, value = quota_record(entity, limits)
    assert value is not None
    assert read_quota(key, value) == (entity, limits)


def test_without_limits_the_record_goes() -> None:
    assert quota_record(Entity("ada"), {}) == (b'quota/{"user": "ada"}', None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"quota/{}", b"{}"),
        (b"quota/[]", b"{}"),
        (b"quota/x", b"{}"),
        (b'quota/{"team": "a"}', b"{}"),
        (b'quota/{"user": "a"}', b"[]"),
        (b'quota/{"user": "a"}', b'{"producer_byte_rate": -1}'),
        (b'quota/{"user": "a"}', b'{"producer_byte_rate": "fast"}'),
    ],
)
def test_a_record_that_cannot_be_is_corrupt(key: bytes, value: bytes) -> None:
    with pytest.raises(UnreadableQuota, match="restore"):
        read_quota(key, value)
