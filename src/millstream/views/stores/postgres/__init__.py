"""Views in tables of PostgreSQL."""
