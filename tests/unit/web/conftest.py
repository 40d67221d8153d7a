from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.web_application import MemoryApplication, sales_view
from tests.support.web_client import WebClient


@pytest.fixture
def application(tmp_path: Path) -> Iterator[MemoryApplication]:
    """Topics clicks, prices and notes; a view sales by shop and day."""
    application = MemoryApplication(sales_view(tmp_path))
    yield application
    application.close()


@pytest.fixture
def client(application: MemoryApplication) -> Iterator[WebClient]:
    with WebClient(application) as client:
        yield client
