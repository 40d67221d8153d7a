"""A thread of its own: whatever ends it is told."""

import pytest

from millstream.eventsourcing.own_thread import OwnThread


class Failing(OwnThread):
    def start(self) -> None:
        self._start("one that fails")

    def _run(self) -> None:
        raise RecursionError("a bug")


def test_whatever_ends_it_is_raised_by_who_waits(caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing()
    failing.start()
    with pytest.raises(RecursionError, match="a bug"):
        failing.wait(30.0)
    assert "one that fails has ended" in caplog.text
