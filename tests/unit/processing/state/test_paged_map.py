"""A map in pages: what a change costs."""

from millstream.processing.state.paged_map import PAGE_ENTRIES, PagedMap, hash_of, place_of
from tests.support.page_dictionary import PageDictionary


def filled(count: int) -> PageDictionary:
    store = PageDictionary()
    rows = PagedMap(store, "rows")
    rows.update({str(number): b"row %d" % number for number in range(count)})
    rows.save()
    store.reads = store.writes = 0
    return store


def test_a_small_map_is_read_once_and_written_once() -> None:
    store = filled(PAGE_ENTRIES)
    assert list(store.pages) == ["rows/0"]
    rows = PagedMap(store, "rows")
    rows["3"] = b"other"
    rows.save()
    assert (store.reads, store.writes) == (1, 1)


def test_a_change_of_a_large_map_touches_no_more_than_two_pages() -> None:
    store = filled(10_000)
    rows = PagedMap(store, "rows")
    rows["3"] = b"other"
    rows.save()
    assert (store.reads, store.writes) == (2, 1)
    assert PagedMap(store, "rows")["3"] == b"other"


def test_one_page_more_is_split_off_when_all_are_full() -> None:
    store = filled(PAGE_ENTRIES)
    rows = PagedMap(store, "rows")
    rows["one more"] = b"row"
    rows.save()
    assert sorted(store.pages) == ["rows/0", "rows/1"]
    assert len(PagedMap(store, "rows")) == PAGE_ENTRIES + 1


def test_what_was_not_saved_is_not_kept() -> None:
    store = filled(3)
    PagedMap(store, "rows")["3"] = b"row"
    assert len(PagedMap(store, "rows")) == 3


def test_maps_of_one_store_do_not_meet() -> None:
    store = filled(3)
    other = PagedMap(store, "others")
    other["1"] = b"another"
    other.save()
    assert PagedMap(store, "rows")["1"] == b"row 1"


def test_pages_are_numbered_without_a_gap() -> None:
    for count in range(1, 40):
        assert {place_of(number, count) for number in range(200)} == set(range(count))


def test_the_place_of_a_key_is_kept_in_checkpoints_and_must_not_change() -> None:
    assert hash_of("(7, 'ada')") == 10_235_348_097_345_922_539
