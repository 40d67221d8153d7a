import pytest

from millstream.broker.share.share_reset import ResetTo, ShareReset, read_share_reset


@pytest.mark.parametrize(
    ("text", "age_ms"),
    [
        ("P1D", 86_400_000),
        ("PT2H3M4.5S", 7_384_500),
        ("P1DT1S", 86_401_000),
        ("pt0s", 0),
    ],
)
def test_a_duration_is_read_as_kafka_reads_it(text: str, age_ms: int) -> None:
    assert read_share_reset(f"by_duration:{text}") == ShareReset(to=ResetTo.TIME, age_ms=age_ms)


@pytest.mark.parametrize("text", ["P", "PT", "P1DT", "-P1D", "P-1D", "1D", "P1M", "PT1.S", ""])
def test_what_is_no_duration_is_not_read(text: str) -> None:
    assert read_share_reset(f"by_duration:{text}") is None


def test_the_ends_have_names() -> None:
    assert read_share_reset("earliest") == ShareReset(to=ResetTo.EARLIEST)
    assert read_share_reset("latest") == ShareReset(to=ResetTo.LATEST)
    assert read_share_reset("none") is None
