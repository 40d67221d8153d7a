"""Where a view is kept, as an application says it: `@app.view(key="url", store=stores.Redis(...))`.

Each name is loaded when it is used: only that store's driver must be installed, and an error names
the extra that brings it. Without `store=` a view is in SQLite, under the app's data.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.views.stores.delta.store import Delta
    from millstream.views.stores.parquet.store import Parquet
    from millstream.views.stores.postgres.store import Postgres
    from millstream.views.stores.redis.store import Redis
    from millstream.views.stores.search.store import SearchIndex
    from millstream.views.stores.sqlite.file import Sqlite
    from millstream.views.stores.topic.store import Topic

__all__ = ["Delta", "Parquet", "Postgres", "Redis", "SearchIndex", "Sqlite", "Topic"]

HOMES = {
    "Delta": "delta.store",
    "Parquet": "parquet.store",
    "Postgres": "postgres.store",
    "Redis": "redis.store",
    "SearchIndex": "search.store",
    "Sqlite": "sqlite.file",
    "Topic": "topic.store",
}


def __getattr__(name: str) -> object:
    if name in HOMES:
        return getattr(import_module(f"millstream.views.stores.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
