"""The commands and reactions of an App, as they are hosted beside its jobs and captures.

A process that hosts takes part of the partitions of the command topic; those that only send need
not host anything. How commands are decided and answered is in `eventsourcing/`.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from millstream.aggregates import AppEvents
from millstream.base.declared import BadDeclaration
from millstream.base.errors import Rejected

if TYPE_CHECKING:
    from millstream.eventsourcing.command_host import CommandHost
    from millstream.eventsourcing.command_topic import SentCommand
    from millstream.eventsourcing.reaction import Reaction
    from millstream.eventsourcing.reaction_runner import ReactionRunner
    from millstream.eventsourcing.stored_event import StoredEvent

WAIT_SECONDS = 0.5


class NothingToHost(Rejected):
    def __init__(self, *, app: str) -> None:
        super().__init__(f"app {app} has no aggregates: declare one with app.aggregates(Account)")
        self.app = app


class Hosting:
    """Of one App. One run at a time."""

    def __init__(
        self, events: AppEvents, *, app: str, client_config: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._events, self._app, self._client_config = events, app, client_config
        self.reactions: dict[str, Reaction] = {}
        self._running: list[CommandHost | ReactionRunner] = []
        self._stopping = threading.Event()

    @property
    def is_needed(self) -> bool:
        return bool(self._events.declared)

    def declare(self, reaction: "Reaction") -> None:
        if reaction.name in self.reactions:
            raise BadDeclaration(f"two reactions with the name {reaction.name}: give one name=")
        self.reactions[reaction.name] = reaction

    @contextlib.contextmanager
    def running(self) -> "Iterator[CommandHost | None]":
        """Commands are decided and reactions run while this is open."""
        if not self.is_needed:
            yield None
            return
        self._stopping.clear()
        host = self._host()
        self._running = [host, *map(self._runner, self.reactions.values())]
        try:
            for one in self._running:
                one.start()
            yield host
        finally:
            ended = self._end()
        for one in ended:
            one.wait()  # raises what ended it before

    def wait(self) -> None:
        """Until `stop`; raises what ended one of them before."""
        while not self._stopping.wait(WAIT_SECONDS):
            for one in self._running:
                one.wait(0)

    def stop(self) -> None:
        self._stopping.set()

    def require(self) -> None:
        if not self.is_needed:
            raise NothingToHost(app=self._app)

    def _end(self) -> "list[CommandHost | ReactionRunner]":
        running, self._running = self._running, []
        for one in reversed(running):
            one.stop()
        return running

    def _host(self) -> "CommandHost":
        from millstream.eventsourcing.command_host import CommandHost

        return CommandHost(
            dict(self._client_config()),
            self._events.names,
            self._events.store(),
            self._events.declared,
            ask_again=self._ask_again,
        )

    def _runner(self, reaction: "Reaction") -> "ReactionRunner":
        from millstream.eventsourcing.reaction_runner import ReactionRunner, ReactionTopics

        store, names = self._events.store(), self._events.names
        topics = ReactionTopics(self._app, store.topic, names.commands, store.partitions)
        return ReactionRunner(dict(self._client_config()), topics, reaction, self._decoded)

    def _ask_again(self, sent: "SentCommand") -> "SentCommand | None":
        from millstream.eventsourcing.reaction import asked_again, cause_of

        origin = sent.origin
        reaction = None if origin is None else self.reactions.get(origin.reaction)
        if origin is None or reaction is None:
            return None
        store, version = self._events.store(), origin.version
        for stored in store.read(origin.stream, after=version - 1, upto=version):
            return asked_again(reaction, self._decoded(stored), cause_of(stored), sent)
        return None

    def _decoded(self, stored: "StoredEvent") -> object:
        return self._events.of_stream(stored.stream)[0].types.decode(stored)
