"""The views of an App, each joined to the store that it is kept in.

A view is declared with its job, in the catalog; here is where its rows are. Opens no connection
before a store needs one, and starts no broker before a store asks how to reach it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from millstream.base.declared import BadDeclaration
from millstream.base.near_names import did_you_mean, there_are
from millstream.processing.jobs.catalog import Catalog
from millstream.processing.jobs.job import JOB_NAME, Job, ToView
from millstream.views.store import Home, StoreChoice, ViewStore


class UnknownView(BadDeclaration):
    def __init__(self, *, app: str, view: str, known: Iterable[str]) -> None:
        known = sorted(known)
        told = f"app {app} has no view {view!r} (there are: {there_are(known)})"
        super().__init__(f"{told}. {did_you_mean(view, known)}".rstrip(". "))
        self.app, self.view, self.known = app, view, known


class NoHistoryThere(BadDeclaration):
    def __init__(self, *, view: str, store: object) -> None:
        super().__init__(
            f"view {view}: history= is kept by stores.Sqlite() and stores.Delta(), and not by "
            f"{store}: leave it out, or keep the view in one of these"
        )
        self.view = view


class AskedConfig(Mapping[str, Any]):
    """How to reach the broker, which is asked when a store first looks: that may start one."""

    def __init__(self, ask: Callable[[], Mapping[str, Any]]) -> None:
        self._ask = ask

    def __getitem__(self, name: str) -> Any:
        return self._ask()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ask())

    def __len__(self) -> int:
        return len(self._ask())


class DeclaredViews:
    """Those of one App."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        app: str,
        data: Path,
        client_config: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._catalog, self._app, self._data = catalog, app, data
        self._client = AskedConfig(client_config)

    @property
    def names(self) -> list[str]:
        return [job.name for job in self._catalog.jobs.values() if isinstance(job.output, ToView)]

    def key(self, view: str) -> tuple[str, ...]:
        job = self._catalog.jobs.get(view)
        return job.output.key if job is not None and isinstance(job.output, ToView) else ()

    def store(self, view: str) -> ViewStore:
        """Where this view is kept; one that is not declared here may be in SQLite all the same."""
        job = self._catalog.jobs.get(view)
        if job is not None and isinstance(job.output, ToView):
            return self.store_of(job)
        from millstream.views.stores.sqlite.file import SqliteStore, view_file

        # A name is not a path: what lies elsewhere is another application's.
        if JOB_NAME.fullmatch(view) and (path := view_file(self._data, view)).exists():
            return SqliteStore(path, view=view, key=())
        raise UnknownView(app=self._app, view=view, known=self.names)

    def folders(self) -> list[str]:
        """Of stores that have a folder of their own, as the application says it."""
        outputs = [job.output for job in self._catalog.jobs.values()]
        choices = [one.store for one in outputs if isinstance(one, ToView)]
        paths = [str(path) for one in choices if (path := getattr(one, "path", None)) is not None]
        return [path for path in paths if "://" not in path]

    def store_of(self, job: Job) -> ViewStore:
        assert isinstance(job.output, ToView)
        output, home = job.output, self._home(job.output)
        choice: StoreChoice | None = output.store
        if choice is None:
            from millstream.views.stores.sqlite.file import Sqlite

            choice = Sqlite()
        if output.history_ms is not None and not getattr(choice, "keeps_history", False):
            raise NoHistoryThere(view=job.name, store=choice)
        return choice.open(job.name, output.key, home)

    def _home(self, output: ToView) -> Home:
        return Home(
            app=self._app,
            data=self._data.absolute(),
            client=self._client,
            history_ms=output.history_ms,
        )
