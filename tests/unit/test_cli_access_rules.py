import pytest

from millstream.commands.access_rules import parse_principal, parse_user_principal, unknown_users
from millstream.commands.options import BadOption


@pytest.mark.parametrize("text", ["ada", "User:ada"])
def test_a_name_alone_is_a_user(text: str) -> None:
    assert parse_principal(text) == parse_user_principal(text) == "User:ada"


@pytest.mark.parametrize("text", ["User:*", "User:CN=ada,O=shop", "User:urn:ada"])
def test_everybody_and_the_names_of_certificates_are_users(text: str) -> None:
    assert parse_user_principal(text) == text


@pytest.mark.parametrize("text", ["user:ada", "USER:ada", "Group:ada"])
def test_another_kind_can_be_found_but_not_be_given_a_rule(text: str) -> None:
    assert parse_principal(text) == text
    with pytest.raises(BadOption, match="User:ada"):
        parse_user_principal(text)


@pytest.mark.parametrize("text", ["", ":ada", "User:"])
def test_half_a_principal_is_none(text: str) -> None:
    with pytest.raises(BadOption):
        parse_principal(text)


def test_users_that_nobody_can_log_in_as_are_told_apart() -> None:
    principals = ["User:ada", "User:bbo", "User:*", "User:ANONYMOUS", "User:CN=ada", "User:bbo"]
    assert unknown_users(principals, {"ada", "bob"}) == ["bbo"]
