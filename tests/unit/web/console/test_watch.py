"""Figures over time: rates, gaps, what is looked at, and what cannot be."""

import threading

import pytest

from millstream.base.errors import Retryable
from millstream.web.console import watch as watching
from millstream.web.console.series import BATCHES_MS, GAP_MS, SAMPLES_MAX, Series, summed
from millstream.web.console.watch import OPENED_TOPICS_MAX, SLOW_EVERY, Watch, lag_of
from tests.support.console_source import NOW_MS, MemorySource
from tests.support.waiting import eventually
from tests.support.web_application import MemoryApplication


def series(*samples: tuple[int, float]) -> Series:
    found = Series()
    for at_ms, value in samples:
        found.add(value, at_ms=at_ms)
    return found


def test_a_rate_needs_two_samples() -> None:
    assert series().rate() is None
    assert series((0, 7)).rate() is None
    assert series((0, 7), (2_000, 27)).rate() == 10


def test_a_rate_is_of_the_last_seconds() -> None:
    found = series((0, 0), (10_000, 1_000), (12_000, 1_000), (14_000, 1_000), (19_000, 1_000))
    assert found.rate() == 0


def test_a_job_between_two_batches_does_not_stand_still() -> None:
    found = series((0, 0), (10_000, 120), (12_000, 120), (14_000, 120), (20_000, 120))
    assert found.rate() == 0
    assert found.rate(BATCHES_MS) == 6


def test_a_counter_that_starts_over_has_a_gap_and_no_negative_rate() -> None:
    found = series((0, 100), (2_000, 120), (4_000, 3), (6_000, 23))
    assert found.rates() == [10, None, 10]
    assert series((0, 100), (2_000, 3)).rate() is None


def test_while_nobody_looks_nothing_is_known() -> None:
    found = series((0, 1), (GAP_MS + 1, 2))
    assert found.gauge() == [1, None, 2]
    assert found.rate() is None


def test_a_clock_that_was_put_back_adds_nothing() -> None:
    assert list(series((5_000, 1), (4_000, 9)).values) == [1]


def test_so_many_samples_are_kept() -> None:
    found = series(*((number, number) for number in range(SAMPLES_MAX + 5)))
    assert len(found.values) == SAMPLES_MAX
    assert found.last == SAMPLES_MAX + 4


def test_a_sum_of_nothing_known_is_not_known() -> None:
    assert summed([None, None]) is None
    assert summed([None, 2.0, 3.0]) == 5


def test_the_lag_of_a_view_is_what_its_topics_have_and_it_has_not() -> None:
    assert lag_of({"a": {0: 3, 1: 4}, "b": {0: 1}}, {"a": 10, "b": 1}) == 3
    assert lag_of({"a": {0: 30}}, {"a": 10}) == 0
    assert lag_of({}, {"a": 1}) is None
    assert lag_of({"gone": {0: 1}}, {"a": 1}) is None


# --- the watch


@pytest.fixture
def watch(source: MemorySource, application: MemoryApplication) -> Watch:
    return Watch(source, application, lambda: NOW_MS)


class Unreached(Retryable):
    pass


def test_a_sample_knows_of_everything(watch: Watch, source: MemorySource) -> None:
    watch.sample()
    assert watch.series("topic", "clicks").last == 100
    assert watch.series("job lag", "sales").last == 3
    assert watch.series("capture", "shopdb").last == 7
    assert watch.series("group", "group-01").last == 12
    assert watch.views["sales"].rows == 10
    assert watch.trouble == ""


def test_who_tells_nothing_any_more_has_no_figures(watch: Watch, source: MemorySource) -> None:
    source.declared.is_stale = True
    watch.sample()
    assert watch.series("job", "sales").last is None
    assert watch.series("capture", "shopdb").last is None


