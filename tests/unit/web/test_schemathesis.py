"""Schemathesis asks by the OpenAPI document, what it allows and what it does not: nothing is found.

400 is for what the document forbids. What it allows, a view may still not have: a column, a token.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.web.limits import Limits
from millstream.web.service import make_service
from tests.support.web_application import MemoryApplication, sales_view

CONFIG = {
    "generation": {"max-examples": 30, "deterministic": True},
    "phases": {"stateful": {"enabled": False}},  # there are no links between operations
    "checks": {
        "positive_data_acceptance": {"expected-statuses": ["2xx", 404, 409, 412, 422]},
        "negative_data_rejection": {"expected-statuses": [400, 404, 405, 406, 413, 415, 422]},
    },
}


def failures(document: Any) -> Iterator[str]:
    """What each scenario has found, with the request that finds it again."""
    from schemathesis import engine

    for event in engine.from_schema(document).execute():
        assert "Error" not in type(event).__name__, event
        recorder = getattr(event, "recorder", None)
        if recorder is None:
            continue
        for case, checks in recorder.checks.items():
            for one in checks:
                if one.failure_info is not None:
                    asked = recorder.cases[case].value.as_curl_command()
                    yield f"{one.name}: {one.failure_info.failure}\n{asked}"


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what schemathesis uses
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    import schemathesis

    application = MemoryApplication(sales_view(tmp_path))
    service = make_service(application, limits=Limits(timeout_ms_max=100, rows_max=100))
    config = schemathesis.Config.from_dict(CONFIG)
    document = schemathesis.openapi.from_asgi("/openapi.json", service.asgi, config=config)
    found = list(failures(document))
    application.close()
    assert not found, "\n\n".join(found)
    assert len(application.written) > 30
