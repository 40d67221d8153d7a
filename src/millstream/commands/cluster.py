"""What the client commands ask of a cluster and change in it, through confluent-kafka's admin.

Every call ends within a limit, and fails in our own words (connecting.py).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from millstream.base.errors import MillstreamError
from millstream.base.librdkafka import topic_id_text
from millstream.base.offsets import OffsetRange
from millstream.commands.access_rules import (
    AccessRule,
    Resource,
    exactly,
    filter_for,
    from_binding,
    to_binding,
)
from millstream.commands.connecting import (
    ANSWER_SECONDS_MAX,
    CONNECT_SECONDS_MAX,
    BrokerUnreachable,
    HungUp,
    NoAnswerInTime,
    NotAllowed,
    Partition,
    PartitionNotFound,
    RefusedByBroker,
    TopicNotFound,
    admin_api,
    bootstrap,
    client_config,
    error_from,
    log_in,
    reach,
    trouble_from,
)
from millstream.commands.lag import Member, Retention
from millstream.commands.positions import AtTime, Position, resolve
from millstream.setting_kinds import Address
from millstream.settings import ClientSettings, load

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

T = TypeVar("T")

# Of a user's password, as Kafka's own tool; more would make each login slower.
SCRAM_ITERATIONS = 4_096
RETRY_PAUSE_SECONDS = 0.1
# Of who answers nothing else: long enough for TLS and a login, and short beside the wait before.
GREETING_SECONDS_MAX = 1.0

# Answers that a coordinator gives while it starts: the same question succeeds soon after.
STARTING_UP = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLayout:
    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One config of a topic; `own` when the topic sets it, rather than a default."""

    value: str
    own: bool


class GroupTasks(NamedTuple):
    """The tasks of a member of a streams group, by name (0_1)."""

    active: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    id: str
    state: str
    protocol: str
    members: Mapping[Member, tuple[Partition, ...]]
    # Of a streams group.
    tasks: Mapping[Member, GroupTasks] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        return self.state != "dead"

    @property
    def is_hidden(self) -> bool:
        return self.state == "hidden"

    @property
    def is_share(self) -> bool:
        return self.protocol == "share"


def hidden_group(name: str) -> Group:
    """One that is there; a topic that its members read may not be seen, and so not its members."""
    return Group(id=name, state="hidden", protocol="unknown", members={})


def open_cluster(brokers: str | None) -> "Cluster":
    addresses = load(ClientSettings, options={"brokers": brokers}).brokers
    reach(addresses)
    log_in(addresses)
    return Cluster(addresses)


