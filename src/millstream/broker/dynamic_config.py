"""Configs of the broker in Kafka's words, when a client wants to change one while it runs.

Pure. What is the default of a topic config acts here, too, and is checked like it. What Kafka
changes at run time and has no meaning here is accepted, kept and said to be without effect. What
has a meaning here, but is set when the broker starts, is refused with the option that sets it; so
is what Kafka does not change either.
"""

from collections.abc import Mapping

from millstream.base.errors import Rejected
from millstream.broker.topic_config import (
    NO_EFFECT,
    TOPIC_CONFIGS,
    TOPIC_NAME_OF_BROKER_NAME,
    ConfigKey,
    ConfigType,
    InvalidConfig,
    check_topic_config,
    fraction,
    one_of,
    whole_number,
)


class InvalidBrokerConfig(Rejected):
    """INVALID_REQUEST, as Kafka has it, where a topic's config is INVALID_CONFIG."""

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(f"broker config {name}: {reason}")
        self.name, self.reason = name, reason


# Kafka changes these while it runs; here they are options of `millstream broker`.
SET_AT_START: Mapping[str, str] = {
    "listeners": "--listen",
    "listener.security.protocol.map": "--tls-certificate and --sasl",
    "log.cleaner.backoff.ms": "--compaction-check-interval-ms",
    "log.cleaner.dedupe.buffer.size": "--compaction-map-bytes",
    "log.cleaner.io.max.bytes.per.second": "--compaction-bytes-per-second",
    "max.connections": "--connections-max",
    "max.connections.per.ip": "--connections-per-address-max",
    "principal.builder.class": "--tls-client-ca and --sasl",
}
# TLS and logins, also of one listener (listener.name.sasl_ssl.ssl.keystore.location).
SECURITY_PREFIXES = ("listener.name.", "sasl.", "ssl.")
SECURITY_OPTIONS = "--tls-certificate, --tls-key, --tls-client-ca and --sasl"

_WHOLE_NUMBERS = """
background.threads group.consumer.assignment.interval.ms group.coordinator.cached.buffer.max.bytes
group.share.assignment.interval.ms group.streams.assignment.interval.ms log.cleaner.io.buffer.size
log.cleaner.threads max.connection.creation.rate num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers producer.id.expiration.ms
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.follower.thread.pool.size
remote.log.reader.threads share.coordinator.cached.buffer.max.bytes
leader.replication.throttled.rate follower.replication.throttled.rate
replica.alter.log.dirs.io.max.bytes.per.second
"""
_BOOLEANS = """
follower.fetch.last.tiered.offset.enable transaction.partition.verification.enable
"""
_WORDS = """
config.providers cordoned.log.dirs max.connections.per.ip.overrides metric.reporters
"""
_FRACTIONS = "log.cleaner.io.buffer.load.factor"

# Known to Kafka, changed there while it runs, and without a meaning on a single node.
WITHOUT_EFFECT: Mapping[str, ConfigKey] = {
    name: ConfigKey(name=name, type=type_, default="", check=check, help=NO_EFFECT)
    for names, type_, check in (
        (_WHOLE_NUMBERS, ConfigType.LONG, whole_number(0)),
        (_BOOLEANS, ConfigType.BOOLEAN, one_of("true", "false")),
        (_WORDS, ConfigType.LIST, lambda _: None),
        (_FRACTIONS, ConfigType.DOUBLE, fraction),
    )
    for name in names.split()
}

