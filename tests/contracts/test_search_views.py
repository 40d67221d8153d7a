"""Views in full-text indexes: the contract, and what only they have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.base.disk import RealDisk
from millstream.base.ports import Fenced
from millstream.schemas.declaration import schema_of
from millstream.views.store import BadQuestion, Home, ViewNotFound
from millstream.views.stores.search.documents import KEY_CHARACTERS_MAX
from millstream.views.stores.search.index import IndexFailed, IndexMoment, SearchGeneration
from millstream.views.stores.search.reader import HITS_MAX, QUERY_CHARACTERS_MAX
from millstream.views.stores.search.store import SearchIndex, SearchStore
from millstream.views.table_layout import BadView, ChangedView
from tests.contracts.view_store_contract import OpenStore, StoreContract, receipt, rows
from tests.support.memory_directory import memory_directory

ARTICLES = "id INT, title STRING, tags ARRAY<STRING>, body STRING, year INT"
WORDS = SearchIndex(text=["title", "tags", "body"])


@pytest.fixture
def data() -> Iterator[Path]:
    with memory_directory() as path:
        yield path


class TestSearchIndex(StoreContract):
    @pytest.fixture
    def store(self, data: Path) -> OpenStore:
        def open_store(*, key: list[str], view: str = "counts") -> SearchStore:
            return SearchIndex().open(view, tuple(key), Home(app="shop", data=data))

        return open_store


def opened(data: Path, words: SearchIndex = WORDS) -> SearchStore:
    return words.open("articles", ("id",), Home(app="shop", data=data))


@pytest.fixture
def store(data: Path) -> SearchStore:
    """With three articles, by a job that has epoch 1."""
    store = opened(data)
    writer = store.writer(1)
    writer.claim("articles", schema_of(ARTICLES))
    writer.write(
        receipt(epoch=1, batch=0),
        rows(
            ARTICLES,
            (1, "Solar panels", ["energy", None], "A roof that makes light work", 2024),
            (2, "Wind and solar", None, "Sun by day, wind by night. Solar!", 2025),
            (3, "Ägypten im Frühling", ["travel"], None, 2025),
        ),
    )
    return store


def found(store: SearchStore, query: str, **terms: Any) -> list[int]:
    return [row["id"] for row in store.reader().search(query, **terms)]


def test_an_index_that_is_dropped_while_it_is_opened_is_not_there(
    store: SearchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = SearchGeneration.moment

    def dropped_then(generation: SearchGeneration) -> IndexMoment:
        monkeypatch.undo()
        store.drop()
        return moment(generation)

    monkeypatch.setattr(SearchGeneration, "moment", dropped_then)
    with pytest.raises(ViewNotFound, match="view articles is not there"):
        store.reader().count()


# --- questions


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("roof", {1}),
        ("SOLAR", {1, 2}),
        ("solar roof", {1, 2}),
        ("solar AND roof", {1}),
        ("+solar -roof", {2}),
        ('"solar panels"', {1}),
        ('"panels solar"', set()),
        ("title:wind", {2}),
        ("tags:energy", {1}),
        ("body:panels", set()),
        ("(wind OR travel) -night", {3}),
        ("(wind OR travel) NOT night", {3}),
        ('"and not" wind', {2}),
        ("agypten", {3}),
        ("Ägypten", {3}),
        ("solar^2 roof", {1, 2}),
        ('"solar pan"*', {1}),
        ("*", {1, 2, 3}),
        ("state", set()),
        ("_key:state", set()),
        ("", set()),
        ("nothing", set()),
    ],
)
def test_words_find_rows(store: SearchStore, query: str, ids: set[int]) -> None:
    assert set(found(store, query)) == ids


def test_the_best_row_comes_first_with_its_score(store: SearchStore) -> None:
    best, second = store.reader().search("solar wind")
    assert (best["id"], second["id"]) == (2, 1)
    assert best["_score"] > second["_score"] > 0
    assert {name: best[name] for name in ("title", "year")} == {
        "title": "Wind and solar",
        "year": 2025,
    }


def test_every_word_can_be_asked_for(store: SearchStore) -> None:
    assert found(store, "solar roof", every_word=True) == [1]


def test_hits_come_in_pages(store: SearchStore) -> None:
    whole = found(store, "solar travel", limit=10)
    assert [found(store, "solar travel", limit=1, offset=n) for n in range(3)] == [
        [one] for one in whole
    ]


@pytest.mark.parametrize(
    "query",
    [
        "(",
        "solar AND",
        'title:"',
        "nowhere:x",
        "-solar",
        "/s.*/",
        "_row:x",
        "a^1e999",
        "[",
        "a AND NOT b",
    ],
)
def test_a_query_that_means_nothing_is_refused(store: SearchStore, query: str) -> None:
    with pytest.raises(BadQuestion, match="view articles: the query"):
        found(store, query)


def test_a_query_has_a_limit(store: SearchStore) -> None:
    found(store, "(" * 999 + "a" + ")" * 999)
    found(store, "a" * QUERY_CHARACTERS_MAX)
    with pytest.raises(BadQuestion, match="up to 2000 characters"):
        found(store, "a" * (QUERY_CHARACTERS_MAX + 1))
    found(store, "solar", limit=HITS_MAX)
    for terms in ({"limit": HITS_MAX + 1}, {"limit": 0}, {"limit": 1, "offset": -1}):
        with pytest.raises(BadQuestion, match="1 to 10000 in all"):
            found(store, "solar", **terms)


# --- changes


def test_a_row_is_found_by_its_words_of_now(store: SearchStore) -> None:
    writer = store.writer(1)
    epoch = writer.claim("articles", schema_of(ARTICLES))
    table = rows(
        f"{ARTICLES}, _change STRING",
        (1, "Heat pumps", None, None, 2026, "upsert"),
        (2, None, None, None, None, "delete"),
    )
    reader = store.reader()
    assert len(reader.search("solar")) == 2
    writer.write(receipt(epoch=epoch, batch=1), table)
    assert reader.search("solar") == []
    assert [row["id"] for row in reader.search("pumps")] == [1]
    assert reader.count() == 2


def test_a_language_finds_words_by_their_stems(data: Path) -> None:
    store = opened(data, SearchIndex(text=["title"], language="english"))
    writer = store.writer(1)
    epoch = writer.claim("articles", schema_of(ARTICLES))
    row = (1, "Running shoes", None, "light", 2024)
    writer.write(receipt(epoch=epoch, batch=0), rows(ARTICLES, row))
    assert found(store, "run shoe") == [1]
    assert found(store, "light") == []


def test_a_long_key_finds_its_row(data: Path) -> None:
    store = SearchIndex().open("pages", ("url",), Home(app="shop", data=data))
    writer, ddl = store.writer(1), "url STRING, n INT"
    epoch = writer.claim("pages", schema_of(ddl))
    long = "x" * 100_000
    keys = [long, long + "y", "x" * KEY_CHARACTERS_MAX]
    for batch in range(2):
        table = rows(ddl, *((key, batch) for key in keys))
        writer.write(receipt(epoch=epoch, batch=batch, job="pages"), table)
    assert [row and row["n"] for row in store.reader().get_many(keys)] == [1, 1, 1]
    assert store.reader().count() == 3


# --- bad luck


def test_a_commit_is_synced_with_its_name(
    store: SearchStore, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tantivy leaves the rename of meta.json to the system."""
    (meta,) = data.glob("views/articles.search/generation-1-1/meta.json")
    writer = store.writer(1)
    epoch = writer.claim("articles", schema_of(ARTICLES))
    before, synced = meta.read_text(), []
    monkeypatch.setattr(
        RealDisk, "sync_directory", lambda _, path: synced.append((path, meta.read_text()))
    )
    writer.write(receipt(epoch=epoch, batch=1), rows(ARTICLES))
    assert synced == [(meta.parent, meta.read_text())]
    assert meta.read_text() != before


