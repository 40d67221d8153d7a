"""The store that every application has: SQLite, one file for each view."""

from pathlib import Path

import pytest

from millstream.views.stores.sqlite.file import SqliteStore
from tests.contracts.view_store_contract import OpenStore, StoreContract


class TestSqlite(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> OpenStore:
        def store(*, key: list[str], view: str = "counts") -> SqliteStore:
            return SqliteStore(tmp_path / f"{view}.sqlite", view=view, key=key)

        return store