# What Kafka 4.3 does not change while it runs either: test_broker_configs.py asks it.
_READ_ONLY = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
advertised.listeners alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name
auto.create.topics.enable auto.leader.rebalance.enable broker.heartbeat.interval.ms broker.id
broker.rack broker.session.timeout.ms client.quota.callback.class
connection.failed.authentication.delay.ms connections.max.idle.ms connections.max.reauth.ms
controlled.shutdown.enable controller.listener.names controller.quorum.append.linger.ms
controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms controller.quorum.voters controller.quota.window.num
controller.quota.window.size.seconds controller.socket.timeout.ms create.topic.policy.class.name
default.replication.factor delegation.token.expiry.check.interval.ms
delegation.token.expiry.time.ms delegation.token.max.lifetime.ms delegation.token.secret.key
delete.records.purgatory.purge.interval.requests delete.topic.enable early.start.listeners
fetch.max.bytes fetch.purgatory.purge.interval.requests group.consumer.assignors
group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms
group.consumer.max.size group.consumer.migration.policy group.consumer.min.assignment.interval.ms
group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
group.consumer.session.timeout.ms group.coordinator.append.linger.ms
group.coordinator.background.threads group.coordinator.rebalance.protocols
group.coordinator.threads group.initial.rebalance.delay.ms group.max.session.timeout.ms
group.max.size group.min.session.timeout.ms group.share.assignors group.share.delivery.count.limit
group.share.heartbeat.interval.ms group.share.max.assignment.interval.ms
group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms
group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms
group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
group.share.partition.max.record.locks group.share.record.lock.duration.ms
group.share.session.timeout.ms group.streams.heartbeat.interval.ms
group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
group.streams.num.standby.replicas group.streams.session.timeout.ms
initial.broker.registration.timeout.ms inter.broker.listener.name
kafka.metrics.polling.interval.secs kafka.metrics.reporters leader.imbalance.check.interval.seconds
log.cleaner.enable log.dir log.dir.failure.timeout.ms log.dirs
log.flush.offset.checkpoint.interval.ms log.flush.scheduler.interval.ms
log.flush.start.offset.checkpoint.interval.ms log.retention.check.interval.ms log.retention.hours
log.retention.minutes log.roll.hours log.roll.jitter.hours
max.incremental.fetch.session.cache.slots max.request.partition.size.limit metadata.log.dir
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
metadata.max.retention.bytes metadata.max.retention.ms metrics.num.samples metrics.recording.level
metrics.sample.window.ms node.id num.partitions num.replica.alter.log.dirs.threads
offset.metadata.max.bytes offsets.commit.timeout.ms offsets.load.buffer.size
offsets.retention.check.interval.ms offsets.retention.minutes offsets.topic.compression.codec
offsets.topic.num.partitions offsets.topic.replication.factor offsets.topic.segment.bytes
process.roles producer.purgatory.purge.interval.requests queued.max.request.bytes
queued.max.requests quota.window.num quota.window.size.seconds
remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
remote.log.storage.manager.class.name remote.log.storage.manager.class.path
remote.log.storage.manager.impl.prefix remote.log.storage.system.enable replica.fetch.backoff.ms
replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes
replica.fetch.wait.max.ms replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms
replica.selector.class replica.socket.receive.buffer.bytes replica.socket.timeout.ms
replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class
sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
sasl.server.callback.handler.class sasl.server.max.receive.size security.inter.broker.protocol
security.providers share.coordinator.append.linger.ms share.coordinator.load.buffer.size
share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.replication.factor
share.coordinator.state.topic.segment.bytes share.coordinator.threads
share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
socket.listen.backlog.size socket.receive.buffer.bytes socket.request.max.bytes
socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes ssl.principal.mapping.rules
telemetry.max.bytes transaction.abort.timed.out.transaction.cleanup.interval.ms
transaction.max.timeout.ms transaction.remove.expired.transaction.cleanup.interval.ms
transaction.state.log.load.buffer.size transaction.state.log.min.isr
transaction.state.log.num.partitions transaction.state.log.replication.factor
transaction.state.log.segment.bytes transaction.two.phase.commit.enable
transactional.id.expiration.ms
"""
READ_ONLY = frozenset(_READ_ONLY.split())


def _unknown(name: str) -> ConfigKey:
    """Kafka takes any other name, as its plugins have configs of their own."""
    return ConfigKey(
        name=name, type=ConfigType.STRING, default="", check=lambda _: None, help=NO_EFFECT
    )


def broker_config_key(name: str) -> ConfigKey:
    """What is known of a config that can be changed while the broker runs."""
    topic_name = TOPIC_NAME_OF_BROKER_NAME.get(name)
    if topic_name is not None:
        return TOPIC_CONFIGS[topic_name]
    return WITHOUT_EFFECT.get(name) or _unknown(name)


def is_secret(name: str) -> bool:
    """Nobody knows what a config of somebody's plugin holds: it is neither kept nor shown."""
    return name not in TOPIC_NAME_OF_BROKER_NAME and name not in WITHOUT_EFFECT


def check_broker_config(name: str, value: str | None) -> str:
    """What is kept of a config that is changed while the broker runs; else why it cannot be."""
    if value is None:
        raise InvalidBrokerConfig(name=name, reason="a value is required")
    topic_name = TOPIC_NAME_OF_BROKER_NAME.get(name)
    if topic_name is not None:
        try:
            return check_topic_config(topic_name, value)
        except InvalidConfig as error:
            raise InvalidBrokerConfig(name=name, reason=f"{value!r} {error.reason}") from error
    option = _option_at_start(name)
    if option is not None:
        reason = f"it cannot be changed while the broker runs: restart it with {option}"
        raise InvalidBrokerConfig(name=name, reason=reason)
    if name in READ_ONLY:
        raise InvalidBrokerConfig(name=name, reason="it cannot be changed while the broker runs")
    reason_against = broker_config_key(name).check(value)
    if reason_against is not None:
        raise InvalidBrokerConfig(name=name, reason=f"{value!r} {reason_against}")
    return "" if is_secret(name) else value


def _option_at_start(name: str) -> str | None:
    if name.startswith(SECURITY_PREFIXES):
        return SECURITY_OPTIONS
    return SET_AT_START.get(name)
