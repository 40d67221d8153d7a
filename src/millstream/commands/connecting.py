"""How the client commands reach a broker, and what goes wrong on the way, in their own words.

librdkafka's errors are translated here, once. Works with Millstream's broker and with Kafka alike.
"""

import logging
import re
import socket
import ssl
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.near_names import did_you_mean
from millstream.broker_start import start_command
from millstream.client_protection import protection_config
from millstream.setting_kinds import Address
from millstream.settings import ClientSettings, load

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 15.0

TIMEOUTS = ("_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT")
UNREACHABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
NOT_ALLOWED = "_AUTHORIZATION_FAILED"
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
NAME_MISMATCHES = (62, 64)
# Millstream's and Kafka's own.
INTERNAL_TOPICS = ("__consumer_offsets", "__millstream_metadata", "__transaction_state")


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


class BrokerUnreachable(Retryable):
    def __init__(self, *, brokers: str, reason: str) -> None:
        super().__init__(
            f"No broker answers at {brokers} ({reason}). Start one with `{start_command()}`, or "
            "say where it is with --brokers or MILLSTREAM_BROKERS"
        )
        self.brokers, self.reason = brokers, reason


class NoAnswerInTime(Retryable):
    def __init__(self, *, doing: str) -> None:
        super().__init__(f"Cannot {doing}: the broker did not answer in time. Try again")
        self.doing = doing


class TopicNotFound(Rejected):
    """`creatable` when a new topic would serve the caller: not to delete or describe it."""

    def __init__(self, *, topic: str, known: Iterable[str] = (), creatable: bool = False) -> None:
        otherwise = (
            f"Create it with `millstream topics create {topic}`"
            if creatable
            else "`millstream topics list` shows those that do"
        )
        hint = did_you_mean(topic, known, otherwise=otherwise)
        super().__init__(f"Topic {topic} does not exist. {hint}")
        self.topic = topic


class PartitionNotFound(Rejected):
    def __init__(self, *, partition: Partition, count: int) -> None:
        there = f"partitions 0-{count - 1}" if count > 1 else "only partition 0"
        super().__init__(f"{partition} does not exist: {partition.topic} has {there}")
        self.partition = partition


class InternalTopic(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"{topic} is an internal topic: only the broker writes it")
        self.topic = topic


class GroupNotFound(Rejected):
    def __init__(self, *, group: str, known: Iterable[str] = ()) -> None:
        listed = "`millstream groups list` shows those that do"
        hint = did_you_mean(group, known, otherwise=listed)
        super().__init__(f"Group {group} does not exist. {hint}")
        self.group = group


class NotAllowed(Rejected):
    def __init__(self, *, doing: str, missing: str = "") -> None:
        needs = f", which takes {missing}" if missing else ""
        super().__init__(f"Cannot {doing}: the broker's access rules do not allow it{needs}")
        self.doing, self.missing = doing, missing


class RefusedByBroker(Rejected):
    def __init__(self, *, doing: str, code: str, reason: str) -> None:
        super().__init__(f"Cannot {doing}: {reason.rstrip('. ')} ({code})")
        self.doing, self.code, self.reason = doing, code, reason


class LoginRefused(Rejected):
    def __init__(self, *, brokers: str, user: str, reason: str) -> None:
        who = f"the login of {user}" if user else "a client without a login"
        super().__init__(
            f"The broker at {brokers} refuses {who}: {reason}. Say who you are with "
            "MILLSTREAM_USER and MILLSTREAM_PASSWORD_FILE"
        )
        self.brokers, self.user, self.reason = brokers, user, reason


class TlsRefused(Rejected):
    def __init__(self, *, brokers: str, reason: str) -> None:
        super().__init__(
            f"No TLS with the broker at {brokers}: {reason}. Name the authority of its certificate "
            "with MILLSTREAM_TLS_CA"
        )
        self.brokers, self.reason = brokers, reason


class NotInCertificate(Rejected):
    def __init__(self, *, broker: Address) -> None:
        super().__init__(
            f"The certificate of the broker at {broker} is not for {broker.host}. Call the broker "
            "by a name that is in it (--brokers, MILLSTREAM_BROKERS; its `advertise` is where it "
            "sends clients on), or give it a certificate for this one (`millstream certs --host`)"
        )
        self.broker = broker


class HungUp(Rejected):
    def __init__(self, *, brokers: str) -> None:
        super().__init__(
            f"The broker at {brokers} hangs up at once: it may want TLS (MILLSTREAM_TLS_CA), a "
            "login (MILLSTREAM_USER, MILLSTREAM_PASSWORD_FILE), or neither of them"
        )
        self.brokers = brokers


def trouble_from(
    errors: Iterable["KafkaError"], *, brokers: str, user: str
) -> MillstreamError | None:
    """Why nothing can be asked, if librdkafka has said so on the way: the nearest cause first."""
    said = {error.name(): error.str() for error in errors}
    if reason := said.get("_AUTHENTICATION"):
        return LoginRefused(brokers=brokers, user=user, reason=_without_address(reason))
    if reason := said.get("_SSL"):
        broker = _address_in(reason)
        if broker is not None and not is_named_in_certificate(broker):
            return NotInCertificate(broker=broker)
        return TlsRefused(brokers=brokers, reason=_without_address(reason))
    return None


