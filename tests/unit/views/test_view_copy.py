"""A view copied and put back."""

from pathlib import Path

import pytest

from millstream.base.ports import Fenced
from millstream.schemas.declaration import schema_of
from millstream.views.stores.sqlite.copy import copy_view, restore_view
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from tests.contracts.view_store_contract import COUNTS, receipt, rows


def test_a_restored_view_is_as_it_was(tmp_path: Path) -> None:
    path, copy = tmp_path / "counts.sqlite", tmp_path / "copy.sqlite"
    store = SqliteView(path, view="counts", key=["url"])
    epoch = store.claim("counts", schema_of(COUNTS))
    store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    copy_view(path, copy)
    store.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2), ("/a", 1)))
    newest = store.claim("counts", schema_of(COUNTS))
    with ViewReader(path, view="counts") as reader:
        assert len(reader.scan()) == 2
        restore_view(copy, path)
        assert reader.scan() == [{"url": "/", "count": 1}]
        assert reader.position() == {"clicks": {0: 10, 1: 0}}
        with pytest.raises(Fenced):
            store.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
        assert store.write(receipt(epoch=newest, batch=1), rows(COUNTS, ("/", 2)))
        assert reader.scan() == [{"url": "/", "count": 2}]
    store.close()


def test_a_lost_view_comes_back(tmp_path: Path) -> None:
    path, copy = tmp_path / "counts.sqlite", tmp_path / "copy.sqlite"
    store = SqliteView(path, view="counts", key=["url"])
    epoch = store.claim("counts", schema_of(COUNTS))
    store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    store.close()
    copy_view(path, copy)
    path.unlink()
    restore_view(copy, path)
    with ViewReader(path, view="counts") as reader:
        assert reader.scan() == [{"url": "/", "count": 1}]
