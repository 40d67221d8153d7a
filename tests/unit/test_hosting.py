"""What an application says of its commands and reactions, before anything runs."""

from collections.abc import Iterator

import pytest

import millstream as ms
from millstream.base.declared import BadDeclaration
from millstream.hosting import NothingToHost


@ms.event
class Rung:
    loud: bool


class Bell(ms.Aggregate, events=[Rung]):
    def ring(self, loud: bool) -> Iterator[object]:
        yield Rung(loud)


@pytest.fixture
def app() -> ms.App:
    return ms.App("tower", brokers="127.0.0.1:1")


def test_an_app_without_aggregates_has_nothing_to_host(app: ms.App) -> None:
    assert not app.hosted.is_needed
    with pytest.raises(NothingToHost, match="declare one"), app.hosting():
        pass


def test_the_way_of_commands_is_said_once(app: ms.App) -> None:
    bells = app.aggregates(Bell, commands="topic")
    assert app.aggregates(Bell) is bells
    assert bells.sends_all
    with pytest.raises(BadDeclaration, match="another way"):
        app.aggregates(Bell, commands="direct")


def test_two_reactions_have_two_names(app: ms.App) -> None:
    @app.reaction(Rung)
    def answer(_event: Rung) -> None:
        return None

    with pytest.raises(BadDeclaration, match="answer"):
        app.reaction(Rung)(answer)
    app.reaction(Rung, name="again")(answer)
    assert list(app.hosted.reactions) == ["answer", "again"]


def test_a_command_can_be_made_without_being_sent(app: ms.App) -> None:
    asked = app.aggregates(Bell).asking["big"].ring(loud=True)
    assert (asked.id, asked.stream, asked.command) == ("", "Bell:big", "ring")
    assert bytes(asked.arguments["loud"]) == b"true"
