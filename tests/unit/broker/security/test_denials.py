"""Lines for the audit: enough to know, not enough to fill the disk."""

import pytest

from millstream.broker.security import denials
from millstream.broker.security.acls import DENIED, Caller, Operation, Resource, ResourceType
from millstream.broker.security.denials import LINE_INTERVAL_MS, Denials

NOW_MS = 1_700_000_000_000


def note(
    seen: Denials, *, who: str = "User:eve", topic: str = "orders", now_ms: int = NOW_MS
) -> str | None:
    resource = Resource(ResourceType.TOPIC, topic)
    caller = Caller(who, "10.0.0.9")
    return seen.note(caller, Operation.READ, resource, DENIED, api="Fetch", now_ms=now_ms)


def test_the_first_denial_has_a_line_with_all_its_facts() -> None:
    line = note(Denials())
    assert line == (
        "denied: 'User:eve' from 10.0.0.9 READ on TOPIC 'orders' by Fetch: a DENY matches"
    )


def test_the_next_ones_are_counted_and_told_a_minute_later() -> None:
    seen = Denials()
    note(seen)
    assert note(seen) is None
    assert note(seen, now_ms=NOW_MS + LINE_INTERVAL_MS - 1) is None
    line = note(seen, now_ms=NOW_MS + LINE_INTERVAL_MS)
    assert line is not None
    assert line.endswith("; 2 more like it since")
    assert seen.count == 4


def test_other_principals_and_other_resources_have_lines_of_their_own() -> None:
    seen = Denials()
    assert note(seen)
    assert note(seen, who="User:mallory")
    assert note(seen, topic="payments")


def test_a_name_cannot_forge_a_line() -> None:
    line = note(Denials(), topic="x'\ndenied: 'User:ada'\x1b[31m")
    assert line is not None
    assert "\n" not in line
    assert "\x1b" not in line


def test_a_flood_of_names_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials, "WATCHED_MAX", 10)
    seen = Denials()
    for number in range(100):
        note(seen, topic=f"topic{number}")
    assert seen.count == 100
    assert note(seen, topic="topic99") is None  # the last ones are known
    assert note(seen, topic="topic0") is not None  # the first ones were forgotten
