"""What protects the listener: whether it may listen at all, and its certificate, kept current.

Asks `security/listening.py` and `security/tls.py`, and says in the diagnostics what they warn of.
"""

from __future__ import annotations

import datetime
import logging
import ssl
from typing import TYPE_CHECKING

from millstream.base.clock import Clock
from millstream.broker.config import BrokerConfig
from millstream.broker.security.listening import Listener, check_listeners

if TYPE_CHECKING:
    from millstream.broker.security.tls import ServerTls

logger = logging.getLogger(__name__)


class Protection:
    """Owned by the broker's server."""

    def __init__(self, config: BrokerConfig, *, now_ms: Clock) -> None:
        self._config = config
        self._now_ms = now_ms
        self._tls: ServerTls | None = None

    @property
    def context(self) -> ssl.SSLContext | None:
        return None if self._tls is None else self._tls.context

    def check(self) -> None:
        """Raise for a listener that must not be; warn of one that is open on purpose."""
        config = self._config
        is_certified = config.tls is not None and config.tls.ca is not None
        listener = Listener(
            host=config.host,
            port=config.port,
            has_tls=config.tls is not None,
            has_login=bool(config.sasl_mechanisms) or is_certified,
        )
        warnings = check_listeners(
            [listener], mechanisms=config.sasl_mechanisms, open_listeners=config.open_listeners
        )
        for warning in warnings:
            logger.warning("%s", warning)

    def read_certificates(self) -> None:
        """For the start, and for certificates that were renewed. On an error the old ones stay."""
        if self._config.tls is None:
            return
        # Here, as its import takes a while.
        from millstream.broker.security.tls import open_server_tls

        self._tls = open_server_tls(self._config.tls, now=self._now())
        for warning in self._tls.warnings:
            logger.warning("%s", warning)

    def warn_of_expiry(self) -> None:
        if self._tls is None or self._config.tls is None:
            return
        from millstream.broker.security.tls import expiry_warnings

        path = self._config.tls.certificate
        for warning in expiry_warnings(path, self._tls.expires, now=self._now()):
            logger.warning("%s", warning)

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._now_ms() / 1000, datetime.UTC)
