"""Writes a view of counts by url as its job does, batch by batch."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from millstream.base.clock import Clock, system_clock
from millstream.base.ports import BatchReceipt
from millstream.schemas.declaration import schema_of
from millstream.views.history import Keeping
from millstream.views.stores.sqlite.store import SqliteView

COUNTS = "url STRING, count BIGINT"
BATCH = pa.schema([("url", pa.string()), ("count", pa.int64()), ("_change", pa.string())])


class ViewJob:
    """One run of the job; `query` is its checkpoint."""

    def __init__(
        self,
        path: Path,
        *,
        generation: int = 1,
        query: str = "a",
        batch: int = 0,
        history_ms: int | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.writer = SqliteView(
            path,
            view="counts",
            key=["url"],
            generation=generation,
            keeping=Keeping(history_ms=history_ms),
            clock=clock,
        )
        self.batch, self._query = batch, query
        self._epoch = self.writer.claim("counts", schema_of(COUNTS))

    def put(self, counts: Mapping[str, int | None]) -> None:
        """The next batch: a count for each url, None for one that goes."""
        rows = [
            {"url": url, "count": count, "_change": "delete" if count is None else "upsert"}
            for url, count in counts.items()
        ]
        receipt = BatchReceipt(
            job="counts",
            epoch=self._epoch,
            query=self._query,
            batch=self.batch,
            positions={"clicks": {0: self.batch}},
        )
        assert self.writer.write(receipt, pa.Table.from_pylist(rows, BATCH))
        self.batch += 1

    def serve(self) -> None:
        self.writer.serve()

    def close(self) -> None:
        self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
