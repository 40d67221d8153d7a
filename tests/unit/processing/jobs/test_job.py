"""What a job is, and what an application has declared."""

from typing import Any

import pytest

from millstream.base.declared import BadDeclaration, DeclaredTable, DeclaredTopic, EventTime
from millstream.processing.jobs.catalog import Catalog, UnknownInput, UnknownJob
from millstream.processing.jobs.job import Job, ToTopic, ToView, code_mark, inputs_of
from millstream.schemas.ddl import schema_from_ddl

CLICKS = DeclaredTopic(
    name="clicks",
    schema=schema_from_ddl("url STRING, at TIMESTAMP"),
    event_time=EventTime(column="at"),
)
VISITS = DeclaredTopic(
    name="visits",
    schema=schema_from_ddl("url STRING, at TIMESTAMP"),
    event_time=EventTime(column="at"),
)
PAGES = DeclaredTable(
    name="pages", schema=schema_from_ddl("url STRING, title STRING"), key=("url",)
)


def per_url(clicks: Any) -> Any:
    return clicks


def job(function: Any = per_url, name: str = "per_url", **inputs: str) -> Job:
    return Job(
        name=name,
        function=function,
        inputs=inputs or inputs_of(function, None),
        output=ToView(key=("url",)),
    )


@pytest.fixture
def catalog() -> Catalog:
    found = Catalog()
    for declared in (CLICKS, VISITS, PAGES):
        found.declare(declared)
    return found


# Names


def test_parameters_name_the_inputs() -> None:
    def both(clicks: Any, pages: Any) -> Any: ...

    assert inputs_of(both, None) == {"clicks": "clicks", "pages": "pages"}


def test_what_cannot_be_a_parameter_is_given_by_name() -> None:
    assert inputs_of(per_url, {"clicks": "web-clicks"}) == {"clicks": "web-clicks"}


def test_a_parameter_with_a_default_is_the_applications_own() -> None:
    def with_term(clicks: Any, least: int = 3) -> Any: ...

    assert inputs_of(with_term, None) == {"clicks": "clicks"}


def test_a_function_without_inputs_is_no_job() -> None:
    def nothing() -> Any: ...

    with pytest.raises(BadDeclaration, match="nothing has no inputs"):
        inputs_of(nothing, None)


def test_inputs_that_cannot_be_named_are_refused() -> None:
    def many(*frames: Any) -> Any: ...

    with pytest.raises(BadDeclaration, match="frames names no input"):
        inputs_of(many, None)
    with pytest.raises(BadDeclaration, match="'visits', which is no parameter"):
        inputs_of(per_url, {"visits": "visits"})


@pytest.mark.parametrize("name", ["", ".hidden", "-dash", "a/b", "a b", "x" * 201])
def test_a_job_has_a_name_that_a_directory_can_have(name: str) -> None:
    with pytest.raises(BadDeclaration, match="cannot be a job's name"):
        job(name=name)


def test_a_longest_name_will_do() -> None:
    assert job(name="x" * 200).name == "x" * 200


# The catalog


def test_a_misspelt_parameter_is_refused_with_the_nearest_name(catalog: Catalog) -> None:
    with pytest.raises(UnknownInput) as caught:
        catalog.add(job(clicks="click"))
    assert "job per_url: 'click' is no topic" in str(caught.value)
    assert "clicks, pages, visits" in str(caught.value)
    assert "Did you mean clicks?" in str(caught.value)
    assert catalog.jobs == {}


def test_two_jobs_of_one_name_are_refused_with_both_places(catalog: Catalog) -> None:
    catalog.add(job())

    def other(clicks: Any) -> Any: ...

    with pytest.raises(BadDeclaration, match=r"two jobs with the name per_url: at .*test_job\.py"):
        catalog.add(job(other))


def test_a_view_can_be_an_input(catalog: Catalog) -> None:
    catalog.add(job())
    assert not catalog.is_input(catalog.jobs["per_url"])
    catalog.add(job(name="again", clicks="per_url"))
    assert catalog.is_input(catalog.jobs["per_url"])
    table = DeclaredTable(
        name="shop.per_url.changes.1", schema=schema_from_ddl("url STRING"), key=("url",)
    )
    catalog.view_table = lambda view: table
    assert catalog.inputs_of(catalog.jobs["again"]) == {"clicks": table}


def test_a_topic_comes_before_a_view_of_its_name(catalog: Catalog) -> None:
    catalog.add(job(name="clicks"))
    catalog.add(job())
    assert not catalog.is_input(catalog.jobs["clicks"])
    assert catalog.inputs_of(catalog.jobs["per_url"])["clicks"].name == CLICKS.name


def test_a_view_of_an_input_must_be_declared_before_it(catalog: Catalog) -> None:
    catalog.add(job())
    with pytest.raises(UnknownInput, match=r"is no topic, table or view .*Did you mean per_url"):
        catalog.add(job(name="again", clicks="per_urls"))


def test_a_topic_can_be_declared_twice_if_it_is_the_same(catalog: Catalog) -> None:
    catalog.declare(CLICKS)
    with pytest.raises(BadDeclaration, match="clicks is declared already"):
        catalog.declare(DeclaredTopic(name="clicks"))


def test_an_unknown_job_is_told_with_those_that_there_are(catalog: Catalog) -> None:
    catalog.add(job())
    with pytest.raises(UnknownJob, match=r"no job 'per_urls' in this app\. There are: per_url"):
        catalog.job("per_urls")


# Idle sources


def test_a_single_source_is_never_idle(catalog: Catalog) -> None:
    (clicks,) = catalog.inputs_of(job()).values()
    assert isinstance(clicks, DeclaredTopic)
    assert clicks.event_time == EventTime(column="at", idle_ms=None)


def test_of_two_sources_each_can_be_idle(catalog: Catalog) -> None:
    inputs = catalog.inputs_of(job(clicks="clicks", visits="visits"))
    assert list(inputs.values()) == [CLICKS, VISITS]


def test_a_table_holds_nobody_back(catalog: Catalog) -> None:
    inputs = catalog.inputs_of(job(clicks="clicks", pages="pages"))
    assert inputs["clicks"] != CLICKS
    assert inputs["pages"] == PAGES


def test_a_single_source_is_idle_if_it_is_declared_so() -> None:
    catalog = Catalog()
    catalog.declare(CLICKS, idles_alone=True)
    assert catalog.inputs_of(job()) == {"clicks": CLICKS}


# The mark of the code


def test_the_mark_changes_with_the_text_of_the_function() -> None:
    def one(clicks: Any) -> Any:
        return clicks

    def two(clicks: Any) -> Any:
        return clicks.where("url is not null")

    assert code_mark(one) == code_mark(one)
    assert code_mark(one) != code_mark(two)


def test_a_function_whose_text_is_not_there_has_a_mark_too() -> None:
    made = eval("lambda clicks: clicks")
    assert code_mark(made) == code_mark(eval("lambda clicks: clicks"))
    assert code_mark(made) != code_mark(eval("lambda clicks: clicks.distinct()"))


def test_an_output_says_where_rows_go() -> None:
    assert str(ToView(key=("a", "b"))) == "a view by a, b"
    assert str(ToTopic(topic="totals", key=("a",))) == "topic totals by a"
