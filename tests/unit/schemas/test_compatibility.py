import pytest

from millstream.base.schema import ListOf, MapOf, Scalar, Struct
from millstream.schemas import schema_of
from millstream.schemas.compatibility import changes_against, changes_for_reader

OLD = "id BIGINT NOT NULL, name STRING, pieces INT, price DECIMAL(10,2), at TIMESTAMP"


def problems(old: str, new: str) -> list[str]:
    return [str(change) for change in changes_against(schema_of(old), schema_of(new))]


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        f"{OLD}, note STRING",
        "at TIMESTAMP, price DECIMAL(10,2), pieces INT, name STRING, id BIGINT NOT NULL",
        OLD.replace("pieces INT", "pieces BIGINT"),
        OLD.replace("pieces INT", "pieces DOUBLE"),
        OLD.replace("DECIMAL(10,2)", "DECIMAL(12,2)"),
        OLD.replace("id BIGINT NOT NULL", "id BIGINT"),
    ],
)
def test_what_old_records_survive_is_compatible(new: str) -> None:
    assert problems(OLD, new) == []


@pytest.mark.parametrize(
    ("new", "problem"),
    [
        (
            f"{OLD}, note STRING NOT NULL",
            "field `note` was not there and is STRING NOT NULL: old records do not have it; "
            "leave out NOT NULL",
        ),
        (
            OLD.replace("name STRING, ", ""),
            "field `name` was STRING and is gone: old records have it; keep it in the schema, and "
            "let producers leave it out if it may be null",
        ),
        (
            OLD.replace("name STRING", "name STRING NOT NULL"),
            "field `name` was STRING and is STRING NOT NULL: old records may have nulls there; "
            "leave out NOT NULL",
        ),
        (
            OLD.replace("pieces INT", "pieces SMALLINT"),
            "field `pieces` was INT and is SMALLINT: a type may only be widened; keep INT, or add "
            "a field with another name",
        ),
        (
            OLD.replace("DECIMAL(10,2)", "DECIMAL(12,4)"),
            "field `price` was DECIMAL(10,2) and is DECIMAL(12,4): a type may only be widened; "
            "keep DECIMAL(10,2), or add a field with another name",
        ),
    ],
)
def test_a_change_names_the_field_the_old_the_new_and_the_way_out(new: str, problem: str) -> None:
    assert problems(OLD, new) == [problem]


def test_changes_are_found_at_any_depth() -> None:
    old = "o STRUCT<a: INT, l: ARRAY<STRUCT<x: INT>>, m: MAP<STRING, BIGINT>>"
    new = "o STRUCT<a: STRING, l: ARRAY<STRUCT<y: INT>>, m: MAP<STRING, INT>>"
    found = changes_against(schema_of(old), schema_of(new))
    assert [change.path for change in found] == ["o.a", "o.l[].x", "o.m[]"]


def test_elements_may_become_nullable_and_not_the_other_way() -> None:
    def schema(*, nullable: bool) -> Struct:
        inner = MapOf(Scalar.STRING, ListOf(Scalar.INT, nullable), nullable)
        base = schema_of("a INT")
        return Struct((*base.fields, type(base.fields[0])("m", inner)))

    assert not changes_against(schema(nullable=False), schema(nullable=True))
    paths = [one.path for one in changes_against(schema(nullable=True), schema(nullable=False))]
    assert paths == ["m[]", "m[][]"]


@pytest.mark.parametrize(
    ("old", "wider"),
    [
        ("TINYINT", "SMALLINT INT BIGINT FLOAT DOUBLE"),
        ("SMALLINT", "INT BIGINT FLOAT DOUBLE"),
        ("INT", "BIGINT DOUBLE"),
        ("BIGINT", ""),
        ("FLOAT", "DOUBLE"),
        ("DOUBLE", ""),
        ("DATE", ""),
        ("STRING", ""),
        ("BOOLEAN", ""),
    ],
)
def test_a_type_widens_only_where_every_value_stays_exact(old: str, wider: str) -> None:
    found = {
        scalar.value
        for scalar in Scalar
        if not changes_against(schema_of(f"a {old}"), schema_of(f"a {scalar}"))
    }
    assert found == {old, *wider.split()}


def test_a_reader_may_leave_fields_out_and_ask_for_new_ones() -> None:
    wanted = schema_of("pieces BIGINT, later STRING")
    assert changes_for_reader(schema_of(OLD), wanted) == []


def test_a_reader_may_not_ask_for_what_is_not_there() -> None:
    wanted = schema_of("name STRING NOT NULL, at STRING, more INT NOT NULL")
    found = changes_for_reader(schema_of(OLD), wanted)
    assert [change.path for change in found] == ["name", "at", "more"]