def test_what_cannot_be_learnt_is_told_until_it_can(watch: Watch, source: MemorySource) -> None:
    source.topics.trouble = Unreached("nobody answers")
    watch.sample()
    assert watch.trouble == "nobody answers"
    assert watch.series("job lag", "sales").last == 3
    source.topics.trouble = None
    watch.sample()
    assert watch.trouble == ""


def test_what_is_asked_more_seldom_is_told_until_it_succeeds(
    watch: Watch, source: MemorySource
) -> None:
    source.groups.trouble = Unreached("no group answers")
    said = []
    for _ in range(2 * SLOW_EVERY):
        watch.sample()
        said.append(watch.trouble)
    assert set(said) == {"no group answers"}
    source.groups.trouble = None
    watch.sample()
    assert watch.trouble == ""


def test_of_several_troubles_the_same_one_is_told(watch: Watch, source: MemorySource) -> None:
    source.groups.trouble = Unreached("no group answers")
    watch.sample()
    source.topics.trouble = Unreached("no topic answers")
    said = []
    for _ in range(SLOW_EVERY):
        watch.sample()
        said.append(watch.trouble)
    assert set(said) == {"no group answers"}


def test_an_error_of_our_own_does_not_end_the_watch(
    watch: Watch, source: MemorySource, caplog: pytest.LogCaptureFixture
) -> None:
    source.topics.counts = None  # type: ignore[assignment]
    watch.sample()
    assert "stderr" in watch.trouble
    assert "TypeError" in caplog.text


def test_a_topic_whose_page_was_opened_is_sampled(watch: Watch, source: MemorySource) -> None:
    watch.sample()
    assert watch.series("topic", "notes").last is None
    try:
        for number in range(OPENED_TOPICS_MAX):
            watch.look(topic=f"other-{number}")
        watch.look(topic="notes")
        eventually(lambda: watch.series("topic", "notes").last == 100, what="a sample", within_s=60)
    finally:
        watch.stop()
    assert not any(thread.name == "console" for thread in threading.enumerate())


def test_of_topics_that_were_opened_the_last_are_sampled(
    watch: Watch, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "_run", lambda _self: None)  # we sample ourselves
    watch.look(topic="notes")
    for number in range(OPENED_TOPICS_MAX):
        watch.look(topic=f"other-{number}")
    watch.sample()
    assert watch.series("topic", "notes").last is None
    assert watch.series("topic", "clicks").last == 100


def test_figures_of_more_than_are_kept_go_the_oldest_first(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SERIES_MAX", 3)
    watch.sample()
    assert len(watch._series) == 3


def test_a_watch_that_was_stopped_stays_so(watch: Watch) -> None:
    watch.stop()
    watch.look()
    assert not any(thread.name == "console" for thread in threading.enumerate())


def test_a_trend_takes_half_a_minute_and_is_of_the_last_one() -> None:
    assert series().trend() is None
    assert series((0, 1), (29_000, 9)).trend() is None
    assert series((0, 1), (30_000, 9)).trend() == "growing"
    assert series((0, 9), (30_000, 1)).trend() == "shrinking"
    assert series((0, 100), (30_000, 104)).trend() == "steady"
    assert series((0, 0), (30_000, 0)).trend() == "steady"
    assert series((0, 900), (60_000, 1), (120_000, 9)).trend() == "growing"


def test_what_was_none_a_moment_ago_is_no_backlog() -> None:
    assert not series().was_none()
    assert series((0, 0), (30_000, 9)).was_none()
    assert not series((0, 0), (30_001, 9)).was_none()


def test_the_first_page_waits_for_figures_and_for_no_longer_than_a_moment(
    watch: Watch, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.look()
    try:
        watch.await_figures()
        assert watch.views["sales"].rows == 10
    finally:
        watch.stop()
    monkeypatch.setattr(watching, "FIRST_SECONDS_MAX", 0.01)
    silent = Watch(source, watch._application, lambda: NOW_MS)
    silent.await_figures()  # nobody has opened it: it returns all the same
