"""Views: tables that jobs keep current and applications read, each with the position it is at.

    moment_reads.py    what readers of all stores share: a question is asked of one moment
    view.py            what an application reads a view with; waiting.py: reads after its own writes
    sql.py             SQL over views, in memory
    conditions.py      PURE: what a scan asks of rows, the same in every store; keys.py: of keys
    feeds.py           change feeds, for threads and loops; feed_follower.py: a subscriber's way;
                       PURE: feed_changes, feed_source, feed_tokens
    history.py         PURE: how much of the past is kept
    stores/            where a view is kept: SQLite, PostgreSQL, Redis, Delta, a topic, ...
    receipts.py        PURE: whether a batch is to be written, the same in every store
    table_layout.py    PURE: which column of a table holds which part of a row
    netting.py         PURE: what the changes of one batch come to, for each key

Knows no Spark and no broker; docs/formats/view_store.md has what is on disk.
"""
