"""How fast do values become columns, and what do bad ones cost?

    python bench/value_decoding.py

Rows for each second of CPU time, the best of three rounds, one thread; small records of 67 bytes
with texts, a number and a timestamp. The first line is Arrow's JSON reader alone, without any of
the guards: what JSON could reach at best. Other work on the machine lowers all of them.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.json

from millstream.values.avro_decoder import AvroDecoder
from millstream.values.avro_encoder import AvroEncoder
from millstream.values.decoder import Decoder
from millstream.values.json_decoder import JsonDecoder
from millstream.values.json_encoder import JsonEncoder

ROUNDS = 3
RECORDS = 100_000
SLOW_RECORDS = 20_000
SCHEMA = "user STRING, url STRING, n BIGINT, at TIMESTAMP"
AT = datetime(2026, 11, 16, 3, tzinfo=UTC)


def row(number: int) -> dict[str, Any]:
    return {"user": f"u{number % 1000}", "url": f"/p/{number % 77}", "n": number, "at": AT}


def json_values(records: int, *, at: object = "2026-11-16T03:00:00Z") -> list[bytes]:
    return [json.dumps({**row(number), "at": at}).encode() for number in range(records)]


def with_bad(values: list[bytes], every: int) -> list[bytes]:
    return [b"oops" if n % every == 0 else value for n, value in enumerate(values)]


def arrow_alone(values: list[bytes]) -> Callable[[], object]:
    joined = b"\n".join(values)
    schema = JsonDecoder(SCHEMA).arrow_schema
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(joined) + 1)
    parse = pyarrow.json.ParseOptions(explicit_schema=schema)
    return lambda: pyarrow.json.read_json(
        pa.BufferReader(joined), read_options=options, parse_options=parse
    )


def decoding(decoder: Decoder, values: list[bytes]) -> Callable[[], object]:
    array = pa.array(values, pa.binary())
    return lambda: decoder.decode(array)


def report(what: str, records: int, work: Callable[[], object]) -> None:
    seconds = min(_cpu_seconds(work) for _ in range(ROUNDS))
    print(f"{what:44} {records / seconds / 1e6:6.2f} M rows/s", flush=True)


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    values, few = json_values(RECORDS), json_values(SLOW_RECORDS)
    report("Arrow's JSON reader alone", RECORDS, arrow_alone(values))
    report("JSON", RECORDS, decoding(JsonDecoder(SCHEMA), values))
    report("JSON, 2 of 4 columns", RECORDS, decoding(JsonDecoder("n BIGINT, url STRING"), values))
    epoch = json_values(RECORDS, at=1_794_798_000_000)
    report("JSON, timestamps as numbers", RECORDS, decoding(JsonDecoder(SCHEMA), epoch))
    for every in (10_000, 1_000, 100):
        bad = with_bad(values, every)
        report(f"JSON, 1 bad value in {every:,}", RECORDS, decoding(JsonDecoder(SCHEMA), bad))
    with_map = JsonDecoder(f"{SCHEMA}, more MAP<STRING, STRING>")
    report("JSON, one by one (a schema with a map)", SLOW_RECORDS, decoding(with_map, few))
    avro = AvroEncoder(SCHEMA)
    rows = [row(number) for number in range(SLOW_RECORDS)]
    report("Avro", SLOW_RECORDS, decoding(AvroDecoder(SCHEMA), [avro.encode(one) for one in rows]))
    report("rows to Avro", SLOW_RECORDS, lambda: [avro.encode(one) for one in rows])
    to_json = JsonEncoder(SCHEMA)
    report("rows to JSON", SLOW_RECORDS, lambda: [to_json.encode(one) for one in rows])


if __name__ == "__main__":
    main()
