"""Signals while Spark starts or ends: they are heard afterwards."""

import signal

import pytest

from millstream.processing.jobs.app_session import interrupts_later


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_when_the_block_is_done(number: signal.Signals) -> None:
    heard: list[str] = []
    before = signal.signal(number, lambda *_: heard.append("signal"))
    try:
        with interrupts_later():
            signal.raise_signal(number)
            signal.raise_signal(number)
            heard.append("done")
        assert heard == ["done", "signal"]
    finally:
        signal.signal(number, before)


def test_it_is_heard_once_the_block_has_failed() -> None:
    with pytest.raises(KeyboardInterrupt):
        _fail_interrupted()


def _fail_interrupted() -> None:
    with interrupts_later():
        signal.raise_signal(signal.SIGINT)
        raise OSError("Spark did not start")
