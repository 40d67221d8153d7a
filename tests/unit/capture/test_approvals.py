"""What was approved is compared whole, kept for one log and user, and damaged by nobody unseen."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millstream.capture import approved_captures
from millstream.capture.approval import Approval, NotApproved, require_approved
from millstream.capture.approved_captures import ApprovedCaptures, DamagedApprovals, default_path
from millstream.capture.definition import CaptureDefinition

URL = "postgresql://mill:${SHOP_PASSWORD}@db/shop"


def definition(**changes: object) -> CaptureDefinition:
    told: dict[str, object] = {"name": "shop", "url": URL, "tables": ("orders",)}
    return CaptureDefinition(**(told | changes))  # type: ignore[arg-type]


APPROVED = Approval.of(definition())


@pytest.mark.parametrize("tables", [("orders",), ("orders", "notes")])
def test_tables_may_be_added_to_what_was_approved(tables: tuple[str, ...]) -> None:
    assert require_approved(definition(tables=tables), APPROVED) == APPROVED


@pytest.mark.parametrize(
    "changes",
    [
        {"url": URL + "?sslmode=disable"},
        {"url": "postgresql://mill:${AWS_SECRET}@db/shop"},
        {"url": "sqlite:////etc/shop.db"},
        {"mode": "triggers"},
        {"outbox": "orders"},
        {"topic_prefix": "other"},
    ],
)
def test_what_differs_is_refused_and_named(changes: dict[str, object]) -> None:
    with pytest.raises(NotApproved, match=f"{next(iter(changes))} was") as refused:
        require_approved(definition(**changes), APPROVED)
    assert "millstream capture approve shop" in str(refused.value)


def test_what_was_written_by_anybody_is_shown_without_passwords_and_escapes() -> None:
    with pytest.raises(NotApproved) as refused:
        require_approved(definition(url="postgresql://a:secret@db/\x1b[2Jshop"), None)
    assert "secret" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_what_is_kept_is_found_for_its_log_alone(tmp_path: Path) -> None:
    kept = ApprovedCaptures(tmp_path / "new" / "captures.json")
    assert kept.of("one", "shop") is None
    kept.keep("one", "shop", APPROVED)
    assert kept.of("one", "shop") == APPROVED
    assert kept.of("two", "shop") is None
    assert kept.of("one", "other") is None
    kept.forget("one", "shop")
    assert kept.of("one", "shop") is None


def test_the_file_is_its_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "captures.json"
    ApprovedCaptures(path).keep("one", "shop", APPROVED)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o620)
    with pytest.raises(DamagedApprovals, match="others may write it"):
        ApprovedCaptures(path).of("one", "shop")


def test_a_file_of_another_user_approves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, somebody = tmp_path / "captures.json", os.geteuid() + 1
    ApprovedCaptures(path).keep("one", "shop", APPROVED)
    monkeypatch.setattr(approved_captures, "ROOT", somebody)
    monkeypatch.setattr(os, "geteuid", lambda: somebody)
    with pytest.raises(DamagedApprovals, match="it belongs to another user"):
        ApprovedCaptures(path).of("one", "shop")


@pytest.mark.parametrize("text", ["", "[]", '{"one": 1}', '{"one": {"shop": {"url": "x"}}}'])
def test_a_damaged_file_approves_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "captures.json"
    path.write_text(text)
    with pytest.raises(DamagedApprovals, match="millstream capture approve"):
        ApprovedCaptures(path).of("one", "shop")


def test_an_entry_of_a_newer_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "captures.json"
    path.write_text(json.dumps({"one": {"shop": APPROVED.to_fields() | {"colour": "blue"}}}))
    assert ApprovedCaptures(path).of("one", "shop") == APPROVED


def test_it_is_among_the_users_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/srv/config")
    assert default_path() == Path("/srv/config/millstream/captures.json")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert default_path() == Path.home() / ".config/millstream/captures.json"


def test_commands_that_approve_at_one_time_lose_nothing(tmp_path: Path) -> None:
    path, names = tmp_path / "captures.json", [f"c{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as commands:
        list(commands.map(lambda name: ApprovedCaptures(path).keep("log", name, APPROVED), names))
        list(commands.map(lambda name: ApprovedCaptures(path).forget("log", name), names[::2]))
    kept = [name for name in names if ApprovedCaptures(path).of("log", name)]
    assert kept == names[1::2]
