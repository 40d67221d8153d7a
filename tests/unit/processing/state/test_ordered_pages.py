"""Entries in order, in pages: what is found, what a change costs, what is left behind."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.processing.state import ordered_pages
from millstream.processing.state.ordered_pages import OrderedPages, PageMissing, Root
from tests.support.page_dictionary import PageDictionary


def by_itself(key: int) -> int:
    return key


def reversed_order(key: int) -> int:
    return -key


def reopened(store: PageDictionary, root: Root | None) -> OrderedPages:
    return OrderedPages(store, "values", by_itself, root)


@pytest.fixture
def small_pages() -> Iterator[None]:
    """So that few entries make a tree of many floors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered_pages, "PAGE_ENTRIES", 3)
        patch.setattr(ordered_pages, "ROOT_ENTRIES", 2)
        yield


CHANGES = st.lists(st.tuples(st.sampled_from(["put", "put", "drop", "save"]), st.integers(0, 60)))


@given(changes=CHANGES)
@settings(max_examples=100, deadline=None)
@pytest.mark.usefixtures("small_pages")
def test_it_is_a_dictionary_in_order_that_survives(changes: list[tuple[str, int]]) -> None:
    store, model, root = PageDictionary(), dict[int, int](), None
    pages = reopened(store, root)
    for number, (what, key) in enumerate(changes):
        if what == "put":
            model[key] = number
            pages[key] = number
        elif what == "drop" and key in model:
            del model[key]
            del pages[key]
        elif what == "save":
            root = pages.save()
            pages = reopened(store, root)
        assert pages.get(key) == model.get(key)
        assert (len(pages), list(pages.items())) == (len(model), sorted(model.items()))
        if model:
            assert (pages.first(), pages.last()) == (min(model), max(model))


@given(keys=st.lists(st.integers(0, 200), unique=True), disorder=st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
@pytest.mark.usefixtures("small_pages")
def test_what_became_empty_leaves_no_page_and_no_root(keys: list[int], disorder: Random) -> None:
    store = PageDictionary()
    pages = reopened(store, None)
    for key in keys:
        pages[key] = key
    pages = reopened(store, pages.save())
    disorder.shuffle(keys)
    for key in keys:
        del pages[key]
    assert (pages.save(), store.pages) == (None, {})


def test_few_entries_need_no_page() -> None:
    store = PageDictionary()
    pages = reopened(store, None)
    for key in range(ordered_pages.ROOT_ENTRIES):
        pages[key] = key
    root = pages.save()
    assert (store.pages, len(reopened(store, root))) == ({}, ordered_pages.ROOT_ENTRIES)


def test_the_order_is_that_of_the_rank() -> None:
    pages = OrderedPages(PageDictionary(), "values", reversed_order)
    for key in range(100):
        pages[key] = str(key)
    assert [key for key, _ in pages.items()] == list(range(99, -1, -1))
    assert (pages.first(), pages.last()) == (99, 0)


def test_a_key_that_is_not_there_cannot_go() -> None:
    with pytest.raises(KeyError):
        del reopened(PageDictionary(), None)[7]


def test_a_page_that_is_lost_is_told_by_its_name() -> None:
    store = PageDictionary()
    pages = reopened(store, None)
    for key in range(100):
        pages[key] = key
    root = pages.save()
    store.pages.popitem()
    with pytest.raises(PageMissing, match=r"a page values/\d+ that is not there"):
        list(reopened(store, root).items())


def test_a_change_among_many_touches_few_pages() -> None:
    store = PageDictionary()
    pages = reopened(store, None)
    for key in range(100_000):
        pages[key] = 1
    root = pages.save()
    assert len(store.pages) > 1_500
    store.reads = store.writes = 0
    pages = reopened(store, root)
    del pages[pages.first()]
    pages[50_000] = 2
    assert pages.first() == 1
    pages.save()
    assert store.reads <= 8
    assert store.writes <= 4
