"""Why librdkafka gets nowhere: a login or TLS that fails, or nobody who answers.

It tries again for ever by itself, and tells the reason to its error callback only: a call that then
times out would blame a broker that did answer. Here the reason is kept, and becomes an error.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.queues.login import LoginFailed

ErrorCallback: TypeAlias = Callable[[Any], object]

NOBODY_ANSWERS = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE")


class NoBroker(Retryable):
    """`user`: who asks, as its owner calls it: "queue mails", "app.publish"."""

    def __init__(self, *, user: str, brokers: str) -> None:
        super().__init__(
            f"{user}: no broker answers at {brokers}; start it, or see that the address is right "
            "(MILLSTREAM_BROKERS)"
        )
        self.user, self.brokers = user, brokers


class NoTls(Rejected):
    def __init__(self, *, user: str, brokers: str, reason: str) -> None:
        super().__init__(
            f"{user}: no TLS with the broker at {brokers}: {reason}. See that it speaks TLS there, "
            "and that its certificate is trusted (docs/guides/security.md)"
        )
        self.user, self.brokers, self.reason = user, brokers, reason


class ClientTrouble:
    """Of one client, which is made with `config`. Its callback runs in whatever thread polls it.

    `user`: who uses it, for errors.
    """

    def __init__(
        self, user: str, config: Mapping[str, Any], *, when_told: ErrorCallback | None = None
    ) -> None:
        self.config = {**config, "error_cb": self._on_error}
        self.user, self.brokers = user, str(config["bootstrap.servers"])
        self._login = str(config.get("sasl.username", ""))
        listeners: Sequence[ErrorCallback | None] = (when_told, config.get("error_cb"))
        self._listeners = [one for one in listeners if one is not None]
        self._last: Any = None

    def _on_error(self, error: Any) -> None:
        # That all brokers are down is told behind each reason, and would hide it.
        if error.name() != "_ALL_BROKERS_DOWN" or self._last is None:
            self._last = error
        for listener in self._listeners:
            listener(error)

    def passed(self) -> None:
        """The broker has answered since."""
        self._last = None

    @property
    def is_there(self) -> bool:
        return self._last is not None

    def cause(self) -> MillstreamError | None:
        """What will not pass by waiting, if that is what was told last."""
        name = "" if self._last is None else self._last.name()
        if name == "_AUTHENTICATION":
            return LoginFailed(user=self._login, reason=_without_address(self._last.str()))
        if name == "_SSL":
            reason = _without_address(self._last.str())
            return NoTls(user=self.user, brokers=self.brokers, reason=reason)
        return None

    def error_from(self, fault: Any) -> MillstreamError | None:
        """Of a call that failed: why nobody was reached, or None if somebody was."""
        if fault.name() in NOBODY_ANSWERS:
            return self.cause() or NoBroker(user=self.user, brokers=self.brokers)
        return None


def _without_address(reason: str) -> str:
    """librdkafka's words without `sasl_ssl://host:9092/1: ` before, and the time behind them."""
    address, colon, words = reason.partition(": ")
    told = words if colon and "://" in address else reason
    return told.split(" (after ", 1)[0].rstrip(". ")
