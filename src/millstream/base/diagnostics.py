"""What a process says of itself on stderr: lines for people, or one JSON object a line.

    {"time": "2026-11-18T12:00:00.000Z", "level": "warning", "logger": "millstream.log.recovery",
     "message": "...", "trace_id": "0af7651916cd43dd8448eb211c80319c", "exception": "Traceback..."}

`trace_id` is there within a span (`base/tracing.py`), `exception` with a traceback.
"""

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

from millstream.base.tracing import trace_id_now

TEXT, JSON = "text", "json"
# What ends a line, or moves the cursor of a terminal, as an escape.
CONTROLS: Final = {
    one: ascii(chr(one))[1:-1] for one in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}
# What commands say to people has this name in JSON.
SAID: Final = "millstream"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        found: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if trace_id := trace_id_now():
            found["trace_id"] = trace_id
        if record.exc_info and record.exc_info[0] is not None:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found)


class TextLines(logging.Formatter):
    """A message is one line, whatever a client has put into it; a traceback follows as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = in_one_line(record.message)
        return super().formatMessage(record)


def in_one_line(text: str) -> str:
    return text.translate(CONTROLS)


class _Stderr(logging.StreamHandler[Any]):
    """To what is stderr at the time: a live table takes its place for a while."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, _: Any) -> None:
        pass


def set_up_diagnostics(form: str) -> None:
    """As JSON also what the commands say, Python's warnings, and errors that nobody caught."""
    if form == JSON and not is_json():
        handler = _Stderr()
        handler.setFormatter(JsonLines())
        logging.getLogger().addHandler(handler)
        logging.getLogger(SAID).setLevel(logging.INFO)
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_ended_thread
        sys.unraisablehook = _log_unraisable


def is_json() -> bool:
    return any(isinstance(one.formatter, JsonLines) for one in logging.getLogger().handlers)


def set_up_text(form: str, *, level: int | str) -> None:
    """The level in any case, the form of a line unless it is JSON."""
    if not is_json():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(TextLines(form))
        logging.basicConfig(handlers=[handler])
    logging.getLogger().setLevel(level)


def say_line(message: str, *, level: int = logging.INFO) -> None:
    """For the person, not for the pipe."""
    if not is_json():
        print(message, file=sys.stderr, flush=True)
    elif message:
        logging.getLogger(SAID).log(level, "%s", message.removeprefix("millstream: "))


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logging.getLogger(SAID).critical("%s", error, exc_info=(kind, error, trace))


def _log_ended_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None:
        _log_uncaught(ended.exc_type, ended.exc_value, ended.exc_traceback)


def _log_unraisable(found: "sys.UnraisableHookArgs") -> None:
    """What nobody can catch: of a finalizer, say."""
    if found.exc_value is not None:
        exc_info = (found.exc_type, found.exc_value, found.exc_traceback)
        where = found.err_msg or "ignored"
        logging.getLogger(SAID).error("%s: %s", where, found.exc_value, exc_info=exc_info)
