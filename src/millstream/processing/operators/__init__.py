"""Windows, joins, changelogs and clocks: frames in, frames out, on streams and on static frames.

The faces are `windows.py`, `joins.py`, `changelog.py` and `clock_skew.py`. Behind each is a pure
core that knows one key or one slot of keys (`*_state.py`), and a shell that runs it in Spark.
"""
