import logging

import pytest

from millstream.base.rare_lines import RARE_SECONDS, RareLines


def test_a_warning_is_written_once_a_minute_and_says_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    logger = logging.getLogger("millstream.test_rare_lines")
    logger.addFilter(RareLines(lambda: now))
    for number in range(3):
        logger.warning("bad request %d", number)
    logger.warning("another kind")
    logger.error("errors are never left out")
    logger.error("errors are never left out")
    now = RARE_SECONDS
    logger.warning("bad request %d", 3)
    logger.warning("bad request %d", 4)
    assert [one.getMessage() for one in caplog.records] == [
        "bad request 0",
        "another kind",
        "errors are never left out",
        "errors are never left out",
        "bad request 3 (2 more like this since the last such line)",
    ]
