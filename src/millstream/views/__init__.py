"""Views: tables that jobs keep current and applications read, each with the position it is at.

    stores/            where a view is kept: SQLite, PostgreSQL, Redis, Delta, a topic, ...
    receipts.py        PURE: whether a batch is to be written, the same in every store
    table_layout.py    PURE: which column of a table holds which part of a row
    netting.py         PURE: what the changes of one batch come to, for each key

Knows no Spark and no broker; docs/formats/view_store.md has what is on disk.
"""
