import pytest

from millstream.capture.load.plan import Phase
from millstream.capture.load.progress import LoadProgress, TableProgress, progress_line


def table(phase: Phase, rows: int, rows_estimate: int) -> TableProgress:
    return TableProgress(table="orders", phase=phase, rows=rows, rows_estimate=rows_estimate)


@pytest.mark.parametrize(
    ("one", "fraction"),
    [
        (table(Phase.READING, 0, 0), 0.0),
        (table(Phase.READING, 25, 100), 0.25),
        (table(Phase.READING, 120, 100), 0.99),
        (table(Phase.SWEEPING, 100, 100), 0.99),
        (table(Phase.DONE, 80, 100), 1.0),
        (table(Phase.DONE, 0, 0), 1.0),
    ],
)
def test_a_table_is_all_there_when_it_is_done_and_not_before(
    one: TableProgress, fraction: float
) -> None:
    assert one.fraction == fraction


def test_the_rate_is_of_this_run_and_tells_how_long_the_rest_takes() -> None:
    tables = (table(Phase.DONE, 500, 450), table(Phase.READING, 100, 700))
    progress = LoadProgress(tables=tables, rows_here=200, seconds=4.0)
    assert progress.rows_per_second == 50.0
    assert progress.rows_expected == 1_200
    assert progress.seconds_left == 12.0


def test_nobody_knows_how_long_it_takes_before_the_first_row() -> None:
    progress = LoadProgress(tables=(table(Phase.READING, 0, 9),), rows_here=0, seconds=0.0)
    assert progress.seconds_left is None


def test_nothing_is_left_when_all_is_done() -> None:
    progress = LoadProgress(tables=(table(Phase.DONE, 9, 12),), rows_here=0, seconds=1.0)
    assert progress.seconds_left == 0.0


@pytest.mark.parametrize(
    ("tables", "rows_here", "seconds", "line"),
    [
        ((table(Phase.READING, 0, 0),), 0, 1.0, "no rows yet"),
        ((table(Phase.READING, 0, 900),), 0, 1.0, "0 of about 900 rows (0%)"),
        (
            (table(Phase.READING, 12_000, 48_000),),
            6_000,
            2.0,
            "12,000 of about 48,000 rows (25%), 3,000 rows/s, 12s left",
        ),
        (
            (table(Phase.SWEEPING, 900, 900),),
            900,
            1.0,
            "900 of about 900 rows (99%), 900 rows/s",
        ),
        ((table(Phase.DONE, 900, 800),), 900, 1.0, "900 rows, all loaded"),
    ],
)
def test_a_line_tells_how_far_how_fast_and_how_long(
    tables: tuple[TableProgress, ...], rows_here: int, seconds: float, line: str
) -> None:
    progress = LoadProgress(tables=tables, rows_here=rows_here, seconds=seconds)
    assert progress_line(progress) == line
