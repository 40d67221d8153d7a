"""The keyring of an App: what is personal in its events is sealed with it, revealed and forgotten.

Opened when something personal is first sealed or opened: an application without personal data has
neither a keyring nor a topic for it.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.settings import ClientSettings, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.eventsourcing.event_store import EventStore
    from millstream.eventsourcing.forgetting import Erasure
    from millstream.eventsourcing.key_book import Remark, Subject
    from millstream.eventsourcing.key_store import KeyStore
    from millstream.eventsourcing.keyring import Keyring, Progress
    from millstream.eventsourcing.sealed_events import KeyedSealing

KEYS_SUFFIX: Final = ".keys"
EVENTS_SUFFIX: Final = ".events"
KEYRING_SUFFIX: Final = ".keyring"


def keyring_path(data: Path) -> Path:
    """Beside the data directory and not in it: a copy of that must not have the keys."""
    chosen = load(ClientSettings).keyring
    return data.with_name(data.name + KEYRING_SUFFIX) if chosen is None else chosen


class Forgetting:
    """Thread-safe."""

    def __init__(
        self,
        *,
        app: str,
        data: Path,
        keyring: "str | Path | KeyStore | None",
        client_config: Callable[[], Mapping[str, Any]],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.keys_topic, self.events_topic = app + KEYS_SUFFIX, app + EVENTS_SUFFIX
        self._data, self._given = data, keyring
        self._client_config, self._now = client_config, now
        self._lock = threading.Lock()
        self._keyring: Keyring | None = None

    @property
    def keyring(self) -> "Keyring":
        with self._lock:
            if self._keyring is None:
                self._keyring = self._opened()
            return self._keyring

    def _opened(self) -> "Keyring":
        from millstream.eventsourcing.key_topic import KeyTopic
        from millstream.eventsourcing.keyring import Keyring

        return Keyring(KeyTopic(self._client_config(), self.keys_topic), self._store())

    def _store(self) -> "KeyStore":
        from millstream.eventsourcing.key_store import KeyDirectory

        found = self._given_or_beside()
        return KeyDirectory(Path(found)) if isinstance(found, str | Path) else found

    def _given_or_beside(self) -> "str | Path | KeyStore":
        return keyring_path(self._data) if self._given is None else self._given

    def folders(self) -> list[str]:
        """That of the keyring, as it was given, if it is one."""
        found = self._given_or_beside()
        return [str(found)] if isinstance(found, str | Path) else []

    @property
    def sealing(self) -> "KeyedSealing":
        """For aggregates. Nothing is opened before it is used."""
        from millstream.eventsourcing.sealed_events import KeyedSealing

        return KeyedSealing(self.keyring)

    def forget(
        self,
        subjects: Sequence[str],
        *,
        by: str | None = None,
        why: str | None = None,
        progress: "Progress | None" = None,
    ) -> "list[Erasure]":
        """One report for each. All at once cost as much as one: the other keys are wrapped anew."""
        before = self._found(subjects)
        rewrapped = 0

        def count(done: int, of: int) -> None:
            nonlocal rewrapped
            rewrapped = max(rewrapped, done)
            if progress is not None:
                progress(done, of)

        self.keyring.forget(list(subjects), self._remark(by, why), progress=count)
        return self._reports(before, rewrapped)

    def look(self, subjects: Sequence[str]) -> "list[Erasure]":
        """What `forget` would find. Nothing is changed."""
        return self._reports(self._found(subjects), 0)

    def _found(self, subjects: Sequence[str]) -> "dict[str, Subject | None]":
        from millstream.eventsourcing.personal import require_several

        return {one: self.keyring.subject(one) for one in require_several(subjects)}

    def consent(self, subject: str, *, by: str | None = None, why: str | None = None) -> bool:
        return self.keyring.consent(subject, self._remark(by, why))

    def _remark(self, by: str | None, why: str | None) -> "Remark":
        """What `app.acting` says holds here, too."""
        from millstream.eventsourcing.acting import said
        from millstream.eventsourcing.key_book import Remark

        words = said({"by": by, "why": why})
        return Remark(self._now(), words.get("by", ""), words.get("why", ""))

    def reveal(self, value: Any, *, fields: Collection[str] | None = None) -> Any:
        from millstream.eventsourcing.sealing import reveal

        return reveal(value, self.keyring, fields=fields)

    def close(self) -> None:
        with self._lock:
            keyring, self._keyring = self._keyring, None
        if keyring is not None:
            keyring.close()

    def _reports(self, before: "Mapping[str, Subject | None]", rewrapped: int) -> "list[Erasure]":
        from millstream.eventsourcing.forgetting import erasure_of

        with self._events() as events:
            return [
                erasure_of(
                    self.keyring.hash_of(subject),
                    self.keyring.subject(subject),
                    is_repeat=found is not None and found.forgotten is not None,
                    had_key=found is not None and bool(found.key),
                    rewrapped=rewrapped,
                    events=events,
                    keys_topic=self.keys_topic,
                )
                for subject, found in before.items()
            ]

    @contextmanager
    def _events(self) -> "Iterator[EventStore | None]":
        """To read only; None if the application has none."""
        from millstream.base.log_clients import Topics
        from millstream.eventsourcing.event_store import EventStore

        client = self._client_config()
        if self.events_topic not in Topics(client).partitions():
            yield None
            return
        with closing(EventStore(client, self.events_topic)) as events:
            yield events
