"""Every setting, once: its name, unit, default, limits and help.

The environment, `millstream.toml`, the command line and docs/settings.md are all derived from the
dataclasses below, so that they cannot disagree. Nearest wins: option, environment, file, default.
Reads values and says what is wrong with them; starts nothing. `running.py` hands the values on, so
that no package below knows this one.

    python -m millstream.settings > docs/settings.md
"""

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, cast

from millstream.base.diagnostics import JSON, TEXT
from millstream.base.errors import Rejected
from millstream.base.near_names import did_you_mean
from millstream.base.quantity import (
    DAY_MS,
    GIB,
    HOUR_MS,
    INT32_MAX,
    KIB,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    format_size,
)
from millstream.setting_kinds import (
    Address,
    Kind,
    address,
    address_or_none,
    addresses,
    choice,
    count,
    directory,
    duration,
    file,
    host_names,
    pairs,
    principals,
    sentence,
    size,
    switch,
    told_address,
    words,
)

CONFIG_FILE = "millstream.toml"
ENV_PREFIX = "MILLSTREAM_"
CONFIG_FILE_ENV = f"{ENV_PREFIX}CONFIG"

# --- The settings ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one field of a table means; `name` is the same in the file and in Python."""

    table: str
    name: str
    kind: Kind
    help: str
    default: Any

    @property
    def env(self) -> str:
        if (self.table, self.name) == ("spark", "master"):
            return f"{ENV_PREFIX}SPARK"  # what most applications set, beside MILLSTREAM_BROKERS
        prefix = "" if self.table == "client" else f"{self.table.upper()}_"
        return f"{ENV_PREFIX}{prefix}{self.name.upper()}"

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        return self.kind.format(self.default)


class Table(Protocol):
    """A frozen dataclass of settings: one `[table]` of millstream.toml."""

    TABLE: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


TableT = TypeVar("TableT", bound=Table)


