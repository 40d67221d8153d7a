import sys

import pytest

from millstream.base.tracing import is_tracing
from millstream.telemetry import TelemetryNotInstalled, set_up_traces


def test_traces_without_the_extra_are_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILLSTREAM_TELEMETRY_TRACES", "true")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TelemetryNotInstalled, match=r"pip install 'millstream\[otel\]'"):
        set_up_traces("shop")
    assert not is_tracing()
