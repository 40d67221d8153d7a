"""SQLite, captured by triggers: every writer of the file is seen, in whatever process it runs.

`shape.py` says what a table looks like, `trigger_sql.py` writes the triggers for it, which put old
and new values into a table of changes as SQLite stores them; `change_table.py` keeps that table,
`stored_values.py` makes JSON of what is in it. docs/formats/capture_triggers.md has the tables.
"""