def setting(default: Any, kind: Kind, help: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": help})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where the client commands (topics, produce, consume, groups) find a broker."""

    TABLE: ClassVar[str] = "client"

    brokers: tuple[Address, ...] = setting(
        (Address("127.0.0.1", 9092),),
        addresses(),
        "The brokers to ask first: Millstream's own or any Kafka cluster's.",
    )
    schemas_topic: str = setting(
        "_schemas",
        sentence("the name of a topic"),
        "The topic that keeps the schemas of an app's topics. Another one where a schema registry "
        "uses that name.",
    )
    keyring: Path | None = setting(  # noqa: RUF009 - `setting` is `field` with our metadata
        None,
        file("a directory, or none; it is made if missing"),
        "Where an app keeps the keys that open personal data in its events; without it, beside its "
        "data: shop.millstream.keyring. Every process of the app needs it; a backup of the log "
        "must not have it.",
    )
    captures_approved: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file("a file, or none; it is made if missing"),
        "The captures that were approved on this machine: `millstream capture run` opens no other "
        "database. Without it: millstream/captures.json in $XDG_CONFIG_HOME, or ~/.config.",
    )
    tls: bool = setting(
        False,
        switch(),
        "Connect by TLS, and trust brokers whose certificate the system trusts.",
    )
    tls_ca: Path | None = setting(  # noqa: RUF009 - `setting` is `field` with our metadata
        None,
        file(),
        "Connect by TLS, and trust brokers whose certificate is of these authorities, in PEM "
        "format.",
    )
    tls_certificate: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file(),
        "Our own certificate, where brokers ask for one.",
    )
    tls_key: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file(),
        "The private key of that certificate.",
    )
    user: str = setting(
        "",
        sentence("a user's name, or none"),
        "Log in as this user.",
    )
    password_file: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file(),
        "The file whose first line is the user's password; readable by its owner only. Without it, "
        "the command asks at the terminal.",
    )
    sasl_mechanism: str = setting(
        "SCRAM-SHA-256",
        choice("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
        "How to log in. PLAIN sends the password as it is: with TLS only.",
    )

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise SettingsConflict("tls_certificate and tls_key belong together: give both")
        if self.user and self.sasl_mechanism == "PLAIN" and not self.uses_tls:
            raise SettingsConflict(
                "PLAIN would show the password to the network: give tls or tls_ca"
            )

    @property
    def uses_tls(self) -> bool:
        return self.tls or self.tls_ca is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The embedded broker: `millstream broker`."""

    TABLE: ClassVar[str] = "broker"

    data: Path = setting(  # noqa: RUF009 - `setting` is `field` with our metadata
        Path("broker.millstream"),
        directory(),
        "Where topics, records and committed offsets are kept.",
    )
    listen: Address = setting(  # noqa: RUF009 - the same
        Address("127.0.0.1", 9092),
        address(),
        "Where clients connect. Beyond loopback it needs TLS and a login: docs/guides/security.md.",
    )
    advertise: Address | None = setting(  # noqa: RUF009 - the same
        None,
        told_address(),
        "What clients are told to connect to, if not the address that they came by: a name that "
        "is in the certificate.",
    )
    tls_certificate: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file(),
        "The certificate that clients see, in PEM format, its chain behind it. With it, all "
        "connections are TLS. SIGHUP reads it again.",
    )
    tls_key: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file(),
        "The private key of that certificate; readable by its owner only.",
    )
    tls_client_ca: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file(),
        "Clients must have a certificate of these authorities, too. Without `sasl` it is who they "
        "are: User:CN=ada.",
    )
    sasl: tuple[str, ...] = setting(
        (),
        words("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
        "How clients log in. With it, nothing is served to a client without a login. PLAIN beyond "
        "loopback needs TLS.",
    )
    sasl_session_ms: int = setting(
        -1,
        duration(at_least=SECOND_MS, at_most=INT32_MAX, forever=True),
        "After how long a client must log in again, on the same connection (KIP-368).",
    )
    open_listeners: str = setting(
        "",
        sentence("the sentence that the broker asks for when it refuses to listen"),
        "A broker beyond loopback without TLS or login starts only if this says so in words.",
    )
    authorization: str = setting(
        "auto",
        choice("auto", "on", "off"),
        "Whether access rules (ACLs) decide who may do what. auto: where clients must say who they "
        "are (sasl, tls_client_ca).",
    )
    super_users: tuple[str, ...] = setting(
        (),
        principals(),
        "Who may do everything, whatever the rules. They write the first rules.",
    )
    allow_without_acl: bool = setting(
        False,
        switch(),
        "Whether a topic, group or other resource that no rule speaks of is everybody's.",
    )
    durability: str = setting(
        "synced",
        choice("synced", "relaxed"),
        "synced: with acks=all, a record is answered for once it is on disk. relaxed: once it is "
        "written; a power cut may lose what came after the last sync.",
    )
    relaxed_sync_interval_ms: int = setting(
        SECOND_MS,
        duration(at_least=1, at_most=HOUR_MS),
        "How often `relaxed` syncs to disk: the most time that a power cut can undo.",
    )
    auto_create_topics: bool = setting(
        True,
        switch(),
        "Whether a topic that a client names for the first time is created.",
    )
    auto_create_topics_per_request_max: int = setting(
        100,
        count(at_least=1, at_most=100_000),
        "How many topics one request creates by naming them; for more the client asks again, as "
        "Kafka's clients do by themselves.",
    )
    auto_create_partitions_max: int = setting(
        2_000,
        count(at_least=1, at_most=1_000_000),
        "Naming a topic creates it only as long as the broker has no more partitions than this, "
        "its own among them. The same holds for topics that the broker makes for a group: the "
        "internal topics of Kafka Streams, and the dead-letter topic of a share group. "
        "CreateTopics is not bounded by it.",
    )
    default_partitions: int = setting(
        1,
        count(at_least=1, at_most=10_000),
        "Partitions of a topic whose creator does not say how many.",
    )
    segment_bytes: int = setting(
        GIB,
        # Positions in an index are int32, as in Kafka.
        size(at_least=MIB, at_most=INT32_MAX),
        "A partition's log is cut into files of this size; retention drops whole files.",
    )
    segment_ms: int = setting(
        7 * DAY_MS,
        duration(at_least=SECOND_MS),
        "A new file is also begun when the current one is this old.",
    )
    retention_ms: int = setting(
        7 * DAY_MS,
        duration(forever=True),
        "How long records are kept, unless the topic says otherwise.",
    )
    retention_bytes: int = setting(
        -1,
        size(at_least=0, unlimited=True),
        "How much of each partition is kept, unless the topic says otherwise.",
    )
    retention_check_interval_ms: int = setting(
        5 * MINUTE_MS,
        duration(at_least=100, at_most=HOUR_MS),
        "How often old segments, offsets and groups are looked for.",
    )
    compaction_check_interval_ms: int = setting(
        15 * SECOND_MS,
        duration(at_least=100, at_most=HOUR_MS),
        "How often compacted topics are looked at, whether one is worth cleaning.",
    )
    compaction_map_bytes: int = setting(
        128 * MIB,
        size(at_least=MIB),
        "Memory for the keys of one cleaning, about 200 bytes each; more keys take several.",
    )
    compaction_bytes_per_second: int = setting(
        -1,
        size(at_least=KIB, unlimited=True),
        "How much cleaning reads and writes in a second, at most.",
    )
    message_bytes_max: int = setting(
        MIB + 12,  # Kafka's default: 1 MiB of records and the 12 bytes before them in a batch
        size(at_least=KIB, at_most=INT32_MAX),
        "The largest record batch taken, after compression.",
    )
    frame_bytes_max: int = setting(
        100 * MIB,  # Kafka's socket.request.max.bytes
        size(at_least=64 * KIB, at_most=INT32_MAX),
        "The largest request taken; a larger one closes its connection.",
    )
    connections_max: int = setting(
        4_000,
        count(at_least=1, at_most=1_000_000),
        "Connections at one time; one more is closed at once. Each needs a file descriptor: there "
        "are at most as many as half of them, less 64.",
    )
    connections_per_address_max: int = setting(
        0,
        count(at_least=0, at_most=1_000_000),
        "The same for the connections of one client address (IPv6: of one network of 64 bits), "
        "this machine's own among them. 0: a quarter of connections_max.",
    )
    first_request_ms_max: int = setting(
        30 * SECOND_MS,
        duration(at_least=SECOND_MS, at_most=HOUR_MS),
        "After how long a connection is closed that has not sent a request yet. One that has may "
        "be silent for 10 minutes.",
    )
    requests_in_flight_max: int = setting(
        100,
        count(at_least=1, at_most=100_000),
        "Unanswered requests of one connection; beyond them its socket is not read.",
    )
    request_bytes_max: int = setting(
        256 * MIB,
        size(at_least=MIB),
        "Large requests that are being received, all connections together; beyond them sockets "
        "are not read.",
    )
    unsynced_bytes_max: int = setting(
        256 * MIB,
        size(at_least=MIB),
        "Written bytes that wait for their sync; beyond them producers wait.",
    )
    offsets_retention_ms: int = setting(
        7 * DAY_MS,
        duration(at_least=MINUTE_MS, forever=True),
        "How long the offsets of a consumer group without members are kept.",
    )
    group_initial_rebalance_delay_ms: int = setting(
        0,
        duration(at_most=5 * MINUTE_MS),
        "How long an empty group waits for more members before its first assignment. Kafka waits "
        "3s, for fleets that start together; here a lone consumer starts at once.",
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000,
        duration(at_least=1_000, at_most=30 * MINUTE_MS),
        "After which silence a member of a consumer group (group.protocol=consumer) is out.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000,
        duration(at_least=100, at_most=MINUTE_MS),
        "How often such members are told to heartbeat. A shorter one notices changes sooner.",
    )
    group_share_session_timeout_ms: int = setting(
        45_000,
        duration(at_least=1_000, at_most=30 * MINUTE_MS),
        "After which silence a member of a share group (a queue) is out.",
    )
    group_share_heartbeat_interval_ms: int = setting(
        5_000,
        duration(at_least=100, at_most=MINUTE_MS),
        "How often members of share groups are told to heartbeat.",
    )
    group_share_record_lock_ms: int = setting(
        30 * SECOND_MS,
        duration(at_least=SECOND_MS, at_most=HOUR_MS),
        "How long a member of a share group may hold a record before another gets it, unless the "
        "group says otherwise (share.record.lock.duration.ms).",
    )
    metrics_listen: Address | None = setting(  # noqa: RUF009 - the same
        None,
        address_or_none(),
        "Where metrics are served for Prometheus, as HTTP: docs/metrics.md. 127.0.0.1:9644 is "
        "usual.",
    )
    open_metrics: str = setting(
        "",
        sentence("the sentence that the broker asks for when it refuses to serve them"),
        "Metrics are served beyond loopback only if this says so in words: they need no login.",
    )
    log_level: str = setting(
        "info",
        choice("debug", "info", "warning", "error"),
        "How much the broker says about itself on stderr. debug: each request, too.",
    )

    def __post_init__(self) -> None:
        if self.message_bytes_max > self.frame_bytes_max:
            raise SettingsConflict(
                f"message_bytes_max ({format_size(self.message_bytes_max)}) is larger than "
                f"frame_bytes_max ({format_size(self.frame_bytes_max)}), the request that carries "
                "it: raise frame_bytes_max or lower message_bytes_max"
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise SettingsConflict("tls_certificate and tls_key belong together: give both")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise SettingsConflict(
                "tls_client_ca asks clients for certificates, which needs TLS: give "
                "tls_certificate and tls_key"
            )
        self._check_rules()

    def _check_rules(self) -> None:
        """Who writes of super users believes that others are bound by rules."""
        knows_clients = bool(self.sasl) or self.tls_client_ca is not None
        if self.authorization != "auto" or knows_clients:
            return
        for name in ("super_users", "allow_without_acl"):
            if getattr(self, name):
                raise SettingsConflict(
                    f"{name} is for access rules, and none are in force: clients do not say who "
                    "they are. Give sasl or tls_client_ca, or leave it out (authorization = "
                    '"off" says that this is meant)'
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Where jobs run: `millstream run`, and `App.run` in a program."""

    TABLE: ClassVar[str] = "spark"

    master: str = setting(
        "",
        sentence("local[2], spark://host:port or another master of Spark's, or none"),
        "The Spark to run jobs on. Without it, Spark runs in this process, on all cores.",
    )
    conf: tuple[tuple[str, str], ...] = setting(
        (),
        pairs(),
        "Settings of Spark's own, which win over ours: spark.driver.memory=4g.",
    )
    quick_start: bool = setting(
        False,
        switch(),
        "Start Spark in half the time, at lower peak rates: for tests and short runs.",
    )
    log_level: str = setting(
        "off",
        choice("off", "error", "warn", "info"),
        "How much Spark says on stderr. Why a job failed is said in any case.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The HTTP server of an application: `millstream serve`."""

    TABLE: ClassVar[str] = "web"

    listen: Address = setting(  # noqa: RUF009 - `setting` is `field` with our metadata
        Address("127.0.0.1", 8080),
        address(),
        "Where clients connect. Beyond loopback it needs a token and TLS: docs/guides/http_api.md.",
    )
    token_file: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file(),
        "The file whose first line is the token that clients must send; readable by its owner "
        "only.",
    )
    tls_certificate: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file(),
        "The certificate that clients see, in PEM format, its chain behind it. With it, the server "
        "speaks HTTPS.",
    )
    tls_key: Path | None = setting(  # noqa: RUF009 - the same
        None,
        file(),
        "The private key of that certificate.",
    )
    plain_http: str = setting(
        "",
        sentence("the sentence that the server asks for when it refuses to listen"),
        "A server beyond loopback without TLS starts only if this says so in words.",
    )
    hosts: tuple[str, ...] = setting(
        (),
        host_names(),
        "More names by which a server on loopback may be called, of a proxy before it. Requests by "
        "other names are refused: a page of another site could send them.",
    )
    connections_max: int = setting(
        4_096,
        count(at_least=16, at_most=1_000_000),
        "Connections at one time, fewer if the system allows fewer open files. One more ends the "
        "one that has waited longest without a request.",
    )
    connections_per_address_max: int = setting(
        1_024,
        count(at_least=1, at_most=1_000_000),
        "Of these, how many one client address may have; of IPv6, one network of 64 bits. Behind a "
        "proxy all clients have its address.",
    )
    head_ms_max: int = setting(
        10 * SECOND_MS,
        duration(at_least=100, at_most=HOUR_MS),
        "How long a client may take to send the head of a request, to complete a TLS handshake, or "
        "to send the body of a request that needs no token.",
    )
    body_bytes_max: int = setting(
        8 * MIB,
        size(at_least=KIB, at_most=GIB),
        "The largest body of a request.",
    )
    body_ms_max: int = setting(
        30 * SECOND_MS,
        duration(at_least=100, at_most=HOUR_MS),
        "How long the body of a request that has the token may take to arrive.",
    )
    rows_max: int = setting(
        10_000,
        count(at_least=1, at_most=100_000),
        "Rows of one request to publish.",
    )
    limit_max: int = setting(
        10_000,
        count(at_least=1, at_most=1_000_000),
        "Rows or changes of one answer.",
    )
    timeout_ms_max: int = setting(
        MINUTE_MS,
        duration(at_least=100, at_most=HOUR_MS),
        "How long a request may wait for a view, or for changes of it.",
    )
    requests_max: int = setting(
        512,
        count(at_least=1, at_most=100_000),
        "Requests that are answered at one time, feeds among them; one more is told to come later. "
        "Those that need no token do not count.",
    )
    threads_max: int = setting(
        16,
        count(at_least=1, at_most=1_000),
        "Calls into views at one time, and as many into topics; others wait.",
    )
    waits_max: int = setting(
        64,
        count(at_least=1, at_most=10_000),
        "Requests that wait for a view at one time, each in a thread of its own; one more is told "
        "to come later.",
    )
    feeds_max: int = setting(
        256,
        count(at_least=1, at_most=100_000),
        "Feeds at one time; one more is told to come later.",
    )
    heartbeat_ms: int = setting(
        15 * SECOND_MS,
        duration(at_least=100, at_most=HOUR_MS),
        "How often a silent stream of events says that it is there.",
    )
    idempotency_ms: int = setting(
        DAY_MS,
        duration(at_least=MINUTE_MS, at_most=30 * DAY_MS),
        "How long an Idempotency-Key is known.",
    )
    idempotency_bytes_max: int = setting(
        256 * MIB,
        size(at_least=MIB),
        "Memory for the keys that are known; beyond it new ones are told to come later.",
    )

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise SettingsConflict("tls_certificate and tls_key belong together: give both")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """Event sourcing: `app.aggregates` in a program."""

    TABLE: ClassVar[str] = "events"

    snapshot_every: int = setting(
        200,
        count(at_least=1, at_most=1_000_000),
        "After how many events of a stream its state is written to the topic of snapshots.",
    )
    states_max: int = setting(
        10_000,
        count(at_least=0, at_most=10_000_000),
        "States of aggregates that are kept in memory, of each kind; others are made of a snapshot "
        "and events when they are used.",
    )
    command_ids_max: int = setting(
        100_000,
        count(at_least=1, at_most=100_000_000),
        "Command ids that are remembered in each partition: a retry of one of them is a no-op.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What every command says of itself on stderr."""

    TABLE: ClassVar[str] = "log"

    format: str = setting(
        TEXT,
        choice(TEXT, JSON),
        "json: one JSON object a line, with time, level, logger and message.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Traces for OpenTelemetry. Where they go is said by its own variables, OTEL_*."""

    TABLE: ClassVar[str] = "telemetry"

    traces: bool = setting(
        False,
        switch(),
        "Send spans of what an app publishes, of its jobs' batches and of its views, by OTLP over "
        "HTTP: docs/guides/operating.md. Needs millstream[otel].",
    )


TABLES: tuple[type[Table], ...] = (
    ClientSettings,
    BrokerSettings,
    SparkSettings,
    WebSettings,
    EventSettings,
    LogSettings,
    TelemetrySettings,
)


def settings_of(table: type[Table]) -> tuple[Setting, ...]:
    return tuple(
        Setting(
            table=table.TABLE,
            name=item.name,
            kind=item.metadata["kind"],
            help=item.metadata["help"],
            default=item.default,
        )
        for item in fields(cast(Any, table))
    )


# --- Errors ----------------------------------------------------------------------------------


class BadSetting(Rejected):
    def __init__(self, *, setting: Setting, value: object, origin: str) -> None:
        super().__init__(
            f"{setting.name}: {value!r} from {origin} is not allowed. Give {setting.kind.allowed}"
        )
        self.setting, self.value, self.origin = setting, value, origin


class UnknownSetting(Rejected):
    def __init__(self, *, table: str, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no {table} setting {name!r}. {_hint(name, list(known))}")
        self.table, self.name, self.known = table, name, known


class SettingsConflict(Rejected):
    """Two settings that are fine alone and impossible together."""


class BadConfigFile(Rejected):
    def __init__(self, *, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


# --- Reading them ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A config file's tables, every name in it known. Without a file there are none."""

    path: Path = Path(CONFIG_FILE)
    tables: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def read_config_file(env: Mapping[str, str]) -> ConfigFile:
    """`millstream.toml` of the working directory, or the file that MILLSTREAM_CONFIG names."""
    path = Path(env.get(CONFIG_FILE_ENV) or CONFIG_FILE)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if CONFIG_FILE_ENV in env:
            problem = f"no such file; {CONFIG_FILE_ENV} names it"
            raise BadConfigFile(path=path, problem=problem) from None
        return ConfigFile(path=path)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfigFile(path=path, problem=f"not valid TOML: {error}") from None
    _check_names(path, tables)
    return ConfigFile(path=path, tables=tables)


def _check_names(path: Path, tables: Mapping[str, object]) -> None:
    """A misspelt name would be a setting that silently does nothing."""
    known = {table.TABLE: [item.name for item in settings_of(table)] for table in TABLES}
    for table, values in tables.items():
        if table not in known or not isinstance(values, dict):
            problem = f"no table [{table}]. {_hint(table, list(known))}"
            raise BadConfigFile(path=path, problem=problem)
        for name in values:
            if name not in known[table]:
                problem = f"[{table}] has no setting {name}. {_hint(name, known[table])}"
                raise BadConfigFile(path=path, problem=problem)


def _hint(word: str, known: list[str]) -> str:
    return did_you_mean(word, known, otherwise=f"There are: {', '.join(known)}")


def unknown_variables(env: Mapping[str, str]) -> list[str]:
    """What to say of variables that look like ours and set nothing: most are misspelt."""
    known = [CONFIG_FILE_ENV, *(item.env for table in TABLES for item in settings_of(table))]
    strangers = [name for name in env if name.startswith(ENV_PREFIX) and name not in known]
    return [f"{name} is set, and no setting{_nearest_name(name, known)}" for name in strangers]


def _nearest_name(word: str, known: list[str]) -> str:
    """Compared without the front that they share."""
    ends = {name.removeprefix(ENV_PREFIX): name for name in known}
    near = difflib.get_close_matches(word.removeprefix(ENV_PREFIX), list(ends), n=1)
    return f". Did you mean {ends[near[0]]}?" if near else ": docs/settings.md has them all."


def load(
    table: type[TableT],
    *,
    options: Mapping[str, str | None] | None = None,
    env: Mapping[str, str] | None = None,
    file: ConfigFile | None = None,
) -> TableT:
    """The table's settings; an option that is None was not given."""
    env = os.environ if env is None else env
    file = read_config_file(env) if file is None else file
    _check_options(table, options or {})
    values = {}
    for item in settings_of(table):
        given = _nearest(item, options or {}, env, file)
        if given is not None:
            values[item.name] = _parse(item, *given)
    return table(**values)


def is_given(table: type[TableT], name: str, *, options: Mapping[str, str | None]) -> bool:
    """Whether anybody has set it, be it to its default."""
    [item] = [one for one in settings_of(table) if one.name == name]
    return _nearest(item, options, os.environ, read_config_file(os.environ)) is not None


def _check_options(table: type[TableT], options: Mapping[str, str | None]) -> None:
    """Typer knows the options; this is for names that a program gives (`Broker(...)`)."""
    names = [item.name for item in settings_of(table)]
    for name in options:
        if name not in names:
            raise UnknownSetting(table=table.TABLE, name=name, known=names)


def _nearest(
    item: Setting, options: Mapping[str, str | None], env: Mapping[str, str], file: ConfigFile
) -> tuple[object, str] | None:
    """The given value and where it came from."""
    if (option := options.get(item.name)) is not None:
        return option, item.option
    if item.env in env:
        return env[item.env], item.env
    in_file = file.tables.get(item.table, {})
    if item.name in in_file:
        return in_file[item.name], f"[{item.table}] in {file.path}"
    return None


def _parse(item: Setting, value: object, origin: str) -> Any:
    text = str(value).lower() if isinstance(value, bool) else value
    if not isinstance(text, str | int):
        raise BadSetting(setting=item, value=value, origin=origin)
    try:
        return item.kind.parse(str(text))
    except ValueError:
        raise BadSetting(setting=item, value=value, origin=origin) from None


# --- Writing them down -----------------------------------------------------------------------

INTRODUCTION = f"""\
# Settings

<!-- Generated: python -m millstream.settings > docs/settings.md -->

Every setting can be given in three places; the nearest wins:

1. an option of the command: `--segment-bytes 64MiB`
2. an environment variable: `MILLSTREAM_BROKER_SEGMENT_BYTES=64MiB`
3. `{CONFIG_FILE}` in the working directory, or the file that `{CONFIG_FILE_ENV}` names:

```toml
[broker]
segment_bytes = "64MiB"
retention_ms = "30d"
```

The option is the setting's name with dashes. Sizes take `KiB`, `MiB`, `GiB`, `TiB` (or the decimal
`kB`, `MB`, `GB`, `TB`), durations `ms`, `s`, `m`, `h`, `d`, `w`; a plain number counts the unit in
the table. A name that the file should not have is an error, with the nearest one that exists.
"""

COLUMNS = ("Setting", "Environment", "Unit", "Default", "Allowed", "Meaning")


def to_markdown() -> str:
    return "\n".join([INTRODUCTION, *map(_table_to_markdown, TABLES)])


def _table_to_markdown(table: type[Table]) -> str:
    lines = [f"## [{table.TABLE}]", "", str(table.__doc__), ""]
    lines += [_row(COLUMNS), _row(["---"] * len(COLUMNS))]
    for item in settings_of(table):
        default, kind = f"`{item.default_text}`", item.kind
        lines.append(
            _row([f"`{item.name}`", f"`{item.env}`", kind.unit, default, kind.allowed, item.help])
        )
    return "\n".join(lines) + "\n"


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(to_markdown(), end="")
