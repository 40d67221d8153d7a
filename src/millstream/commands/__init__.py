"""The commands of `millstream`, one file per noun.

`cli.py` joins them. A command asks `cluster.py`, computes in the pure files (positions, lag,
records) and prints through `output.py`. Heavy imports wait until a command runs.
"""
