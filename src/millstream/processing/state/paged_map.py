"""A map that is kept in pages: a change costs the page that it touches, however large it is. Pure.

Spark's state answers in 50-170 µs whatever the size of an entry, so that an entry per row is slow
to load and one entry for all rows is slow to change. Here entries share pages of about 64, which
split one at a time as the map grows (linear hashing: Litwin, 1980). Pages do not merge; one that is
empty is not kept. A page is written once, by `save`.

Page 0 holds the map's size as well: a small map is one page, read once and written once.
"""

from collections.abc import ItemsView, Iterator, MutableMapping
from hashlib import blake2b
from typing import Any, Protocol

from millstream.processing.state.plain_pickles import dump_plain, load_plain

PAGE_ENTRIES = 64


class PageStore(Protocol):
    """Where pages are kept, by name: the state of one group in Spark, or a dictionary."""

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, page: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


class PagedMap(MutableMapping[str, Any]):
    """Texts to plain values. What was changed is kept only after `save`."""

    def __init__(self, store: PageStore, name: str) -> None:
        self._store = store
        self._name = name
        self._changed: set[int] = set()
        self._entries, self._pages_count, first = self._read_first()
        self._pages = {0: first}

    def __getitem__(self, key: str) -> Any:
        return self._page(self._place(key))[key]

    def __setitem__(self, key: str, value: Any) -> None:
        place = self._place(key)
        page = self._page(place)
        self._resize(key not in page)
        page[key] = value
        self._changed.add(place)
        if self._entries > PAGE_ENTRIES * self._pages_count:
            self._split()

    def __delitem__(self, key: str) -> None:
        place = self._place(key)
        del self._page(place)[key]
        self._resize(-1)
        self._changed.add(place)

    def __iter__(self) -> Iterator[str]:
        for page in self.pages():
            yield from page

    def items(self) -> ItemsView[str, Any]:
        return _PageItems(self)

    def __len__(self) -> int:
        return self._entries

    def pages(self) -> Iterator[dict[str, Any]]:
        return map(self._page, range(self._pages_count))

    def save(self) -> None:
        """Hand over what was changed; a map that became empty leaves nothing behind."""
        for place in sorted(self._changed):
            self._save_page(place)
        self._changed.clear()

    def _save_page(self, place: int) -> None:
        page = self._pages.get(place, {})
        if page or (place == 0 and self._entries):
            content = (self._entries, self._pages_count, page) if place == 0 else page
            self._store.write(self._page_name(place), dump_plain(content))
        else:
            self._store.remove(self._page_name(place))

    def _read_first(self) -> tuple[int, int, dict[str, Any]]:
        kept = self._store.read(self._page_name(0))
        return (0, 1, {}) if kept is None else load_plain(kept)

    def _page(self, place: int) -> dict[str, Any]:
        if place not in self._pages:
            kept = self._store.read(self._page_name(place))
            self._pages[place] = {} if kept is None else load_plain(kept)
        return self._pages[place]

    def _page_name(self, place: int) -> str:
        return f"{self._name}/{place}"

    def _resize(self, by: int) -> None:
        """The size is written on page 0."""
        if by:
            self._entries += by
            self._changed.add(0)

    def _place(self, key: str) -> int:
        return place_of(hash_of(key), self._pages_count)

    def _split(self) -> None:
        """One more page; the entries that belong there come from one other."""
        new = self._pages_count
        old = new - (1 << (new.bit_length() - 1))
        self._pages_count += 1
        self._pages[new] = {}
        page = self._page(old)
        for key in [key for key in page if self._place(key) == new]:
            self._pages[new][key] = page.pop(key)
        self._changed.update((0, old, new))


class _PageItems(ItemsView[str, Any]):
    """Page by page, without looking for the place of each key."""

    _mapping: PagedMap

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for page in self._mapping.pages():
            yield from page.items()


def place_of(number: int, pages_count: int) -> int:
    """Pages below the last power of two, and those beyond it whose turn to split has come."""
    below = 1 << (pages_count.bit_length() - 1)
    place = number & (2 * below - 1)
    return place if place < pages_count else place - below


def hash_of(key: str) -> int:
    """The same in every process, which Python's own is not."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")
