from millstream.broker.metrics.histogram import BYTES_BOUNDS, SECONDS_BOUNDS, Histogram

INFINITY = float("inf")


def test_a_value_counts_for_every_bound_that_it_is_not_above() -> None:
    histogram = Histogram([1.0, 2.0, 4.0])
    for value in (0.5, 2.0, 2.1, 9.0):
        histogram.observe(value)
    assert list(histogram.cumulative()) == [(1.0, 1), (2.0, 2), (4.0, 3), (INFINITY, 4)]
    assert histogram.count == 4
    assert histogram.sum == 13.6


def test_without_values_every_count_is_zero() -> None:
    assert list(Histogram([1.0]).cumulative()) == [(1.0, 0), (INFINITY, 0)]


def test_bounds_rise() -> None:
    for bounds in (SECONDS_BOUNDS, BYTES_BOUNDS):
        assert list(bounds) == sorted(set(bounds))
