"""Joins, as an application calls them: `millstream.joins`.

within    two streams, rows that are near in time       stream_join.py
enrich    a stream and a table, as it is now            enrichment.py
as_of     a stream and a table, as it was then          as_of.py
tables    two tables, kept up to date                   table_join.py
"""

from millstream.processing.operators.as_of import as_of
from millstream.processing.operators.enrichment import enrich
from millstream.processing.operators.stream_join import within
from millstream.processing.operators.table_join import tables

__all__ = ["as_of", "enrich", "tables", "within"]
