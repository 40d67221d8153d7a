"""The archive: what a topic held, kept as Parquet files after retention has deleted it.

    for batch in millstream.archive.read("s3://history/mill", "orders", start=1_000):
        ...                                                   # pyarrow.RecordBatch

A folder per topic, a file per range of offsets, and a manifest that says which files count
(docs/formats/archive.md). `manifest`, `layout`, `plan` and `selection` are pure; `stores` is the
file-system port; `parquet` needs pyarrow, which is imported when it is used. Does not talk to a
broker: `commands/archiving.py` reads topics and `commands/restoring.py` writes them.
"""

from millstream.archive.reading import read

__all__ = ["read"]
