"""PostgreSQL 13 to 18 by logical replication: the server's own plugin `pgoutput`, over libpq.

connection.py    the replication connection: bytes in, confirmed positions out
following.py     what comes in to transactions and positions, for the caller's loop
transactions.py  messages to whole transactions; spool.py keeps them meanwhile, on disk if big
wire.py          PURE: messages of pgoutput
relations.py     which table a message means, and in which version
row_decoder.py   PURE: a row's bytes to JSON, by code made for each version of a table
types.py         PURE: a column's type to ours; json_forms.py: a value's text to its JSON form
catalogue.py     what the database says of its tables, types and keys
slot.py          publication, slot, event trigger: what is made there and taken away
loading.py       chunks of rows, each from one snapshot that knows what it saw
checks.py        what a database lacks; refusals.py: its errors in our words
"""
