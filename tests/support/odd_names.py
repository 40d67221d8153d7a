"""Names that a table or a column may have, and that SQL, format strings or our own statements could
take for something else."""

# What our own statements call things: aliases, variables, columns of tables that triggers fill.
OURS = (
    "n", "o", "x", "t", "i", "r", "c", "new", "old", "row", "rows", "op", "shape", "seq", "xid",
    "at", "at_ms", "id", "o0", "n0", "place", "note", "noted", "found_shape", "found", "new_rows",
    "old_rows", "tg_op", "changes", "marks_", "incoming", "version", "generation", "deleted",
    "value", "key", "b", "a", "public", "oid", "rowid", "kept", "asked", "gone",
)  # fmt: skip
KEYWORDS = (
    "select", "from", "where", "table", "order", "group", "by", "user", "limit", "union", "all",
    "primary", "values", "null", "true", "default", "check", "desc", "end", "case", "when", "into",
    "left", "only", "window", "trigger", "index", "current_user", "between", "analyze", "exists",
)  # fmt: skip
QUOTING = (
    "a b", " lead", "a.b", ".", "a,b", "a;b", "a'b", "''", 'a"b', '"', '""', '"a"', "a`b", "a\\b",
    "\\", "a%b", "%s", "%(x)s", "%%", "{}", "{0}", "{x}", "$1", ":x", "?", "a\tb", "a--b", "/*",
    "(1,2)", "[]", "a/b", "é", "Ünï", "日本",
)  # fmt: skip
EMOJI = ("🍵", "a🍵b")
ODD_NAMES = (*OURS, *KEYWORDS, *QUOTING, *EMOJI)
# Fewer, as each is a table with triggers.
ODD_TABLES = (
    "n", "new", "old_rows", "select", "user", "a b", "a.b", ".", "a'b", 'a"b', '"', '"a"', "a`b",
    "a\\b", "a%b", "%s", "{}", "$1", "日本", "🍵",
)  # fmt: skip
