from dataclasses import replace
from pathlib import Path

import pytest

from millstream import App
from millstream.base.declared import BadDeclaration
from millstream.base.schema import Scalar
from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.capture.definition import BadDefinition, resolve_url
from millstream.captures import (
    NoKey,
    UnknownTable,
    database_in,
    declared_of,
    named,
    names_of,
    password_apart,
)
from millstream.processing.jobs.catalog import UnknownInput

URL = "postgresql://db/shop"


@pytest.fixture
def app(tmp_path: Path) -> App:
    """Nothing of it is started."""
    return App("shop", data=tmp_path / "data")


def table(name: str, *key: str) -> CapturedTable:
    columns = (
        CapturedColumn(name="id", database_type="bigint", type=Scalar.BIGINT, is_nullable=False),
        CapturedColumn(name="note", database_type="text", type=Scalar.STRING),
    )
    return CapturedTable(name=name, topic="shop.orders", columns=columns, key=key)


def test_a_captured_table_is_an_input_of_jobs_by_its_name(app: App) -> None:
    app.capture(URL, tables=["customers", "sales.orders"])

    @app.view(key="id")
    def large(orders: object, customers: object) -> object:
        return orders

    assert app.captures.tables == ["customers", "orders"]
    with pytest.raises(UnknownInput, match="Did you mean customers"):

        @app.view(key="id")
        def misspelt(customer: object) -> object:
            return customer


def test_a_capture_has_the_name_of_its_database_unless_it_is_given_one(app: App) -> None:
    assert app.capture(URL, tables=["orders"]).name == "shop"
    assert app.capture(URL, tables={"theirs": "orders"}, name="other").name == "other"
    assert database_in("sqlite:////var/lib/shop.db") == "shop"
    with pytest.raises(BadDeclaration, match="give name="):
        database_in("postgresql://db")


def test_two_of_a_name_are_refused(app: App) -> None:
    app.capture(URL, tables=["orders"])
    with pytest.raises(BadDeclaration, match="orders is declared already"):
        app.capture(URL, tables=["orders"], name="other")
    with pytest.raises(BadDeclaration, match="two captures with the name shop"):
        app.capture(URL, tables=["customers"])
    with pytest.raises(BadDeclaration, match="two tables are called orders"):
        names_of(["a.orders", "b.orders"])


def test_a_topic_and_a_captured_table_cannot_have_the_same_name(app: App) -> None:
    app.topic("orders", schema="id BIGINT")
    with pytest.raises(BadDeclaration, match="orders is declared already"):
        app.capture(URL, tables=["orders"])


def test_a_captured_table_is_written_in_its_database_alone(app: App) -> None:
    app.capture(URL, tables=["orders"])
    with pytest.raises(BadDeclaration, match="captured from a database"):
        app.publish("orders", {"id": 1})


def test_what_a_capture_cannot_be_is_said_where_it_is_declared(app: App) -> None:
    with pytest.raises(BadDefinition, match="mode='guess': one of log, triggers"):
        app.capture(URL, tables=["orders"], mode="guess")  # type: ignore[arg-type]
    with pytest.raises(BadDefinition, match="has no tables"):
        app.capture(URL, tables=[])


def test_changes_of_a_table_that_is_not_captured_are_refused(app: App) -> None:
    app.capture(URL, tables=["orders"])
    with pytest.raises(UnknownTable, match="Did you mean orders"):
        app.changes("order")


def test_a_password_is_used_and_not_kept() -> None:
    url = "postgresql://mill:s%40crt@db/shop"
    kept, used = password_apart("my-shop", url)
    assert kept == "postgresql://mill:${MY_SHOP_PASSWORD}@db/shop"
    assert used == url
    assert resolve_url("my-shop", kept, {"MY_SHOP_PASSWORD": "s@crt"}) == url


@pytest.mark.parametrize(
    "url", ["postgresql://mill@db/shop", "postgresql://mill:${PASSWORD}@db/shop", "sqlite:///a.db"]
)
def test_a_url_without_a_password_is_kept_as_it_is(url: str) -> None:
    assert password_apart("shop", url) == (url, url)


def test_a_table_is_found_by_its_full_name_or_its_last_part() -> None:
    there = [table("public.customers", "id"), table("public.orders", "id")]
    assert named("orders", there) == there[1]
    assert named("public.orders", there) == there[1]
    assert named("ders", there) is None


def test_a_name_without_its_schema_is_not_that_of_a_table_which_was_named_in_full() -> None:
    there = [table("app.orders", "id"), table("public.orders", "id")]
    assert named("orders", there, others=["orders", "app.orders"]) == there[1]


def test_columns_of_a_captured_table_have_its_types_and_may_all_be_null() -> None:
    """A delete has its key alone."""
    declared = declared_of(table("public.orders", "id"), 3)
    assert (declared.name, declared.key, declared.partitions) == ("shop.orders", ("id",), 3)
    assert declared.schema.ddl == "id BIGINT, note STRING"
    assert declared.encoding == "debezium"


def test_a_captured_table_is_declared_with_the_columns_of_all_its_versions() -> None:
    newest = replace(table("public.orders", "id"), version=2)
    older = replace(newest, version=1, columns=newest.columns[:1])
    other = replace(table("public.customers", "id"), version=7)
    declared = declared_of(newest, None, [older, other])
    assert {number: of.ddl for number, of in declared.versions.items()} == {
        1: "id BIGINT",
        2: "id BIGINT, note STRING",
    }


def test_a_table_without_a_key_is_no_input_of_jobs() -> None:
    with pytest.raises(NoKey, match=r"public\.log has no primary key"):
        declared_of(table("public.log"), None)
