"""Views in SQLite, the store that needs nothing else; with history and feeds."""
