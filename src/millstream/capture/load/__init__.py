"""The initial load: the rows that are there already come in between the changes, chunk by chunk.

How a runner uses it, all from its one thread; the readers are threads of the Loading's own:

    loading = Loading(loader, topics, tables=source.tables(), states=kept, is_past=source.is_past)
    for step in source.stream(after=position):
        if isinstance(step, Transaction):
            for change in loading.followed(step):       # instead of step.changes: notes the keys
                write(change)
        for due in loading.due(step.resume):            # before EVERY commit; in the same one
            for change in due.changes:                  # op r, or d for what a reload did not find,
                write_loaded(change, due.position)      # or t before the rows of a keyless table
            for again in due.again:                     # keyless tables only: changes that are
                write(again.change, of=again.transaction, seq=again.seq)  # newer than the rows
            keep(["load", name, due.table.name], due.state)   # JSON text, in the same transaction
        commit(); loading.committed()

After a crash, or whenever a Kafka transaction was aborted: `close()` it, and make a new one of the
states that were committed: `states` is table name -> JSON text. A table without a state is loaded
from its start. `add(tables)` loads tables that a running capture got; `reload(name)` loads one
anew; both while changes stream. `tables` may hold tables that are loaded already.

`topics` is what the load asks of the log: `SweptTopics(client, flush=changes.flush)` of sweep.py.
A row that a reload does not find, or that a TRUNCATE took, is a record in a compacted topic until
somebody writes its tombstone. So a load, and a TRUNCATE that `followed` passes on, end with a
*sweep*: deletes for the keys that are older in the topic than it and were not written since.

What a chunk may say (window.py) - a row is dropped when a transaction that the chunk's snapshot
does not see was handed over and touched its key. Nothing else decides: the order of the log does
not tell what a snapshot sees.

    window.py    PURE  which rows of a chunk survive what was handed over
    plan.py      PURE  ranges, states as JSON, how far it is, and when it will be done
    course.py, table_course.py   PURE  what is to be read next, what arrived, what is due
    progress.py  PURE  how far the loads are, how fast, and how long they will take
    sweep.py           keys that a topic still holds
    loading.py         `Loading`: the course, with threads that read
"""