def _without_address(reason: str) -> str:
    """librdkafka's words without `sasl_ssl://host:9092/bootstrap: ` and what it adds behind."""
    told = reason.split(": ", 1)[-1] if "://" in reason.split(": ", 1)[0] else reason
    return told.split(" (after ", 1)[0].rstrip(". ")


def _address_in(reason: str) -> Address | None:
    """Whom librdkafka speaks of: `ssl://host:9092/bootstrap: ...`."""
    found = re.match(r"\w+://\[?([^/]+?)\]?:(\d+)/", reason)
    return Address(found[1], int(found[2])) if found else None


def is_named_in_certificate(broker: Address) -> bool:
    """Looked at once more: librdkafka says the same of a wrong name and a wrong authority."""
    settings = load(ClientSettings)
    context = ssl.create_default_context(cafile=settings.tls_ca)
    if settings.tls_certificate is not None:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    address = (broker.host, broker.port)
    try:
        with socket.create_connection(address, timeout=CONNECT_SECONDS_MAX) as plain:
            context.wrap_socket(plain, server_hostname=broker.host).close()
    except ssl.SSLCertVerificationError as error:
        return error.verify_code not in NAME_MISMATCHES
    except OSError:
        pass  # something else is wrong, which librdkafka has told
    return True


def error_from(error: "KafkaError", *, doing: str, brokers: str) -> MillstreamError:
    code = error.name()
    if code in UNREACHABLE:
        return BrokerUnreachable(brokers=brokers, reason="the connection failed")
    if code in TIMEOUTS:
        return NoAnswerInTime(doing=doing)
    if code.endswith(NOT_ALLOWED):
        return NotAllowed(doing=doing)
    return RefusedByBroker(doing=doing, code=code, reason=error.str() or code)


def require_not_internal(topics: Iterable[str]) -> None:
    for topic in topics:
        if topic in INTERNAL_TOPICS:
            raise InternalTopic(topic=topic)


def reach(brokers: tuple[Address, ...], *, seconds_max: float = CONNECT_SECONDS_MAX) -> None:
    """Connect to any of them, or say why not. librdkafka would retry for ever, and not say."""
    reason = ""
    for broker in brokers:
        try:
            limit = seconds_max / len(brokers)
            socket.create_connection((broker.host, broker.port), timeout=limit).close()
        except OSError as error:
            reason = (error.strerror or str(error) or type(error).__name__).lower()
        else:
            return
    raise BrokerUnreachable(brokers=bootstrap(brokers), reason=reason)


def log_in(brokers: tuple[Address, ...]) -> None:
    """Raise LoginRefused if a broker refuses the login that is set.

    Our own client asks, once: librdkafka tries again until the broker holds its address off, and
    some of its calls report a minute of silence alone. What else is wrong, it says itself.
    """
    if not load(ClientSettings).user:
        return
    import asyncio

    from millstream.queues.access import access_from
    from millstream.queues.connection import connect_to_any
    from millstream.queues.login import LoginFailed

    async def greet() -> None:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            (await connect_to_any(access_from(client_config(brokers)))).close()

    try:
        asyncio.run(greet())
    except LoginFailed as refused:
        raise LoginRefused(
            brokers=bootstrap(brokers), user=refused.user, reason=refused.reason.rstrip(". ")
        ) from None
    except (TimeoutError, OSError, MillstreamError):
        pass


def bootstrap(brokers: tuple[Address, ...]) -> str:
    return ",".join(map(str, brokers))


class Watch:
    """Whether librdkafka has lost every broker, and for how long.

    librdkafka reconnects for ever by itself; `check` ends the wait after CONNECT_SECONDS_MAX.
    """

    def __init__(self, brokers: tuple[Address, ...]) -> None:
        self.brokers = brokers
        self.lost_at: float | None = None  # by the monotonic clock

    def on_error(self, error: "KafkaError") -> None:
        if error.name() == "_ALL_BROKERS_DOWN" and self.lost_at is None:
            self.lost_at = time.monotonic()

    def check(self) -> None:
        """Call while nothing arrives."""
        lost_at = self.lost_at
        if lost_at is None:
            return
        try:
            reach(self.brokers, seconds_max=1.0)
            self.lost_at = None
        except BrokerUnreachable:
            if time.monotonic() - lost_at > CONNECT_SECONDS_MAX:
                raise


def admin_api() -> Any:
    """confluent_kafka.admin, imported late and untyped: it does not export its names to mypy."""
    import confluent_kafka.admin

    return confluent_kafka.admin


def client_config(brokers: tuple[Address, ...], watch: Watch | None = None) -> dict[str, Any]:
    """What every client has in common: a name, a short patience, and no chatter on stderr."""
    silent = logging.getLogger("millstream.librdkafka")
    silent.propagate = False
    silent.addHandler(logging.NullHandler())
    return {
        "bootstrap.servers": bootstrap(brokers),
        "client.id": "millstream-cli",
        "logger": silent,
        "error_cb": watch.on_error if watch else lambda _error: None,
        "socket.timeout.ms": int(ANSWER_SECONDS_MAX * 1000),
        **protection_config(load(ClientSettings)),
    }
