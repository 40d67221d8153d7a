"""MariaDB and MySQL by their binlog, in row format.

    binlog_dump.py         the server sends its binlog: packets, as bytes
    binlog_event.py  PURE  what a packet holds; table_map.py: a table as the binlog has it
    assembly.py            events to transactions; groups.py gathers one, on disk if it is large
    row_decoder.py   PURE  rows to JSON, by code that is made for each table
    source.py              all of it as a `Source`; loading.py: the rows that are there

The place in the binlog is a set of GTIDs (gtids.py), which survives a failover; file names and
offsets would not. Tables are known by the metadata that the binlog carries
(binlog_row_metadata=FULL): a statement that alters a table is never parsed.
"""
