"""Who reads what: consumer groups, and how far each of them has read.

Everything in this folder is pure: calls take values, `now_ms` and a token to answer to, and
return an `Outcome`. The shell around it owns the clock, the connections and the disk. One file
per noun; a kind of group other than the classic one gets its files beside these.
"""
