"""What the demo shows, as text."""

from millstream.demo.chaos import Round
from millstream.demo.figures import Comparison, Total
from millstream.demo.screen import (
    MADE,
    SAID,
    Scene,
    comparison_lines,
    headline,
    plain_line,
    screen_lines,
)
from millstream.demo.show import can_open_browser
from millstream.demo.stage import Told

EQUAL = Comparison("customer_360", Total(3, 1_250), Total(3, 1_250))
LESS = Comparison("revenue_a_minute", Total(3, 1_250), Total(2, 1_000))
NOTHING = Comparison("orders_with_price", Total(3, 1_250), None)


def test_every_topic_and_view_has_a_line_from_the_first_moment_on() -> None:
    text = "\n".join(screen_lines(Scene(seconds=0.4, url="http://127.0.0.1:8080")))
    for name in (*SAID, *MADE):
        assert name in text
    assert text.count("Spark starts") == len(MADE)


def test_a_view_without_rows_says_how_its_job_is() -> None:
    scene = Scene(seconds=1, url="", jobs={"visits": {"state": "failed"}})
    (line,) = [one for one in screen_lines(scene) if one.startswith("visits")]
    assert "job is failed" in line


def test_what_went_wrong_is_counted() -> None:
    scene = Scene(
        seconds=1,
        url="",
        records={"clicks.dead": 4, "payments.dead": 2},
        jobs={"visits": {"state": "running", "late": 12}, "other": {"state": "running"}},
        done={"sent twice": 3, "restocked": 2, "redelivered": 1},
    )
    found = {line.strip() for line in screen_lines(scene)}
    assert "12  late events: what they touch was corrected" in found
    assert "3  payments sent twice: counted once" in found
    assert "4  clicks of a wrong clock: dead letters" in found
    assert "2  records that are no payments: dead letters" in found
    assert "1  jobs of the queue `restock` delivered again" in found
    assert "2  products restocked" in found


def test_a_headline_has_numbers_and_names() -> None:
    assert headline({"revenue": 1234.5, "payments": 3}) == "1,234.50 revenue, 3 payments"
    assert headline({"best_spent": None}) == "0 best spent"


def test_a_plain_line_says_that_there_is_no_view_yet() -> None:
    scene = Scene(seconds=7, url="", records={"clicks": 5, "clicks.dead": 9}, rates={"clicks": 2.0})
    assert plain_line(scene) == "     7 s  5 records, 2/s  no view yet"


def test_totals_are_equal_only_when_number_and_sum_are() -> None:
    assert EQUAL.is_equal
    assert not LESS.is_equal
    assert not NOTHING.is_equal
    assert not Comparison("v", Total(3, 1_250), Total(3, 1_249)).is_equal
    assert Comparison("v", Total(3, 1_250), Total(3, None)).is_equal


def test_the_panel_of_chaos_says_what_is_behind_and_what_differs() -> None:
    twice = Comparison("customer_360", Total(3, 1_250), Total(4, 1_500))
    lines = comparison_lines([EQUAL, LESS, NOTHING, twice])
    assert lines[1].endswith("3 = 12.50  equal")
    assert lines[2].endswith("2 = 10.00  behind")
    assert lines[3].endswith("nothing yet  behind")
    assert lines[4].endswith("4 = 15.00  differs")


def test_a_round_says_who_died_and_whether_totals_are_equal() -> None:
    assert "broker killed; totals equal after 4 s" in str(Round(1, "broker", 4.2, [EQUAL]))
    assert "jobs killed; TOTALS DIFFER" in str(Round(2, "jobs", 300.0, [EQUAL, LESS]))


def test_the_last_that_a_process_said_holds() -> None:
    told = Told()
    for line in (
        {"up": "broker", "address": "127.0.0.1:9092", "pid": 1},
        {"up": "broker", "address": "127.0.0.1:9092", "pid": 2},
        {"up": "console", "url": "http://127.0.0.1:8080"},
        {"job": "visits", "state": "running"},
        {"rests": True, "done": {"orders": 3}},
    ):
        told.take(line)
    assert told.pids == {"broker": 2}
    assert told.addresses["console"] == "http://127.0.0.1:8080"
    assert told.jobs["visits"]["state"] == "running"
    assert (told.done, told.is_resting) == ({"orders": 3}, True)


def test_no_browser_is_opened_where_there_is_no_screen() -> None:
    assert not can_open_browser({})
    assert can_open_browser({"DISPLAY": ":0"})
