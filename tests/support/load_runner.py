"""A capture's runner in memory: follows a source, and loads its tables between the changes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from millstream.capture.change import Change, Transaction
from millstream.capture.load.loading import Loading
from millstream.capture.load.sweep import KeysOnDisk
from millstream.capture.source import Loader, Source
from tests.support.waiting import eventually

STEPS_AT_ONCE = 100  # a database may be fast
WITHIN_S = 100.0


class Topics:
    """Of one partition each, in memory; all is committed."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def of(self, topic: str) -> list[Change]:
        return [change for change in self.changes if change.table.topic == topic]

    def ends(self, topic: str) -> list[int]:
        return [len(self.of(topic))]

    def keys_left(self, topic: str, ends: Sequence[int]) -> KeysOnDisk:
        left = KeysOnDisk()
        for offset, change in enumerate(self.of(topic)):
            if change.key is not None:
                is_left = offset < ends[0] and change.op != "d"
                left.change([change.key] * is_left, [change.key] * (not is_left))
        return left

    def rows(self) -> dict[bytes, bytes]:
        """As a reader sees them who knows keys and tombstones only."""
        rows: dict[bytes, bytes] = {}
        for change in self.changes:
            if change.key is not None and change.after is not None:
                rows[change.key] = change.after
            elif change.key is not None:
                rows.pop(change.key, None)
        return rows


class LoadRunner:
    """Step by step. Runs follow one another, as after a crash; each has a source of its own."""

    def __init__(
        self,
        opens: Callable[[], Source],
        *,
        position: str,
        loader: Loader | None = None,
        chunk_rows: int = 2,
    ) -> None:
        self._opens, self._loader, self._chunk_rows = opens, loader, chunk_rows
        self.position = position
        self.topics = Topics()
        self.states: dict[str, str] = {}

    @contextmanager
    def run(self) -> Iterator[Loading]:
        source = self._opens()
        source.quiet_seconds = 0.001
        loading = Loading(
            self._loader or source.loader(),
            self.topics,
            tables=source.tables(),
            states=self.states,
            is_past=source.is_past,
            chunk_rows=self._chunk_rows,
        )
        self._stream = source.stream(self.position)
        with closing(source), closing(loading):
            yield loading

    def step(self, loading: Loading) -> None:
        step = next(self._stream)
        if isinstance(step, Transaction):
            for change in loading.followed(step):  # one by one: a truncate asks where topics end
                if isinstance(change, Change):
                    self.topics.changes.append(change)
        for due in loading.due(step.resume):
            self.topics.changes += due.changes
            self.states[due.table.name] = due.state
        self.position = step.resume
        loading.committed()

    def until_done(self, loading: Loading) -> None:
        self.until(lambda: loading.is_done, loading)

    def until(self, condition: Callable[[], bool], loading: Loading) -> None:
        def is_so() -> bool:
            return any(self._is_after_step(condition, loading) for _ in range(STEPS_AT_ONCE))

        eventually(is_so, what=f"{loading.progress()}", within_s=WITHIN_S)

    def _is_after_step(self, condition: Callable[[], bool], loading: Loading) -> bool:
        self.step(loading)
        return condition()
