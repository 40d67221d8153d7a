"""The seats and wallets of examples/seat_booking.py, hosted by processes that are killed.

BOOKING_APP=name MILLSTREAM_BROKERS=... millstream run tests/faults/booking_app.py
"""

import importlib.util
import os
from pathlib import Path

import millstream as ms

EXAMPLE = Path(__file__).parents[2] / "examples" / "seat_booking.py"
spec = importlib.util.spec_from_file_location("seat_booking", EXAMPLE)
assert spec is not None
assert spec.loader is not None
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)

app = ms.App(os.environ["BOOKING_APP"], data=os.environ["BOOKING_DATA"])
app.aggregates(example.Seat, partitions=2, commands="topic")
app.aggregates(example.Wallet, commands="topic")
example.declare(app)

if __name__ == "__main__":
    app.run()
