"""A view in Parquet: plain files for everything that reads Parquet, best for keys that grow.

    python examples/store_parquet.py

Windows in time are such keys: a batch touches the last files only. The manifest says which files
are the view. It prints

    {'count': [2, 1]}
"""

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

import millstream as ms

app = ms.App("store_parquet")
app.topic("clicks", schema="at TIMESTAMP", event_time="at")


@app.view(key="window", store=ms.stores.Parquet("files"))
def visits(clicks):
    return clicks.groupBy(ms.windows.tumbling("1 minute")).count()


def click(clock: str) -> None:
    app.publish("clicks", {"at": datetime.fromisoformat(f"2025-07-01T{clock}Z")})


def read(view: Path) -> pa.Table:
    """As any program may, without Millstream."""
    names = json.loads((view / "manifest.json").read_text())["files"]
    return pa.concat_tables(pyarrow.parquet.read_table(view / name) for name in names)


if __name__ == "__main__":
    with app:
        for clock in ("12:00:01", "12:00:59", "12:01:00"):
            click(clock)
        app.run(once=True)
    print(read(Path("files/visits")).select(["count"]).to_pydict())