def test_a_run_goes_on_after_one_that_was_killed_before_its_commit_had_a_name(
    store: SearchStore, data: Path
) -> None:
    """What it left is in the way of the next commit, whose files have the same names."""
    (meta,) = data.glob("views/articles.search/generation-1-1/meta.json")
    table = rows(ARTICLES, (1, "Heat pumps", None, None, 2026))
    before = meta.read_text()
    for _ in range(2):
        meta.write_text(before)  # as if the rename were still to come
        writer = opened(data).writer(1)
        epoch = writer.claim("articles", schema_of(ARTICLES))
        assert found(store, "solar") in ([1, 2], [2, 1])
        assert writer.write(receipt(epoch=epoch, batch=1), table)
    assert (found(store, "solar"), found(store, "pumps")) == ([2], [1])


def test_other_words_to_search_want_a_rebuild(store: SearchStore, data: Path) -> None:
    with pytest.raises(ChangedView, match=r"it searches title, tags, body \(any language\)"):
        opened(data, SearchIndex(text=["title"])).writer(1).claim("articles", schema_of(ARTICLES))
    rebuilt = opened(data, SearchIndex(text=["title"])).writer(2)
    epoch = rebuilt.claim("articles", schema_of(ARTICLES))
    rebuilt.write(
        receipt(epoch=epoch, batch=0, query="b"), rows(ARTICLES, (1, "Roof", None, "sun", 1))
    )
    rebuilt.serve()
    assert (found(store, "roof"), found(store, "sun")) == ([1], [])


@pytest.mark.parametrize("text", [["nowhere"], ["year"], ["title", "id"]])
def test_what_is_no_text_cannot_be_searched(data: Path, text: list[str]) -> None:
    store = opened(data, SearchIndex(text=text))
    with pytest.raises(BadView, match=f"{text[-1]} is to be searched, but is no STRING"):
        store.writer(1).claim("articles", schema_of(ARTICLES))
    assert store.generations() == []


def test_a_language_that_is_not_known_is_told() -> None:
    with pytest.raises(BadView, match="no stems of 'klingon': arabic, danish"):
        SearchIndex(language="klingon")


def test_a_run_that_waited_for_the_lock_finds_that_it_is_fenced(store: SearchStore) -> None:
    zombie, newer = store.writer(1), store.writer(1)
    old = zombie.claim("articles", schema_of(ARTICLES))
    newer.claim("articles", schema_of(ARTICLES))
    with pytest.raises(Fenced):
        zombie.write(receipt(epoch=old, batch=1), rows(ARTICLES, (1, "x", None, None, 1)))
    assert found(store, "x") == []


def test_a_damaged_index_is_told(store: SearchStore, data: Path) -> None:
    (meta,) = data.glob("views/articles.search/generation-1-1/meta.json")
    meta.write_text("{")
    with pytest.raises(IndexFailed, match="could not be read or written"):
        store.reader().count()
