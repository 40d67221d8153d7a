"""What the broker says on stderr, by its log_level."""

import re
from pathlib import Path

import pytest

from tests.support.broker_thread import BrokerThread
from tests.support.raw_client import RawClient

# peer: API and version by the client's name: time, size of the answer
REQUEST_LINE = re.compile(r"127\.0\.0\.1:\d+: METADATA \d+ by 'raw': \d+\.\d ms, [1-9]\d* bytes")


def lines_of_a_request(path: Path, caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    caplog.set_level(level)
    with BrokerThread(path) as broker, RawClient(broker.bootstrap) as client:
        client.metadata("anything")
    return [line for line in caplog.messages if REQUEST_LINE.fullmatch(line)]


def test_debug_says_each_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert len(lines_of_a_request(tmp_path, caplog, "DEBUG")) == 1


def test_info_says_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert lines_of_a_request(tmp_path, caplog, "INFO") == []
