"""How long a client must keep still that has done too much."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.security.quotas import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    Quotas,
)
from millstream.broker.security.throttle import (
    IDLE_MS,
    REQUEST_THROTTLE_MS_MAX,
    THROTTLE_MS_MAX,
    WINDOW_MS,
    WINDOWS,
    Mute,
    Rate,
    Throttle,
    bytes_without_throttle,
    throttle_ms,
)

NOW_MS = 1_700_000_000_000


# --- the rate ---------------------------------------------------------------------------------


def test_a_burst_is_spread_over_the_windows_that_were_quiet() -> None:
    rate = Rate()
    rate.record(1_000, now_ms=NOW_MS)
    assert rate.measure(now_ms=NOW_MS) == (100.0, 10_000)
    measured, span_ms = rate.measure(now_ms=NOW_MS + 500)
    assert (measured, span_ms) == (1_000 / 10.5, 10_500)


def test_what_is_older_than_all_windows_does_not_count() -> None:
    rate = Rate()
    rate.record(1_000, now_ms=NOW_MS)
    end_ms = NOW_MS + WINDOWS * WINDOW_MS
    assert rate.measure(now_ms=end_ms - 1)[0] > 0
    assert rate.measure(now_ms=end_ms) == (0.0, 10_000)


def test_an_even_flow_has_its_own_rate() -> None:
    rate = Rate()
    for step in range(200):
        rate.record(50, now_ms=NOW_MS + 100 * step)
    measured, _ = rate.measure(now_ms=NOW_MS + 20_000)
    assert measured == pytest.approx(500, rel=0.01)


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate()
    rate.record(700, now_ms=NOW_MS)
    rate.record(-700, now_ms=NOW_MS + 5)
    assert rate.measure(now_ms=NOW_MS + 10)[0] == 0


# --- the delay --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "delay_ms"), [(50, 0), (100, 0), (101, 100), (200, 10_000), (1e30, THROTTLE_MS_MAX)]
)
def test_the_delay_is_what_brings_the_average_to_the_limit(rate: float, delay_ms: int) -> None:
    assert throttle_ms(rate, 100, 10_000) == delay_ms


def charge(throttle: Throttle, amount: float, *, now_ms: int = NOW_MS, client: str = "app") -> int:
    return throttle.charge(
        PRODUCER_BYTE_RATE, user="ada", client_id=client, amount=amount, now_ms=now_ms
    )


def throttle_of(entity: Entity, limit: float = 1_000) -> Throttle:
    return Throttle(Quotas({entity: {PRODUCER_BYTE_RATE: limit}}))


def test_within_the_quota_there_is_no_delay() -> None:
    throttle = throttle_of(Entity("ada"))
    assert charge(throttle, 10_000) == 0
    assert charge(throttle, 1) == 1


def test_without_a_quota_nothing_is_measured() -> None:
    throttle = throttle_of(Entity("bob"))
    assert charge(throttle, 1e12) == 0
    assert len(throttle) == 0


def test_clients_of_a_user_share_the_quota_of_the_user() -> None:
    throttle = throttle_of(Entity("ada"))
    assert charge(throttle, 10_000, client="one") == 0
    assert charge(throttle, 10_000, client="two") == 10_000


def test_a_default_is_for_each_client_alone() -> None:
    throttle = throttle_of(Entity(None, DEFAULT))
    assert charge(throttle, 10_000, client="one") == 0
    assert charge(throttle, 10_000, client="two") == 0
    assert charge(throttle, 10_000, client="one") == 10_000


def test_producing_and_fetching_are_measured_apart() -> None:
    limits = {PRODUCER_BYTE_RATE: 1_000.0, CONSUMER_BYTE_RATE: 1_000.0}
    throttle = Throttle(Quotas({Entity("ada"): limits}))
    charge(throttle, 10_000)
    fetched = throttle.charge(
        CONSUMER_BYTE_RATE, user="ada", client_id="app", amount=10_000, now_ms=NOW_MS
    )
    assert fetched == 0


def test_a_fetch_that_is_not_sent_does_not_count() -> None:
    throttle = Throttle(Quotas({Entity("ada"): {CONSUMER_BYTE_RATE: 1_000.0}}))
    who = {"user": "ada", "client_id": "app"}
    most = bytes_without_throttle(1_000)
    assert throttle.charge(CONSUMER_BYTE_RATE, **who, amount=most, now_ms=NOW_MS) == 0
    throttle.take_back(CONSUMER_BYTE_RATE, **who, amount=most, now_ms=NOW_MS)
    assert throttle.charge(CONSUMER_BYTE_RATE, **who, amount=most, now_ms=NOW_MS) == 0
    assert throttle.charge(CONSUMER_BYTE_RATE, **who, amount=1, now_ms=NOW_MS) > 0
    throttle.take_back(CONSUMER_BYTE_RATE, user="x", client_id="", amount=1, now_ms=NOW_MS)


def test_work_is_measured_in_percent_of_a_second_and_pauses_are_short() -> None:
    throttle = Throttle(Quotas({Entity("ada"): {REQUEST_PERCENTAGE: 10.0}}))

    def work(work_ms: float) -> int:
        return throttle.charge(
            REQUEST_PERCENTAGE, user="ada", client_id="app", amount=work_ms, now_ms=NOW_MS
        )

    assert work(1_000) == 0  # 10 % of ten seconds
    assert work(10) == 100
    assert work(60_000) == REQUEST_THROTTLE_MS_MAX


def test_clients_that_have_gone_are_forgotten() -> None:
    throttle = throttle_of(Entity(None, DEFAULT))
    charge(throttle, 1, client="gone")
    charge(throttle, 1, client="here", now_ms=NOW_MS + 1)
    throttle.forget_idle(now_ms=NOW_MS + IDLE_MS)
    assert len(throttle) == 1


def average_when_obeyed(sizes: list[int], *, limit: float, pause_ms: int) -> float:
    """Bytes per second of a client that is muted as told, but for its first burst."""
    throttle, mute, now_ms = throttle_of(Entity("ada"), limit), Mute(), NOW_MS
    for size in sizes:
        now_ms += pause_ms
        mute.extend(charge(throttle, size, now_ms=now_ms), now_ms=now_ms)
        now_ms += mute.remaining_ms(now_ms=now_ms)
    return sum(sizes) / ((now_ms - NOW_MS) / 1_000 + WINDOWS)


@given(sizes=st.lists(st.integers(1, 400), min_size=100, max_size=200), pause_ms=st.integers(0, 20))
@settings(max_examples=30, deadline=None)
def test_a_client_of_small_requests_stays_within_its_quota(sizes: list[int], pause_ms: int) -> None:
    assert average_when_obeyed(sizes, limit=1_000, pause_ms=pause_ms) <= 1_000 * 1.1


@given(sizes=st.lists(st.integers(1, 30_000), min_size=50), pause_ms=st.integers(0, 400))
@settings(max_examples=30, deadline=None)
def test_requests_as_large_as_all_windows_exceed_it_by_half_at_most(
    sizes: list[int], pause_ms: int
) -> None:
    """As in Kafka: what is older than the windows is forgotten, however large it was."""
    assert average_when_obeyed(sizes, limit=1_000, pause_ms=pause_ms) <= 1_000 * 1.5


# --- muting -----------------------------------------------------------------------------------


def test_delays_run_at_the_same_time() -> None:
    mute = Mute()
    mute.extend(500, now_ms=NOW_MS)
    mute.extend(200, now_ms=NOW_MS + 100)
    assert mute.remaining_ms(now_ms=NOW_MS + 100) == 400
    assert mute.remaining_ms(now_ms=NOW_MS + 501) == 0
