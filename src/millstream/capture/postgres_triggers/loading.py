"""Chunks of rows, read as capture/postgres/ reads them; they close where their snapshot does."""

from dataclasses import replace

from millstream.capture.change import CapturedTable
from millstream.capture.postgres.loading import PostgresChunk, PostgresLoader
from millstream.capture.postgres_triggers.position import Position


class TriggerLoader(PostgresLoader):
    def read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> PostgresChunk:
        chunk = super().read(table, after, until, rows_max)
        return replace(chunk, closes_at=str(Position.of(chunk.snapshot)))
