"""A stream enriched with a table, as one key sees it."""

from millstream.processing.operators.enrichment_state import Enrichment, EnrichmentState
from millstream.processing.operators.stream_table import Arrival, Row, TableChange

LEFT = Enrichment(how="left")
INNER = Enrichment(how="inner")
PATIENT = Enrichment(how="left", wait_ms=30)

Pair = tuple[str, str | None]


def row(name: str, *, at_ms: int = 0) -> Arrival:
    return Arrival(row={"row": name}, at_us=at_ms * 1000)


def table(name: str | None, *, order: int = 0) -> TableChange:
    return TableChange(order=order, row=None if name is None else {"name": name})


def step(
    join: Enrichment,
    state: EnrichmentState,
    changes: list[TableChange] | None = None,
    arrivals: list[Arrival] | None = None,
    *,
    watermark_ms: int | None = None,
) -> list[Pair]:
    result = join.step(state, changes or [], arrivals or [], watermark_ms=watermark_ms)
    return [(joined.row["row"], name_of(joined.table_row)) for joined in result.joined]


def name_of(table_row: Row | None) -> str | None:
    return table_row["name"] if table_row else None


def test_a_row_gets_the_tables_row_as_it_is_when_it_comes() -> None:
    state = EnrichmentState()
    assert step(LEFT, state, [table("ada")], [row("1")]) == [("1", "ada")]
    assert step(LEFT, state, [], [row("2")]) == [("2", "ada")]
    assert step(LEFT, state, [table("Ada")], [row("3")]) == [("3", "Ada")]


def test_the_last_change_of_a_batch_counts_whatever_order_it_is_read_in() -> None:
    changes = [table("new", order=2), table(None, order=1), table("old", order=0)]
    assert step(LEFT, EnrichmentState(), changes, [row("1")]) == [("1", "new")]


def test_a_deleted_row_is_found_no_more() -> None:
    for join, expected in ((LEFT, [("1", None)]), (INNER, [])):
        state = EnrichmentState(table_row={"name": "ada"})
        assert step(join, state, [table(None)], [row("1")]) == expected
        assert state.plain() is None


def test_a_row_that_waits_is_given_when_the_tables_row_comes() -> None:
    state = EnrichmentState()
    assert step(PATIENT, state, [], [row("1", at_ms=100)], watermark_ms=0) == []
    assert PATIENT.due_ms(state) == 130
    assert step(PATIENT, state, [table("ada")], [row("2")], watermark_ms=129) == [
        ("1", "ada"),
        ("2", "ada"),
    ]
    assert PATIENT.due_ms(state) is None


def test_waiting_ends_when_the_watermark_reaches_its_end() -> None:
    for how, expected in (("left", [("1", None)]), ("inner", [])):
        join = Enrichment(how=how, wait_ms=30)  # type: ignore[arg-type]  # both are in the table above
        state = EnrichmentState()
        step(join, state, [], [row("1", at_ms=100), row("2", at_ms=101)], watermark_ms=0)
        assert step(join, state, watermark_ms=129) == []
        assert step(join, state, watermark_ms=130) == expected
        assert [held for _, held in state.waiting] == [{"row": "2"}]


def test_a_tables_row_that_comes_with_the_end_of_waiting_is_in_time() -> None:
    state = EnrichmentState()
    step(PATIENT, state, [], [row("1", at_ms=100)], watermark_ms=0)
    assert step(PATIENT, state, [table("ada")], watermark_ms=1000) == [("1", "ada")]


def test_state_survives_as_plain_values() -> None:
    state = EnrichmentState()
    step(PATIENT, state, [], [row("1", at_ms=100)], watermark_ms=0)
    recalled = PATIENT.recall(state.plain())
    assert recalled == state
    assert PATIENT.recall(None) == EnrichmentState()


def test_a_microsecond_after_the_millisecond_waits_for_the_next() -> None:
    state = EnrichmentState()
    late = Arrival(row={"row": "1"}, at_us=100_001)
    PATIENT.step(state, [], [late], watermark_ms=0)
    assert PATIENT.due_ms(state) == 131
