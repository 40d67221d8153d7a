"""psycopg, for all that speak to PostgreSQL; or an error that names the extra which brings it."""

from millstream.base.errors import Rejected

try:
    import psycopg
    from psycopg import conninfo, errors, rows, sql
except ImportError as error:
    raise Rejected(
        "psycopg is not installed: run `pip install 'millstream[postgres]'` for views in PostgreSQL"
    ) from error

__all__ = ["conninfo", "errors", "psycopg", "rows", "sql"]
