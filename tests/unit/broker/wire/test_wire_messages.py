"""The tables of APIs and error codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from millstream.broker.wire import APIS, REQUESTS, RESPONSES, ApiKey, ErrorCode


@pytest.mark.parametrize("api_key", list(ApiKey))
def test_the_table_agrees_with_the_messages(api_key: ApiKey) -> None:
    api = APIS[api_key]
    for messages in (REQUESTS, RESPONSES):
        schema = messages[api_key].__schema__
        assert schema.api_key == api_key
        assert schema.versions == range(api.version_first, api.version_last + 1)
        assert all((one in schema.flexible) == api.is_flexible(one) for one in schema.versions)


def test_every_key_has_a_request_and_a_response() -> None:
    assert list(REQUESTS) == list(RESPONSES) == list(APIS) == [int(key) for key in ApiKey]
    assert len(REQUESTS) == len(ApiKey)


def test_an_unknown_key_has_no_request() -> None:
    assert 999 not in REQUESTS
    with pytest.raises(KeyError):
        REQUESTS[999]


def test_messages_are_imported_only_when_asked_for() -> None:
    """The start of the broker is counted in tens of milliseconds."""
    script = (
        "import sys, millstream.broker.wire as wire;"
        "wire.REQUESTS[wire.ApiKey.FETCH];"
        "prefix = 'millstream.broker.wire.messages.';"
        "print([one for one in sys.modules if one.startswith(prefix)])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['millstream.broker.wire.messages.fetch']"


def test_error_codes_know_whether_to_try_again() -> None:
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode(6).is_retriable
    assert not ErrorCode.NONE.is_retriable
    assert not ErrorCode.UNSUPPORTED_VERSION.is_retriable
