"""Values of records: from bytes to typed columns in Arrow, and from rows to bytes.

A decoder takes the values of a batch and gives columns for all of its rows; what it cannot read is
named, row by row, and never stops the others. JSON, Avro, Protobuf and raw; one file for each
direction of each format. Knows no broker and no Spark; needs pyarrow.
"""

from millstream.values.decoder import Bad, Decoded, Decoder

__all__ = ["Bad", "Decoded", "Decoder"]