class Cluster:
    """Questions and changes; each raises ours, never librdkafka's, errors.

    `is_silent` from the first time that no answer came: librdkafka may then ask nobody for minutes
    after a broker is back, so who lives long opens another one.
    """

    def __init__(self, brokers: tuple[Address, ...]) -> None:
        self.brokers = brokers
        self.is_silent = False
        self._troubles: list[KafkaError] = []
        on_error = {"error_cb": self._troubles.append}
        self._admin = admin_api().AdminClient(client_config(brokers) | on_error)

    # Topics

    def topic_names(self) -> list[str]:
        return sorted(self._metadata())

    def troubles(self) -> list[str]:
        """What the brokers cannot do at present, a sentence each; none where they do not say it."""
        from millstream.queues.access import access_from
        from millstream.queues.broker_health import health_if_told

        try:
            access = access_from(client_config(self.brokers))
        except MillstreamError:  # a login that our own client does not know
            return []
        return health_if_told(access).troubles()

    def partition_counts(self) -> dict[str, int]:
        """How many each topic has, of all that the caller may see."""
        return {name: len(layout) for name, layout in self._metadata().items()}

    def require_topics(self, topics: Iterable[str], *, creatable: bool = False) -> dict[str, int]:
        """How many partitions each has; TopicNotFound for the first that is missing."""
        metadata = self._metadata()
        for topic in topics:
            if topic not in metadata:
                raise TopicNotFound(topic=topic, known=metadata, creatable=creatable)
        return {topic: len(metadata[topic]) for topic in topics}

    def visible_topics(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each has that the caller may see."""
        metadata = self._metadata()
        return {topic: len(metadata[topic]) for topic in topics if topic in metadata}

    def partitions_of(self, topics: Iterable[str]) -> list[Partition]:
        return self.choose_partitions(topics, [])

    def choose_partitions(
        self, topics: Iterable[str], numbers: list[int], *, creatable: bool = False
    ) -> list[Partition]:
        """All partitions of the topics, or only those with these numbers."""
        counts = self.require_topics(topics, creatable=creatable)
        for topic, count in counts.items():
            for number in numbers:
                if number >= count:
                    raise PartitionNotFound(partition=Partition(topic, number), count=count)
        return [
            Partition(topic, number)
            for topic, count in counts.items()
            for number in (sorted(set(numbers)) or range(count))
        ]

    def topic_id(self, topic: str) -> str:
        from confluent_kafka import TopicCollection

        wanted = TopicCollection([topic])
        answers = self._ask(
            lambda: self._admin.describe_topics(wanted), doing=f"describe topic {topic}"
        )
        return topic_id_text(answers[topic].topic_id)

    def layout(self, topic: str) -> list[PartitionLayout]:
        return self._metadata()[topic]

    def _metadata(self) -> dict[str, list[PartitionLayout]]:
        listing = self._translated(
            lambda: self._admin.list_topics(timeout=CONNECT_SECONDS_MAX), doing="list topics"
        )
        return {
            name: [
                PartitionLayout(
                    number=part.id,
                    leader=part.leader,
                    replicas=tuple(part.replicas),
                    in_sync=tuple(part.isrs),
                )
                for part in sorted(topic.partitions.values(), key=lambda part: part.id)
            ]
            for name, topic in listing.topics.items()
        }

    def create_topic(
        self, topic: str, *, partitions: int, replication: int, config: dict[str, str]
    ) -> None:
        new = admin_api().NewTopic(
            topic, num_partitions=partitions, replication_factor=replication, config=config
        )
        doing = f"create topic {topic}"
        self._ask(lambda: self._admin.create_topics([new]), doing=doing)
        self._wait(
            lambda: self._has_leaders(topic, partitions) or self._is_hidden(topic), doing=doing
        )

    def delete_topic(self, topic: str) -> None:
        doing = f"delete topic {topic}"
        self._ask(lambda: self._admin.delete_topics([topic]), doing=doing)
        self._wait(lambda: topic not in self._metadata(), doing=doing)

    def add_partitions(self, topic: str, *, total: int) -> None:
        doing = f"add partitions to topic {topic}"
        new = admin_api().NewPartitions(topic, total)
        self._ask(lambda: self._admin.create_partitions([new]), doing=doing)
        self._wait(lambda: self._has_leaders(topic, total), doing=doing)

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        layout = self._metadata().get(topic, [])
        return len(layout) >= max(1, partitions) and all(part.leader >= 0 for part in layout)

    def _is_hidden(self, topic: str) -> bool:
        """Who may create a topic may not yet see it; that it is there is not told either."""
        try:
            self.topic_id(topic)
        except NotAllowed:
            return True
        except RefusedByBroker:  # not known yet
            pass
        return False

    def trim(self, before: Mapping[Partition, int]) -> None:
        """Delete the records before each offset."""
        wanted = [_topic_partition(part, offset) for part, offset in before.items()]
        self._ask(lambda: self._admin.delete_records(wanted), doing="delete records")

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
        return self._configs(topics)

    def visible_configs(self, topics: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
        """Without the topics whose configs the caller may not see: that is a right of its own."""
        return self._configs(topics, absent=("TOPIC_AUTHORIZATION_FAILED",))

    def _configs(
        self, topics: Iterable[str], *, absent: tuple[str, ...] = ()
    ) -> dict[str, dict[str, ConfigValue]]:
        names = list(topics)
        wanted = [
            admin_api().ConfigResource(admin_api().ResourceType.TOPIC, topic) for topic in names
        ]
        if not wanted:
            return {}
        answers = self._ask(
            lambda: self._admin.describe_configs(wanted),
            doing=f"read the configs of topic {', '.join(names)}",
            absent=absent,
        )
        own = admin_api().ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            resource.name: {
                name: ConfigValue(value=entry.value, own=entry.source == own)
                for name, entry in entries.items()
            }
            for resource, entries in answers.items()
            if entries is not None
        }

    def retentions(self, topics: Iterable[str]) -> dict[str, Retention]:
        return {topic: retention_from(config) for topic, config in self.configs(topics).items()}

    def visible_retentions(self, topics: Iterable[str]) -> dict[str, Retention]:
        visible = self.visible_configs(topics)
        return {topic: retention_from(config) for topic, config in visible.items()}

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """None goes back to the broker's default."""
        entries = [
            admin_api().ConfigEntry(
                name,
                value,
                incremental_operation=(
                    admin_api().AlterConfigOpType.DELETE
                    if value is None
                    else admin_api().AlterConfigOpType.SET
                ),
            )
            for name, value in changes.items()
        ]
        resource = admin_api().ConfigResource(
            admin_api().ResourceType.TOPIC, topic, incremental_configs=entries
        )
        doing = f"alter topic {topic}"
        self._ask(lambda: self._admin.incremental_alter_configs([resource]), doing=doing)
        unset = [name for name, value in changes.items() if value is None]
        self._wait(lambda: not self._own_configs(topic) & set(unset), doing=doing)

    def _own_configs(self, topic: str) -> set[str]:
        return {name for name, entry in self.configs([topic])[topic].items() if entry.own}

    # Offsets

    def available(
        self, partitions: Iterable[Partition], *, uncommitted: bool = True
    ) -> dict[Partition, OffsetRange]:
        wanted = list(partitions)
        starts = self._offsets(
            dict.fromkeys(wanted, admin_api().OffsetSpec.earliest()), uncommitted
        )
        ends = self._offsets(dict.fromkeys(wanted, admin_api().OffsetSpec.latest()), uncommitted)
        return {
            part: OffsetRange(start=starts[part].offset, end=ends[part].offset) for part in wanted
        }

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        latest = admin_api().OffsetSpec.latest()
        found = self._offsets(dict.fromkeys(partitions, latest))
        return {part: info.offset for part, info in found.items()}

    def offsets_at_time(
        self, partitions: Iterable[Partition], *, time_ms: int
    ) -> dict[Partition, int | None]:
        """The first record of that time or later; None where there is none."""
        spec = admin_api().OffsetSpec.for_timestamp(max(0, time_ms))
        found = self._offsets(dict.fromkeys(partitions, spec))
        return {part: None if info.offset < 0 else info.offset for part, info in found.items()}

    def newest_times_ms(self, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        found = self._offsets(dict.fromkeys(partitions, admin_api().OffsetSpec.max_timestamp()))
        return {part: None if at.timestamp < 0 else at.timestamp for part, at in found.items()}

    def _offsets(
        self, wanted: Mapping[Partition, Any], uncommitted: bool = True
    ) -> dict[Partition, Any]:
        from confluent_kafka import IsolationLevel

        if not wanted:
            return {}
        level = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        specs = {_topic_partition(part): spec for part, spec in wanted.items()}
        answers = self._ask(
            lambda: self._admin.list_offsets(specs, isolation_level=level), doing="read offsets"
        )
        return {Partition(key.topic, key.partition): info for key, info in answers.items()}

    def resolve(
        self,
        position: Position,
        available: Mapping[Partition, OffsetRange],
        committed: Mapping[Partition, int] | None = None,
    ) -> dict[Partition, int]:
        """The offset that `position` means in each partition."""
        at_time: dict[Partition, int | None] = {}
        if isinstance(position, AtTime):
            at_time = self.offsets_at_time(available, time_ms=position.time_ms)
        return {
            part: resolve(
                position,
                available=within,
                committed=(committed or {}).get(part),
                at_time=at_time.get(part),
            )
            for part, within in available.items()
        }

    def times_of_records(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """When the first record at or after each offset was written, where one is found in time."""
        from confluent_kafka import Consumer

        if not offsets:
            return {}
        config = client_config(self.brokers) | {
            "group.id": "millstream-cli",  # never joined, and never committed to
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1,
            "fetch.message.max.bytes": 4096,  # one record is enough; its batch still comes whole
        }
        found: dict[Partition, int] = {}
        consumer = Consumer(config)
        try:
            consumer.assign([_topic_partition(part, at) for part, at in offsets.items()])
            deadline = time.monotonic() + CONNECT_SECONDS_MAX
            while len(found) < len(offsets) and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is None or message.error():
                    continue
                part = Partition(str(message.topic()), message.partition() or 0)
                if part not in found:
                    found[part] = message.timestamp()[1]
                    consumer.pause([_topic_partition(part)])
        finally:
            consumer.close()
        return found

    # Groups

    def group_names(self) -> list[str]:
        listing = self._ask_one(self._admin.list_consumer_groups, doing="list groups")
        return sorted(group.group_id for group in listing.valid)

    def groups(self, names: Iterable[str]) -> dict[str, Group]:
        wanted = list(names)
        if not wanted:
            return {}
        answers = self._ask(
            lambda: self._admin.describe_consumer_groups(wanted),
            doing=f"describe group {', '.join(wanted)}",
            absent=("GROUP_ID_NOT_FOUND",),
        )
        return {name: _group_from(name, answers[name]) for name in wanted}

    def listed_groups(self, names: Iterable[str]) -> dict[str, Group]:
        """What may be seen of each: a broker denies a whole group for one topic of its members."""
        wanted = list(names)
        try:
            return self.groups(wanted)
        except NotAllowed:
            return {name: self._listed_group(name) for name in wanted}

    def _listed_group(self, name: str) -> Group:
        try:
            return self.groups([name])[name]
        except NotAllowed:
            return hidden_group(name)

    def committed(self, group: str) -> dict[Partition, int]:
        from confluent_kafka import ConsumerGroupTopicPartitions

        request = ConsumerGroupTopicPartitions(group)
        answers = self._ask(
            lambda: self._admin.list_consumer_group_offsets([request]),
            doing=f"read the offsets of group {group}",
            absent=("GROUP_ID_NOT_FOUND",),
        )
        found = answers[group].topic_partitions if answers[group] else []
        return {Partition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions

        wanted = [_topic_partition(part, offset) for part, offset in offsets.items()]
        doing = f"reset group {group}"
        answers = self._ask(
            lambda: self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, wanted)]
            ),
            doing=doing,
        )
        for at in answers[group].topic_partitions:
            if at.error:
                raise error_from(at.error, doing=doing, brokers=bootstrap(self.brokers))

    def delete_group(self, group: str) -> None:
        self._ask(
            lambda: self._admin.delete_consumer_groups([group]), doing=f"delete group {group}"
        )

    # Users

    def users(self) -> dict[str, list[str]]:
        """The mechanisms by which each can log in."""
        api = admin_api()
        self._require_describe(doing="list users")
        found = self._ask_one(self._admin.describe_user_scram_credentials, doing="list users")
        names = {
            api.ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256",
            api.ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512",
        }
        return {
            user: [names[info.mechanism] for info in found[user].scram_credential_infos]
            for user in sorted(found)
        }

    def _require_describe(self, *, doing: str) -> None:
        """librdkafka 2.16 frees a wild pointer where a broker, ours or Kafka's, refuses to list."""
        cluster = self._ask_one(
            lambda: self._admin.describe_cluster(include_authorized_operations=True), doing=doing
        )
        if admin_api().AclOperation.DESCRIBE not in (cluster.authorized_operations or ()):
            raise NotAllowed(doing=doing, missing="describe on the cluster")

    def set_password(self, user: str, password: str) -> None:
        """For both mechanisms, one after the other: Kafka takes one change of a user at a time."""
        api = admin_api()
        for mechanism in (api.ScramMechanism.SCRAM_SHA_256, api.ScramMechanism.SCRAM_SHA_512):
            info = api.ScramCredentialInfo(mechanism, SCRAM_ITERATIONS)
            change = api.UserScramCredentialUpsertion(user, info, password.encode())
            self._change_user(user, change, doing=f"add user {user}")

    def remove_user(self, user: str, mechanisms: Iterable[str]) -> None:
        api = admin_api()
        for name in mechanisms:
            mechanism = api.ScramMechanism[name.replace("-", "_")]
            change = api.UserScramCredentialDeletion(user, mechanism)
            self._change_user(user, change, doing=f"remove user {user}")

    def _change_user(self, user: str, change: Any, *, doing: str) -> None:
        self._ask(lambda: self._admin.alter_user_scram_credentials([change]), doing=doing)

    # Access rules

    def rules(self, resources: Sequence[Resource], principals: Sequence[str]) -> list[AccessRule]:
        """Those that decide about one of the resources, and are of one of the principals."""
        of_resources: Sequence[Resource | None] = resources or [None]
        of_principals: Sequence[str | None] = principals or [None]
        found = {
            from_binding(binding)
            for resource in of_resources
            for principal in of_principals
            for binding in self._describe_rules(filter_for(resource, principal))
        }
        return sorted(found)

    def _describe_rules(self, wanted: Any) -> list[Any]:
        found: list[Any] = self._ask_one(
            lambda: self._admin.describe_acls(wanted), doing="list access rules"
        )
        return found

    def add_rules(self, rules: Iterable[AccessRule]) -> None:
        bindings = [to_binding(rule) for rule in rules]
        self._ask(lambda: self._admin.create_acls(bindings), doing="add access rules")

    def remove_rules(self, rules: Iterable[AccessRule]) -> None:
        filters = [exactly(rule) for rule in rules]
        self._ask(lambda: self._admin.delete_acls(filters), doing="remove access rules")

    # One way to ask, one way to fail

    def _ask(
        self, call: Callable[[], Mapping[Any, Any]], *, doing: str, absent: tuple[str, ...] = ()
    ) -> dict[Any, Any]:
        """The answers of one admin call by key. A code in `absent` is the answer None."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                return {key: self._answer(future, absent) for key, future in dict(call()).items()}
            except TimeoutError:
                self.is_silent = True
                raise (self._trouble() or NoAnswerInTime(doing=doing)) from None
            except _kafka_exception() as error:
                if error.args[0].name() not in STARTING_UP or time.monotonic() > deadline:
                    raise self._error(error, doing=doing) from None
                time.sleep(RETRY_PAUSE_SECONDS)

    def _wait(self, is_so: Callable[[], bool], *, doing: str) -> None:
        """A Kafka controller answers before its brokers know: be done when they do."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not is_so():
            if time.monotonic() > deadline:
                raise NoAnswerInTime(doing=doing)
            time.sleep(RETRY_PAUSE_SECONDS)

    def _ask_one(self, call: Callable[[], Any], *, doing: str) -> Any:
        return self._ask(lambda: {"": call()}, doing=doing)[""]

    def _answer(self, future: Any, absent: tuple[str, ...]) -> Any:
        try:
            answer = future.result(timeout=ANSWER_SECONDS_MAX)
            for error in getattr(answer, "errors", ()):  # of a listing: what one broker said
                raise _kafka_exception()(error)
            return answer
        except _kafka_exception() as error:
            if error.args[0].name() in absent:
                return None
            raise

    def _translated(self, call: Callable[[], T], *, doing: str) -> T:
        try:
            return call()
        except _kafka_exception() as error:
            raise self._error(error, doing=doing) from None

    def _error(self, error: Exception, *, doing: str) -> MillstreamError:
        brokers = bootstrap(self.brokers)
        translated = error_from(error.args[0], doing=doing, brokers=brokers)
        if isinstance(translated, NoAnswerInTime | BrokerUnreachable):
            self.is_silent = True
        if isinstance(translated, NoAnswerInTime):
            return self._trouble() or translated
        if isinstance(translated, BrokerUnreachable):
            return self._trouble() or self._hung_up(doing) or translated
        return translated

    def _hung_up(self, doing: str) -> MillstreamError | None:
        """Somebody listens there, and no request gets through."""
        try:
            reach(self.brokers, seconds_max=GREETING_SECONDS_MAX)
        except BrokerUnreachable:
            return None
        if is_mute(self.brokers):
            return NoAnswerInTime(doing=doing)
        return HungUp(brokers=bootstrap(self.brokers))

    def _trouble(self) -> MillstreamError | None:
        """What librdkafka has met on its way to the broker, if it was more than silence."""
        self._admin.poll(0)
        user = load(ClientSettings).user
        return trouble_from(self._troubles, brokers=bootstrap(self.brokers), user=user)


def is_mute(brokers: tuple[Address, ...]) -> bool:
    """Who listens there neither answers nor hangs up: a process that is stopped, or overloaded."""
    import asyncio

    from millstream.queues.access import access_from
    from millstream.queues.connection import connect_to_any

    async def greet() -> None:
        async with asyncio.timeout(GREETING_SECONDS_MAX):
            (await connect_to_any(access_from(client_config(brokers)))).close()

    try:
        asyncio.run(greet())
    except TimeoutError:
        return True
    except MillstreamError:
        pass  # it says something
    return False


def retention_from(config: Mapping[str, ConfigValue]) -> Retention:
    return Retention(
        retention_ms=int(config["retention.ms"].value),
        retention_bytes=int(config["retention.bytes"].value),
        cleanup_policy=config["cleanup.policy"].value,
    )


def _group_from(name: str, answer: Any) -> Group:
    if answer is None:
        return Group(id=name, state="dead", protocol="unknown", members={})
    members = {
        Member(
            id=member.member_id, client_id=member.client_id, host=member.host.lstrip("/")
        ): tuple(Partition(at.topic, at.partition) for at in member.assignment.topic_partitions)
        for member in answer.members
    }
    state = answer.state.name.lower().replace("_", " ")
    if state == "unknown" and members:
        state = "rebalancing"  # the client has no words for the phases of the newer protocol
    return Group(id=name, state=state, protocol=answer.type.name.lower(), members=members)


def _topic_partition(part: Partition, offset: int | None = None) -> Any:
    from confluent_kafka import TopicPartition

    if offset is None:
        return TopicPartition(part.topic, part.number)
    return TopicPartition(part.topic, part.number, offset)


def _kafka_exception() -> type[Exception]:
    from confluent_kafka import KafkaException

    return KafkaException
