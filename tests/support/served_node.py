"""A broker's node without its sockets: requests go straight to their handlers.

    served = ServedNode(tmp_path)
    answer = served.ask(MetadataRequest(topics=None), version=12)

Each request is encoded and decoded on its way, and so is each response, in the version given: what
a version cannot carry does not arrive, and what it cannot encode fails the test. The loop's time
stands still unless `advance` moves it, timers included.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from millstream.base.disk import Disk
from millstream.broker.config import BrokerConfig
from millstream.broker.durable_state import DurableState
from millstream.broker.group_commit import GroupCommit
from millstream.broker.handlers import HANDLERS, Call, Later, Peer
from millstream.broker.node import Node
from millstream.broker.security.acls import ANONYMOUS
from millstream.broker.server import open_node
from millstream.broker.topics import Topic
from millstream.broker.wire import RESPONSES, ApiKey, Message, decode, encode
from millstream.broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.log.log_directory import LogDirectory
from tests.support.batches import NOW_MS, batch

T = TypeVar("T")
PEER = Peer("192.0.2.7", 50_000, "127.0.0.1", 9092)
CLIENT_ID = "ada"


# The newest versions in which these requests name their topics; later ones have ids.
NEWEST_BY_NAME = {ApiKey.PRODUCE: 12, ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}


def newest(request: Message) -> int:
    """The version that a test means if it does not say: the newest, with names."""
    key = ApiKey(cast(int, request.__schema__.api_key))
    return NEWEST_BY_NAME.get(key, HANDLERS[key].versions[-1])


class SteppedLoop(asyncio.SelectorEventLoop):
    """Its clock moves only when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


class ServedNode:
    """A node, the loop that owns it, and a clock."""

    def __init__(self, path: Path, *, disk: Disk | None = None, **config: Any) -> None:
        self.loop = SteppedLoop()
        self._errors: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self._errors.append(context))
        self.now_ms = NOW_MS
        self.config = BrokerConfig(**config)
        self.path = path
        self.is_open = True
        self.principal = ANONYMOUS  # who asks
        try:
            self.node = self.run(self._open(path, disk))
        except BaseException:
            self.loop.close()
            raise

    async def _open(self, path: Path, disk: Disk | None) -> Node:
        directory = LogDirectory(path, disk=disk)
        self.commit = GroupCommit(
            self.loop,
            now_ms=lambda: self.now_ms,
            unsynced_bytes_max=self.config.unsynced_bytes_max,
        )
        try:
            node = open_node(directory, self.commit, self.config, now_ms=lambda: self.now_ms)
            await node.topics.finish_deletions()
            await node.transactions.resume()
        except BaseException:
            self.commit.close()
            directory.abandon()
            raise
        return node

    # --- time ---------------------------------------------------------------------------------

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.loop.run_until_complete(wait())

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin, up to the first point where it waits."""
        task = self.loop.create_task(work)
        self.turn()
        return task

    def turn(self, count: int = 5) -> None:
        """Let the loop do what is ready, without waiting for threads."""

        async def turns() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.run(turns())

    def settle(self) -> None:
        """Until every sync is back and those who waited for it have run."""

        async def until_idle() -> None:
            while self.commit.has_waiting:  # noqa: ASYNC110 - a thread is at work
                await asyncio.sleep(0)

        self.run(until_idle())
        self.turn()

    def advance(self, seconds: float) -> None:
        """Time passes: timers that are due run."""
        self.loop.now_s += seconds
        self.now_ms += int(seconds * 1000)
        self.turn()

    # --- requests -----------------------------------------------------------------------------

    async def answer(self, request: Message, version: int, *, peer: Peer = PEER) -> Message:
        """What a client gets for `request`."""
        key = cast(int, request.__schema__.api_key)
        handler = HANDLERS[key]
        assert version in handler.versions, f"{handler.api_key} {version} is not offered"
        frame = bytearray(b"".join(encode(request, version)))
        received = decode(type(request), version, frame)
        answer = handler.function(
            received, Call(self.node, version, CLIENT_ID, peer, self.principal)
        )
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, Later):
            arrived: asyncio.Future[Message] = self.loop.create_future()
            answer.then(arrived.set_result)
            answer = await arrived
        assert isinstance(answer, Message), "no answer"
        return decode(RESPONSES[ApiKey(key)], version, b"".join(encode(answer, version)))

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The answer, waited for."""
        return self.run(self.answer(request, newest(request) if version is None else version))

    def ask_soon(self, request: Message, version: int | None = None) -> "asyncio.Task[Any]":
        """Ask, and go on; `task.done()` tells whether the answer is there."""
        return self.start(self.answer(request, newest(request) if version is None else version))

    # --- short ways ---------------------------------------------------------------------------

    def create(self, name: str = "orders", partitions: int = 1, **overrides: str) -> Topic:
        named = {key.replace("_", "."): value for key, value in overrides.items()}
        return self.run(self.node.topics.create(name, partitions, named))

    def produce(self, *values: bytes, topic: str = "orders", partition: int = 0) -> int:
        """Append one batch with acks=all; the offset of its first record."""
        answer: ProduceResponse = self.ask(
            produce_request(*values, topic=topic, partition=partition)
        )
        (one,) = answer.responses[0].partition_responses
        assert one.error_code == 0, one
        return one.base_offset

    def put(self, key: bytes, value: bytes | None, *, into: DurableState | None = None) -> None:
        """Store a record of the broker's own, past all checks."""

        async def stored() -> None:
            await (into or self.node.metadata).put([(key, value)], now_ms=self.now_ms)

        self.run(stored())

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop cleanly. What the loop could only complain about fails the test."""
        if self.is_open:
            self.settle()
            self._leave()
            assert self.node.directory.close(now_ms=self.now_ms)
            self._check_errors()

    def crash(self) -> None:
        """Stop without closing anything: the next one to open the directory must recover."""
        if self.is_open:
            self._leave()
            self.node.directory.abandon()

    def _leave(self) -> None:
        self.is_open = False
        self.commit.close()
        self.turn()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.turn()
        self.node.read_threads.shutdown()
        self.loop.close()

    def _check_errors(self) -> None:
        assert not self._errors, self._errors


def produce_request(
    *values: bytes, topic: str = "orders", partition: int = 0, acks: int = -1, **of_batch: Any
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch(*values, **of_batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


Serve = Callable[..., ServedNode]
