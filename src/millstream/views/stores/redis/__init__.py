"""Views in Redis: a cache that is written by the log."""
