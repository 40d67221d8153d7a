"""Entries in the order of their keys, in pages: a change costs those that it touches. Pure.

A B+ tree (Bayer and McCreight, 1972) over a PageStore. The root is not a page: it is small, and who
owns the tree keeps it among its own entries, so that few entries cost no page at all. Pages that
are full split in two; they do not merge, and one that is empty is not kept.

Keys are plain values; `rank` says what they are compared by.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from millstream.base.errors import Corrupt
from millstream.processing.state.paged_map import PageStore
from millstream.processing.state.plain_pickles import dump_plain, load_plain

PAGE_ENTRIES = 64
# A page of the owner has 64 roots: with 8 entries each it is as large as 8 pages.
ROOT_ENTRIES = 8
ROOT = 0

Rank = Callable[[Any], Any]
# Entries, pages numbered so far, whether the root holds entries; its keys, and what is below them.
Root = tuple[int, int, bool, list[Any], list[Any]]


class PageMissing(Corrupt):
    def __init__(self, *, page: str) -> None:
        super().__init__(
            f"the job's state names a page {page} that is not there: put back a copy of the "
            "checkpoint (`millstream state restore`), or rebuild the job"
        )
        self.page = page


@dataclass(slots=True)
class _Page:
    """`below` are values by key; of a page above others, their numbers by their least keys."""

    is_leaf: bool
    keys: list[Any]
    below: list[Any]

    def insert(self, place: int, key: Any, below: Any) -> None:
        self.keys.insert(place, key)
        self.below.insert(place, below)

    def remove(self, place: int) -> None:
        del self.keys[place], self.below[place]

    def cut(self) -> "_Page":
        """The upper half, which is taken off."""
        half = len(self.keys) // 2
        upper = _Page(self.is_leaf, self.keys[half:], self.below[half:])
        del self.keys[half:], self.below[half:]
        return upper


class OrderedPages:
    """What was changed is kept after `save`, together with the root that it returns."""

    def __init__(self, store: PageStore, name: str, rank: Rank, root: Root | None = None) -> None:
        self._store, self._name, self._rank = store, name, rank
        self._entries, self._numbered, is_leaf, keys, below = root or (0, 0, True, [], [])
        self._pages: dict[int, _Page] = {ROOT: _Page(is_leaf, list(keys), list(below))}
        self._changed: set[int] = set()

    def __len__(self) -> int:
        return self._entries

    def get(self, key: Any, default: Any = None) -> Any:
        path, place, is_there = self._find(key)
        return self._page(path[-1]).below[place] if is_there else default

    def __setitem__(self, key: Any, value: Any) -> None:
        path, place, is_there = self._find(key)
        leaf = self._page(path[-1])
        if is_there:
            leaf.below[place] = value
        else:
            leaf.insert(place, key, value)
            self._entries += 1
        self._changed.add(path[-1])
        self._split(path)

    def __delitem__(self, key: Any) -> None:
        path, place, is_there = self._find(key)
        if not is_there:
            raise KeyError(key)
        self._page(path[-1]).remove(place)
        self._entries -= 1
        self._changed.add(path[-1])
        self._prune(path)
        self._raise_only_page()

    def items(self) -> Iterator[tuple[Any, Any]]:
        """The least key first; pages are read as they are reached."""
        return self._items(ROOT)

    def first(self) -> Any:
        return self._edge(0)

    def last(self) -> Any:
        return self._edge(-1)

    def save(self) -> Root | None:
        """Hand over the pages that were changed. None: there is nothing to keep."""
        for number in sorted(self._changed - {ROOT}):
            self._save_page(number)
        self._changed.clear()
        root = self._pages[ROOT]
        if not self._entries:
            return None
        return self._entries, self._numbered, root.is_leaf, root.keys, root.below

    def _save_page(self, number: int) -> None:
        page = self._pages.get(number)
        if page is None:
            self._store.remove(self._page_name(number))
        else:
            content = (page.is_leaf, page.keys, page.below)
            self._store.write(self._page_name(number), dump_plain(content))

    def _page(self, number: int) -> _Page:
        if number not in self._pages:
            kept = self._store.read(self._page_name(number))
            if kept is None:
                raise PageMissing(page=self._page_name(number))
            self._pages[number] = _Page(*load_plain(kept))
        return self._pages[number]

    def _page_name(self, number: int) -> str:
        return f"{self._name}/{number}"

    def _find(self, key: Any) -> tuple[list[int], int, bool]:
        """The pages from the root to where a key is or belongs, its place in the last of them, and
        whether it is there."""
        wanted = self._rank(key)
        path = [ROOT]
        page = self._page(ROOT)
        while not page.is_leaf:
            # The first page has all that is less than the second, also than its own key here.
            place = bisect_right(page.keys, wanted, lo=1, key=self._rank) - 1
            path.append(page.below[place])
            page = self._page(path[-1])
        place = bisect_left(page.keys, wanted, key=self._rank)
        return path, place, place < len(page.keys) and self._rank(page.keys[place]) == wanted

    def _items(self, number: int) -> Iterator[tuple[Any, Any]]:
        page = self._page(number)
        if page.is_leaf:
            yield from zip(page.keys, page.below, strict=True)
        else:
            for below in page.below:
                yield from self._items(below)

    def _edge(self, place: int) -> Any:
        page = self._page(ROOT)
        while not page.is_leaf:
            page = self._page(page.below[place])
        return page.keys[place]

    def _split(self, path: list[int]) -> None:
        """Halve the last page of `path` if it has too many entries, then those above it."""
        number = path[-1]
        if len(self._page(number).keys) <= (PAGE_ENTRIES if number != ROOT else ROOT_ENTRIES):
            return
        if number == ROOT:
            self._lower_root()
            return
        page, above = self._page(number), self._page(path[-2])
        upper = page.cut()
        above.insert(above.below.index(number) + 1, upper.keys[0], self._number(upper))
        self._changed.update((number, path[-2]))
        self._split(path[:-1])

    def _lower_root(self) -> None:
        """What the root held is a page below it."""
        root = self._pages[ROOT]
        number = self._number(root)
        self._pages[ROOT] = _Page(False, root.keys[:1], [number])

    def _number(self, page: _Page) -> int:
        self._numbered += 1
        self._pages[self._numbered] = page
        self._changed.add(self._numbered)
        return self._numbered

    def _prune(self, path: list[int]) -> None:
        """Take the last page of `path` away if it is empty, then those above it."""
        number = path[-1]
        if number == ROOT or self._page(number).keys:
            return
        above = self._page(path[-2])
        above.remove(above.below.index(number))
        del self._pages[number]
        self._changed.add(path[-2])
        self._prune(path[:-1])

    def _raise_only_page(self) -> None:
        """A single page below the root becomes the root again when it is small enough."""
        root = self._pages[ROOT]
        if not root.below:
            root.is_leaf = True
        while not root.is_leaf and len(root.below) == 1:
            number = root.below[0]
            only = self._page(number)
            # Half, so that one entry that comes and goes does not move them all each time.
            if len(only.keys) > (ROOT_ENTRIES // 2 if only.is_leaf else ROOT_ENTRIES):
                return
            self._pages[ROOT] = root = _Page(only.is_leaf, only.keys, only.below)
            del self._pages[number]
            self._changed.add(number)
