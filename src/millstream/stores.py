"""Where a view is kept, as an application says it: `@app.view(key="url", store=stores.Redis(...))`.

Each name is loaded when it is used: only that store's driver must be installed, and an error names
the extra that brings it. Without `store=` a view is in SQLite, under the app's data.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.views.stores.delta_store import Delta
    from millstream.views.stores.parquet_store import Parquet
    from millstream.views.stores.postgres_store import Postgres
    from millstream.views.stores.redis_store import Redis
    from millstream.views.stores.search_store import SearchIndex
    from millstream.views.stores.sqlite_file import Sqlite
    from millstream.views.stores.topic_store import Topic

__all__ = ["Delta", "Parquet", "Postgres", "Redis", "SearchIndex", "Sqlite", "Topic"]

HOMES = {
    "Delta": "delta_store",
    "Parquet": "parquet_store",
    "Postgres": "postgres_store",
    "Redis": "redis_store",
    "SearchIndex": "search_store",
    "Sqlite": "sqlite_file",
    "Topic": "topic_store",
}


def __getattr__(name: str) -> object:
    if name in HOMES:
        return getattr(import_module(f"millstream.views.stores.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
