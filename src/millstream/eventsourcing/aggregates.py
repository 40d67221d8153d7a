"""All aggregates of one kind, over a store: commands are decided in the writer of their stream.

    bank = Aggregates(Account, store)
    bank["alice"].deposit(100, id="req-1")      # a receipt; a retry with the same id is a no-op
    bank["alice"].state().balance
    await bank.aio["alice"].deposit(5)

Joins the pure parts (commands, folds, replay, snapshots) to the store; decides nothing itself.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from millstream.base.errors import Rejected
from millstream.eventsourcing.acting import WORDS, checked, said
from millstream.eventsourcing.aggregate import Aggregate, require_aggregate
from millstream.eventsourcing.command_arguments import call_from, encode_arguments
from millstream.eventsourcing.command_calls import Call, call_of
from millstream.eventsourcing.command_sender import CommandSender, Pending
from millstream.eventsourcing.command_topic import SentCommand
from millstream.eventsourcing.decision_queue import Along
from millstream.eventsourcing.event_ids import new_event_id
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.event_types import EventTypes, Sealing
from millstream.eventsourcing.handles import Asking, AsyncAggregates, Handle
from millstream.eventsourcing.history import Happening, happenings
from millstream.eventsourcing.kept_states import STATES_MAX
from millstream.eventsourcing.placement import stream_key
from millstream.eventsourcing.sealed_commands import open_arguments, seal_arguments
from millstream.eventsourcing.snapshots import SnapshotTopic
from millstream.eventsourcing.staging import require_version
from millstream.eventsourcing.states import Deciding, Shunning, States
from millstream.eventsourcing.stored_event import PRINT_LENGTH, Command, Receipt
from millstream.eventsourcing.upcasting import require_steps

AggregateT = TypeVar("AggregateT", bound=Aggregate)

SEPARATOR: Final = ":"
SNAPSHOT_EVERY = 200
NAMES_KNOWN_MAX: Final = 10_000


class BadAggregateId(Rejected):
    def __init__(self, *, aggregate: str, found: object) -> None:
        super().__init__(f"{aggregate}[{found!r}]: an id is a text that is not empty")
        self.aggregate, self.found = aggregate, found


class BadCommandId(Rejected):
    def __init__(self, *, aggregate: str, found: object) -> None:
        super().__init__(f"{aggregate}: id={found!r}: the id of a command is a text")
        self.aggregate, self.found = aggregate, found


class NoCommandTopic(Rejected):
    def __init__(self, *, aggregate: str) -> None:
        super().__init__(
            f"{aggregate} has no command topic here, and wait=False sends commands over one: get "
            "it by app.aggregates(...)"
        )
        self.aggregate = aggregate


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a call says beside the command's own arguments."""

    id: str | None = None
    expect: int | None = None
    meta: Mapping[str, str]

    def __post_init__(self) -> None:
        require_version(self.expect)


