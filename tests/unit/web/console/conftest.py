from collections.abc import Iterator

import pytest

from millstream.web.console import watch
from millstream.web.guard import Admission, loopback_hosts
from tests.support.console_source import NOW_MS, MemorySource
from tests.support.web_application import MemoryApplication
from tests.support.web_client import WebClient

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the second look of a console that is opened: its clock stands still here."""
    monkeypatch.setattr(watch, "FIRST_RATE_SECONDS", 0.0)


@pytest.fixture
def source() -> MemorySource:
    return MemorySource()


@pytest.fixture
def console(application: MemoryApplication, source: MemorySource) -> Iterator[WebClient]:
    """On loopback, without a token: read-only."""
    admission = Admission(hosts=loopback_hosts(), now_ms=lambda: NOW_MS)
    with WebClient(application, admission=admission, console=source) as client:
        yield client


@pytest.fixture
def guarded(application: MemoryApplication, source: MemorySource) -> Iterator[WebClient]:
    admission = Admission(token=TOKEN, hosts=loopback_hosts(), now_ms=lambda: NOW_MS)
    with WebClient(application, admission=admission, console=source) as client:
        yield client
