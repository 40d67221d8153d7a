"""Question: how long does a topic with its own `compression.type` keep the broker's loop?

Reproduce:  python -m bench.recompression

One batch of 926 KB of JSON events, as a producer sends it without compression, is brought
into each codec and level: what the broker does before it appends the batch. Times are medians.
"""

import json
import statistics
from random import Random
from time import perf_counter

from millstream.base.record import Record
from millstream.log.record_batch import Codec, encode_batch, read_header, recompress

EVENTS = 9_000
ROUNDS = 7
BYTES_MAX = 64 << 20
KINDS = (
    (Codec.SNAPPY, None),
    (Codec.LZ4, 9),
    (Codec.ZSTD, 3),
    (Codec.ZSTD, 19),
    (Codec.GZIP, None),
)


def main() -> None:
    random = Random(1)
    values = [
        {"user": f"u{random.randrange(5_000)}", "url": f"/p/{random.randrange(900)}", "n": number}
        | {"at": 1_700_000_000 + number, "amount": random.random()}
        for number in range(EVENTS)
    ]
    records = [Record(value=json.dumps(value).encode(), timestamp_ms=0) for value in values]
    batch = memoryview(encode_batch(records))
    print(f"{len(batch):,} bytes without compression")
    for codec, level in KINDS:
        seconds, size = [], 0
        for _ in range(ROUNDS):
            began = perf_counter()
            kept, _ = recompress(
                batch, read_header(batch), int(codec), level=level, bytes_max=BYTES_MAX
            )
            seconds.append(perf_counter() - began)
            size = len(kept)
        name = codec.name.lower() + ("" if level is None else f" level {level}")
        print(f"{name:<14} {1_000 * statistics.median(seconds):7.1f} ms  {size:>9,} bytes")


if __name__ == "__main__":
    main()
