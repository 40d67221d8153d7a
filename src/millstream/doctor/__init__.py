"""What this machine lacks to run Millstream, and how to mend it: `millstream doctor`.

finding.py    what a check has found. PURE
verdicts.py   from facts to findings: what is well, doubtful, wrong. PURE
software.py   asks Python, packages and Java
machine.py    asks the disk, the clock, limits and memory
places.py     asks ports, the data directory and the broker
checkup.py    all of them, in order
"""
