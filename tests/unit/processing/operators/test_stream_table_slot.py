"""Many keys of a join at once: each has its state, and only what changed is written."""

from millstream.processing.operators.enrichment_state import Enrichment
from millstream.processing.operators.stream_table import Arrival, Step, TableChange
from millstream.processing.operators.stream_table_slot import Brought, JoinSlot
from tests.support.page_dictionary import PageDictionary

WAITING = Enrichment(how="left", wait_ms=30)


def row(number: int, *, at_ms: int) -> Arrival:
    return Arrival(row={"number": number}, at_us=at_ms * 1000)


def table(name: str) -> TableChange:
    return TableChange(order=0, row={"name": name})


def batch(store: PageDictionary, brought: dict[str, Brought], *, watermark_ms: int) -> list[Step]:
    slot = JoinSlot(WAITING, store)
    steps = slot.step(brought, watermark_ms=watermark_ms)
    slot.save()
    return steps


def numbers_of(steps: list[Step]) -> list[int]:
    return sorted(joined.row["number"] for step in steps for joined in step.joined)


def test_each_key_has_its_own_state() -> None:
    store = PageDictionary()
    keys = {f"key {number}": number for number in range(500)}
    batch(store, {key: Brought([table(key)]) for key in keys}, watermark_ms=0)
    rows = {key: Brought([], [row(number, at_ms=1)]) for key, number in keys.items()}
    for step in batch(store, rows, watermark_ms=0):
        [joined] = step.joined
        assert joined.table_row == {"name": f"key {joined.row['number']}"}


def test_a_batch_that_only_reads_writes_nothing() -> None:
    store = PageDictionary()
    batch(store, {"a": Brought([table("Ada")])}, watermark_ms=0)
    writes = store.writes
    batch(store, {"a": Brought([], [row(1, at_ms=1)])}, watermark_ms=5)
    assert store.writes == writes


def test_when_time_has_come_only_those_who_wait_are_looked_at() -> None:
    store = PageDictionary()
    waiting = {str(number): Brought([], [row(number, at_ms=number)]) for number in (10, 20, 30)}
    batch(store, waiting, watermark_ms=0)
    slot = JoinSlot(WAITING, store)
    assert slot.due_ms() == 40
    assert slot.due_ms(["20", "30", "unknown"]) == 50
    assert numbers_of(slot.expire(watermark_ms=50)) == [10, 20]
    assert slot.due_ms() == 60
    slot.save()
    assert numbers_of(JoinSlot(WAITING, store).expire(watermark_ms=59)) == []


def test_a_key_without_state_leaves_nothing_behind() -> None:
    store = PageDictionary()
    batch(store, {"a": Brought([], [row(1, at_ms=0)])}, watermark_ms=0)
    slot = JoinSlot(WAITING, store)
    slot.expire(watermark_ms=30)
    slot.save()
    assert store.pages == {}
