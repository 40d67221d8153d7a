"""Who writes a view, which of its generations readers see, and how far each one is. Pure.

For stores that keep files rather than tables. A `ViewBook` is of the whole view, and changes when
a run claims it, serves or drops. A `GenerationState` is of one generation, and changes with every
batch: it is kept in one step with the rows (docs/formats/ says how).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from millstream.base.ports import BatchReceipt
from millstream.base.positions import Positions, positions_from
from millstream.base.schema import Schema
from millstream.schemas.spark_json import schema_from_spark_json, schema_to_spark_json
from millstream.views.receipts import KeptReceipt, OwnedByAnother, Place, require_newest
from millstream.views.store import Generation, require_droppable, require_generation
from millstream.views.table_layout import TableLayout

Facts = dict[str, Any]  # as JSON has them


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBook:
    """The claim on a view, and its generations; `epoch` never goes back, though all be dropped.

    `born` has the epoch that each generation was made with, by number, the oldest first: with it,
    what is left of one that was dropped is never taken for a new one of its number.
    """

    job: str = ""
    epoch: int = 0
    served: int | None = None
    born: Mapping[int, int] = field(default_factory=dict)

    def claimed(self, job: str, generation: int, *, place: Place) -> Self:
        """The next epoch, for a run that writes this generation; the first one is served."""
        if self.job and self.job != job:
            raise OwnedByAnother(place=place, owner=self.job, job=job)
        epoch = self.epoch + 1
        born = {generation: epoch, **self.born}
        return replace(
            self,
            job=job,
            epoch=epoch,
            served=self.served or generation,
            born=dict(sorted(born.items())),
        )

    def serving(self, generation: int, *, job: str, epoch: int) -> Self:
        """This one in place of another, which stays for a rollback; all others go."""
        require_newest(job, epoch, claimed=self.epoch)
        if self.served == generation:
            return self
        born = {one: at for one, at in self.born.items() if one in (self.served, generation)}
        return replace(self, served=generation, born=born)

    def rolled_back(self, view: str, generation: int) -> Self:
        require_generation(view, generation, tuple(self.born))
        return replace(self, served=generation)

    def without(self, view: str, generation: int) -> Self:
        require_droppable(view, generation, tuple(self.born), served=self.served)
        born = {one: at for one, at in self.born.items() if one != generation}
        return replace(self, born=born)

    def emptied(self) -> Self:
        """Free for any job; runs of the former one stay fenced."""
        return replace(self, job="", epoch=self.epoch + 1, served=None, born={})

    def directory(self, generation: int) -> str:
        return f"generation-{generation}-{self.born[generation]}"

    def facts(self) -> Facts:
        return {
            "job": self.job,
            "epoch": self.epoch,
            "served": self.served,
            "generations": {str(number): epoch for number, epoch in self.born.items()},
        }


def book_from(facts: Mapping[str, Any]) -> ViewBook:
    return ViewBook(
        job=facts["job"],
        epoch=facts["epoch"],
        served=facts["served"],
        born={int(number): epoch for number, epoch in facts["generations"].items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationState:
    """Key and columns of a generation, its last batch, and where that has read to."""

    key: tuple[str, ...]
    schema: Schema
    epoch: int
    receipt: KeptReceipt | None = None

    @property
    def positions(self) -> Positions:
        return {} if self.receipt is None else self.receipt.positions

    def after(self, receipt: BatchReceipt) -> Self:
        return replace(
            self,
            epoch=receipt.epoch,
            receipt=KeptReceipt(receipt.query, receipt.batch, receipt.positions),
        )

    def layout(self, view: str) -> TableLayout:
        return TableLayout(view, self.schema, self.key)

    def generation(self, number: int, *, is_served: bool) -> Generation:
        batch = None if self.receipt is None else self.receipt.batch
        return Generation(number=number, is_served=is_served, batch=batch, positions=self.positions)

    def facts(self) -> Facts:
        receipt = self.receipt
        return {
            "key": list(self.key),
            "schema": schema_to_spark_json(self.schema),
            "epoch": self.epoch,
            "query": None if receipt is None else receipt.query,
            "batch": None if receipt is None else receipt.batch,
            "positions": self.positions,
        }


def state_from(facts: Mapping[str, Any]) -> GenerationState:
    query, batch = facts["query"], facts["batch"]
    return GenerationState(
        key=tuple(facts["key"]),
        schema=schema_from_spark_json(facts["schema"]),
        epoch=facts["epoch"],
        receipt=None
        if query is None
        else KeptReceipt(query, batch, positions_from(facts["positions"])),
    )


def to_json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