class Aggregates(Generic[AggregateT]):
    """Thread-safe. `name` is the first part of their streams' names."""

    def __init__(
        self,
        kind: type[AggregateT],
        store: EventStore,
        *,
        snapshots: SnapshotTopic | None = None,
        snapshot_every: int | None = None,
        states_max: int = STATES_MAX,
        sealing: Sealing | None = None,
        sender: CommandSender | None = None,
        sends_all: bool = False,
    ) -> None:
        """`sender`: by which commands go over their topic, those with `wait=False`, or all."""
        self.kind = kind
        self._sender, self.sends_all = sender, sends_all
        self.plan = require_aggregate(kind).__plan__
        require_steps(self.plan.kinds)
        self.name, self.store = self.plan.name, store
        self.types = EventTypes(self.plan.kinds, sealing=sealing)
        self._states = States(
            kind,
            self.types,
            store,
            snapshots=snapshots,
            snapshot_every=snapshot_every or SNAPSHOT_EVERY,
            states_max=states_max,
        )

    def __repr__(self) -> str:
        return f"<Aggregates of {self.name} in {self.store.topic}>"

    def __getitem__(self, id: str) -> "Handle[AggregateT]":
        return Handle(self, id, self.stream(id))

    @property
    def aio(self) -> "AsyncAggregates[AggregateT]":
        """The same, for asyncio."""
        return AsyncAggregates(self)

    def __iter__(self) -> Iterator[str]:
        """The ids of all that have a history."""
        prefix = self.name + SEPARATOR
        return (stream.removeprefix(prefix) for stream, _ in self.store.streams(prefix))

    def __contains__(self, id: str) -> bool:
        return self.store.version(self.stream(id)) > 0

    def stream(self, id: str) -> str:
        if not isinstance(id, str) or not id:
            raise BadAggregateId(aggregate=self.name, found=id)
        return stream_name(self.name, id)

    def forget_states(self) -> None:
        """Drop what is kept in memory; it is made anew of events."""
        self._states.forget()

    # --- commands -----------------------------------------------------------------------------

    def call(self, command: str, *arguments: Any, **named: Any) -> tuple[Call, Terms]:
        """A command as it was called, taken apart; refused if it does not fit."""
        id, expect = named.pop("id", None), named.pop("expect", None)
        meta = said({word: named.pop(word, None) for word in WORDS})
        call = call_of(self.plan, command, arguments, named)
        if id is not None and (not isinstance(id, str) or not id):
            raise BadCommandId(aggregate=self.name, found=id)
        return call, Terms(id=id, expect=expect, meta={"command": command, **meta})

    def submit(self, id: str, call: Call, terms: Terms, **more: Any) -> "Future[Receipt]":
        """Decided by the writer, in the order of calls. `more` is handed to the store."""
        decision = self._states.deciding(id, self.stream(id), call)
        future = self._asked(decision, terms, call, **more)
        future.add_done_callback(decision.settle)
        return future

    def run(self, id: str, call: Call, terms: Terms) -> Receipt:
        decision = self._states.deciding(id, self.stream(id), call)
        future = self._asked(decision, terms, call)
        receipt = future.result()
        decision.settle(future)  # before the next look at the state
        return receipt

    # --- over the topic -----------------------------------------------------------------------

    @property
    def asking(self) -> "Asking":
        """Commands that are made and not sent, for reactions to yield."""
        return Asking(self)

    def send(self, id: str, call: Call, terms: Terms) -> Pending:
        """To the host of its partition. Has an id in any case, under which it can be repeated."""
        if self._sender is None:
            raise NoCommandTopic(aggregate=self.name)
        return self._sender.send(self.to_send(id, call, terms))

    def to_send(self, id: str, call: Call, terms: Terms) -> SentCommand:
        stream, arguments = self.stream(id), encode_arguments(call)
        return SentCommand(
            id=terms.id or new_event_id(),
            aggregate=self.name,
            stream=stream,
            command=call.command,
            arguments=seal_arguments(arguments, self.types, stream=stream, command=call.command),
            expect=terms.expect,
            meta={word: said for word, said in terms.meta.items() if word != "command"},
        )

    def submit_sent(self, sent: SentCommand, along: Along) -> "Future[Receipt]":
        """Decide what came over the topic. Raises Rejected if it cannot be a command."""
        name, _, id = sent.stream.partition(SEPARATOR)
        if name != self.name:
            raise BadAggregateId(aggregate=self.name, found=sent.stream)
        arguments = open_arguments(
            sent.arguments, self.types, stream=sent.stream, command=sent.command
        )
        call = call_from(self.kind, sent.command, arguments)
        meta = checked({word: sent.meta.get(word) for word in WORDS})
        terms = Terms(id=sent.id, expect=sent.expect, meta={"command": sent.command, **meta})
        return self.submit(id, call, terms, along=along)

    def shunning(self, id: str, event_id: str, *, meta: Mapping[str, str]) -> "Future[Receipt]":
        why = meta.get("why", "")
        decision = self._states.shunning(id, self.stream(id), event_id, why=why)
        return self._asked(decision, Terms(meta={"command": "shun", **meta}))

    def _asked(
        self, decision: Deciding | Shunning, terms: Terms, call: Call | None = None, **more: Any
    ) -> "Future[Receipt]":
        command = None
        if terms.id is not None and call is not None:
            command = Command(id=terms.id, print=self.print_of(call))
        return self.store.submit(
            decision.stream,
            decision,
            expect=terms.expect,
            command=command,
            meta=terms.meta,
            **more,
        )

    def print_of(self, call: Call) -> str:
        """Tells the same command from another with its id. It is kept for ever: where arguments
        may be personal, nobody without the keyring can try out what they were, and nobody at all
        after the next erasure."""
        sealing = self.types.sealing if self.types.has_personal else None
        said = call.encoded()
        if sealing is not None:
            return sealing.print_of(said)
        return sha256(said).digest().hex()[:PRINT_LENGTH]

    # --- reading ------------------------------------------------------------------------------

    def state(
        self, id: str, *, version: int | None = None, at: datetime | None = None
    ) -> AggregateT:
        found = self._states.read(id, self.stream(id), version=version, at=at)
        return cast(AggregateT, found)

    def history(self, id: str) -> list[Happening]:
        return happenings(self.store.read(self.stream(id)), self.types)


@lru_cache(NAMES_KNOWN_MAX)
def stream_name(aggregate: str, id: str) -> str:
    """Raises BadStreamName. To look at each letter takes as long as the rest of a call."""
    name = aggregate + SEPARATOR + id
    stream_key(name)
    return name
