"""Views: tables that jobs keep current and applications read, each with the position it is at.

    sqlite_store.py     a view in one SQLite file: its job writes rows and receipt together
    reader.py           reads it, also while the job writes, from any process
    table_layout.py     PURE: which column of the table holds which part of a row
    stored_values.py    PURE: values of columns as SQLite keeps them, and back
    netting.py          PURE: what the changes of one batch come to, for each key

Knows no Spark and no broker; docs/formats/view_store.md has what is on disk.
"""
