"""A handler reaches what clients name only through its Call, which asks whether they may."""

import re
from pathlib import Path

import pytest

import millstream.broker.apis
from millstream.broker.handlers import HANDLERS, Call, NoRefusal, handles
from millstream.broker.security.acls import Operation, ResourceType
from millstream.broker.security.named_in_requests import NeedNotUnderstood, check_understood
from millstream.broker.security.requirements import Access, Denial, Grant, Need, Requirement
from millstream.broker.wire import ApiKey, ErrorCode

FILES = sorted(Path(millstream.broker.apis.__path__[0]).glob("api_*.py"))
# What has a guarded way: `call.topics`, `call.groups(id)`, `call.transactions(id)`.
GUARDED = re.compile(r"\bnode\.(topics|groups|transactions)\b")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_handler_does_not_go_around_its_call(file: Path) -> None:
    around = GUARDED.findall(file.read_text(encoding="utf-8"))
    assert not around, "ask the Call: call.topics, call.groups(group_id), ..."


def test_the_table_of_handlers_has_no_way_around_the_check() -> None:
    """What is in the table is the guarded function, not the one of the file."""
    for handler in HANDLERS.values():
        assert handler.function.__qualname__.startswith("_guarded.")


def test_an_api_that_cannot_say_no_cannot_be_registered() -> None:
    before = HANDLERS[ApiKey.CREATE_ACLS]
    with pytest.raises(NoRefusal, match="CreateAcls"):

        @handles(ApiKey.CREATE_ACLS, versions=range(1))
        def forgetful(request: object, call: Call) -> None:
            return None

    assert HANDLERS[ApiKey.CREATE_ACLS] is before


def test_a_need_that_nobody_understands_cannot_be_registered() -> None:
    need = Need(
        any_of=(Grant(Operation.READ, ResourceType.GROUP),),
        denial=Denial.REFUSES_REQUEST,
        error=ErrorCode.GROUP_AUTHORIZATION_FAILED,
        when="on Sundays",
    )
    with pytest.raises(NeedNotUnderstood, match="on Sundays"):
        check_understood(Requirement("Pray", Access.BY_ACL, (need,)))
