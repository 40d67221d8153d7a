"""What a job was started with, kept for when the application's code is another."""

import threading
from dataclasses import replace
from typing import Any

from millstream.base.declared import DeclaredTopic
from millstream.processing.jobs.definition import decode_definition, encode_definition, with_store
from millstream.processing.jobs.job import Job, ToView, code_mark
from millstream.processing.jobs.progress import is_behind

INPUTS = {"clicks": DeclaredTopic(name="clicks")}


def job(function: Any) -> Job:
    return Job(name="per_url", function=function, inputs={}, output=ToView(key=("url",)))


def imported(clicks: Any) -> Any:
    return clicks


def test_a_function_comes_back_with_what_it_held_though_its_code_is_gone() -> None:
    factor = 10

    def tenfold(clicks: int) -> int:
        return clicks * factor

    content = encode_definition(job(tenfold), INPUTS)
    found = decode_definition(content, code="of then")
    assert found is not None
    assert (found[0].function(7), found[0].name, found[1]) == (70, "per_url", INPUTS)


def test_a_function_that_was_kept_by_its_name_must_be_the_same_still() -> None:
    content = encode_definition(job(imported), INPUTS)
    assert decode_definition(content, code=code_mark(imported)) is not None
    assert decode_definition(content, code="of then") is None


def test_the_address_of_a_store_is_not_kept() -> None:
    view = replace(job(imported), output=ToView(key=("url",), store="postgresql://:secret@db"))
    content = encode_definition(view, INPUTS)
    assert content is not None
    assert b"secret" not in content
    found = decode_definition(content, code=code_mark(imported))
    assert found is not None
    assert with_store(found[0], "postgresql://:secret@db") == view


def test_what_cannot_be_kept_is_not() -> None:
    lock = threading.Lock()
    assert encode_definition(job(lambda clicks: lock), INPUTS) is None
    assert decode_definition(None, code="") is None
    assert decode_definition(b"of another world", code="") is None


def test_a_rebuilt_view_must_reach_what_readers_have_seen() -> None:
    seen = {"clicks": {0: 10, 1: 5}}
    assert is_behind({"clicks": {0: 10, 1: 4}}, seen)
    assert is_behind({"clicks": {0: 10}}, seen)
    assert not is_behind({"clicks": {0: 10, 1: 5}}, seen)
    assert not is_behind({"clicks": {0: 11, 1: 6}, "views": {0: 0}}, seen)
    assert not is_behind({"views": {0: 1}}, seen), "a topic that it does not read any more"
    assert not is_behind({"clicks": {0: 1}}, {})
