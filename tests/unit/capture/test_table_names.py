"""Full names of tables, whatever characters are in them."""

import pytest

from millstream.capture.table_names import full_name, is_named, split_name
from tests.support.odd_names import ODD_NAMES


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_full_name_has_its_two_parts(name: str) -> None:
    for schema, table in (("public", name), (name, "orders"), (name, name)):
        assert split_name(full_name(schema, table)) == (schema, table)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("orders", ("public", "orders")),
        ("sales.orders", ("sales", "orders")),
        ("public.old.orders", ("public", "old.orders")),
        ('"old.orders"', ("public", "old.orders")),
        ('"old.sales".orders', ("old.sales", "orders")),
        ('"old.sales"."the ""orders"""', ("old.sales", 'the "orders"')),
        ('sales."a.b"', ("sales", "a.b")),
    ],
)
def test_a_name_may_have_a_schema_and_quotes(given: str, parts: tuple[str, str]) -> None:
    assert split_name(given, "public") == parts


def test_a_table_is_found_by_its_full_name_or_without_its_schema() -> None:
    assert is_named("public.orders", "orders")
    assert is_named("public.orders", "public.orders")
    assert is_named("public.a.b", '"a.b"')
    assert is_named("public.a.b", "public.a.b")
    assert not is_named("public.a.b", "b"), "the last part of a name is not its name"
    assert not is_named("sales.orders", "public.orders")
