"""The state of an aggregate, for a page."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.commands.console import shown_aggregates


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ({"seen": {1: "x"}}, {"seen": {"1": "x"}}),
        ({"seen": {(5, "x"): 1}}, {"seen": "{(5, 'x'): 1}"}),
        ({"due": Decimal("1.50")}, {"due": "1.50"}),
        ({"kind": SimpleNamespace}, {"kind": str(SimpleNamespace)}),
    ],
)
def test_what_json_has_no_words_for_is_its_own_text(
    monkeypatch: pytest.MonkeyPatch, kept: dict[str, Any], shown: dict[str, Any]
) -> None:
    monkeypatch.setattr("millstream.eventsourcing.aggregate.state_in", lambda state: state)
    assert shown_aggregates._plain(kept) == shown
