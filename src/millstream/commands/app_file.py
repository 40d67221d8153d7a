"""Loads the App of an application's file, for `millstream run`: its own app.run() does not run."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from millstream.app import App, is_loading
from millstream.base.errors import MillstreamError, Rejected


class AppNotFound(Rejected):
    """There is no such file, or no App in it, or more than one."""


class AppRaised(Rejected):
    def __init__(self, *, path: Path, line: int, error: BaseException) -> None:
        super().__init__(f"{path}:{line}: {type(error).__name__}: {error}")
        self.path, self.line = path, line


def load_app(place: str) -> App:
    """The App of `shop.py`, or `shop.py:app` where there are several."""
    file, _, name = place.partition(":")
    path = Path(file)
    if not path.is_file():
        raise AppNotFound(f"{path}: no such file. Give the Python file that makes the App")
    module = _load(path)
    apps = {key: found for key, found in vars(module).items() if isinstance(found, App)}
    if name:
        if name not in apps:
            raise AppNotFound(f"{path} has no App {name!r}{_known(apps)}")
        return apps[name]
    if not apps:
        raise AppNotFound(
            f"{path} makes no App where it is imported: `app = millstream.App(...)` must be at its "
            'top level, outside of functions and of `if __name__ == "__main__":`'
        )
    if len(set(map(id, apps.values()))) != 1:
        raise AppNotFound(f"{path} has {len(apps)} Apps{_known(apps)}: name one, {path}:NAME")
    return next(iter(apps.values()))


def _known(apps: dict[str, App]) -> str:
    return f" ({', '.join(sorted(apps))})" if apps else ""


def _load(path: Path) -> ModuleType:
    """Import the file. Its folder is on the path, here and in Spark's workers."""
    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *([others] if others else [])])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise AppNotFound(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    token = is_loading.set(True)
    try:
        spec.loader.exec_module(module)
    except MillstreamError:
        raise
    except Exception as error:
        raise AppRaised(path=path, line=_line(error, path), error=error) from error
    finally:
        is_loading.reset(token)
    if importlib.util.find_spec("pyspark") is not None:  # without it, the run says so
        from millstream.processing.jobs.carried_modules import carry_by_value

        carry_by_value(module)
    return module


def _line(error: Exception, path: Path) -> int:
    """The last line of the file on the way to the error."""
    line, trace = getattr(error, "lineno", None) or 1, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).absolute() == path.absolute():
            line = trace.tb_lineno
        trace = trace.tb_next
    return int(line)
