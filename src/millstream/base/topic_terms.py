"""What a topic must be for what it holds, and how one that exists differs from that. Pure.

Any client may have made the topic first: a broker makes a topic that somebody asks for, with its
own defaults. Records that are needed would then be removed after a week. So every part that makes
a topic unless it exists compares the one that exists with its terms. `topic_check.py` asks the
broker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.base.errors import Rejected

POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"
DELETE: Final = "delete"
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
UNLIMITED: Final = "-1"
COMPACTED: Final = {POLICY: COMPACT}
# They change when files are cleaned, and nothing that a reader sees.
TUNING: Final = frozenset({"segment.bytes", "segment.ms", "min.cleanable.dirty.ratio"})
# More than what is asked for does no harm.
AT_LEAST: Final = frozenset(
    {"max.message.bytes", "min.compaction.lag.ms", "delete.retention.ms", RETENTION_MS}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTerms:
    """`holds`: what its records are, as an error calls them. `is_needed`: whether something is
    wrong or lost for good when records are removed; otherwise a difference is only a warning.
    `partitions`: None for any number."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None
    holds: str = "its records"
    is_needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One config that is not as it should be; `loses`: the broker removes needed records."""

    config: str
    wanted: str
    found: str
    loses: bool = False

    def __str__(self) -> str:
        return f"{self.config}={self.found} instead of {self.wanted}"


class UnfitTopic(Rejected):
    """`start`: the command that starts the topic's broker, if the application itself has it."""

    def __init__(
        self, *, terms: TopicTerms, differences: Sequence[Difference], start: str = ""
    ) -> None:
        is_compacted = any(one.config == POLICY and one.wanted == COMPACT for one in differences)
        what = "is not compacted" if is_compacted else "does not keep all its records"
        found = ", ".join(f"{one.config}={one.found}" for one in differences)
        super().__init__(
            f"Topic {terms.name} {what} ({found}): the broker would remove {terms.holds}. Another "
            f"client may have made the topic first. Run `{alter_command(terms.name, differences)}`"
            + (f" (`{start}` starts the broker of this app alone)" if start else "")
        )
        self.topic, self.terms, self.differences = terms.name, terms, tuple(differences)


def alter_command(topic: str, differences: Sequence[Difference]) -> str:
    configs = " ".join(f"--config {one.config}={one.wanted}" for one in differences)
    return f"millstream topics alter {topic} {configs}"


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[Difference]:
    """Of what is asked for; a config that the broker does not name is not compared."""
    kept = _kept_differences(wanted, found)
    named = {POLICY, RETENTION_MS, RETENTION_BYTES} if _is_kept(wanted) else set()
    others = [
        Difference(config=name, wanted=value, found=found[name])
        for name, value in wanted.items()
        if name not in TUNING | named and name in found and not _is_enough(name, value, found[name])
    ]
    return [*kept, *others]


def _is_kept(wanted: Mapping[str, str]) -> bool:
    """Whether records stay for ever: all of them, or the last one of each key."""
    return wanted.get(POLICY) == COMPACT or wanted.get(RETENTION_MS) == UNLIMITED


def _kept_differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[Difference]:
    if not _is_kept(wanted) or POLICY not in found:
        return []
    policy = {one.strip() for one in found[POLICY].split(",")}
    limits = _limits(found) if DELETE in policy else []
    if wanted.get(POLICY) == COMPACT:
        if policy == {COMPACT}:
            return []
        difference = Difference(
            config=POLICY, wanted=COMPACT, found=found[POLICY], loses=bool(limits)
        )
        return [difference]
    if COMPACT in policy:  # it removes records whose key comes again
        limits = [
            Difference(config=POLICY, wanted=DELETE, found=found[POLICY], loses=True),
            *_limits(found),
        ]
    return limits


def _limits(found: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(config=name, wanted=UNLIMITED, found=found[name], loses=True)
        for name in (RETENTION_MS, RETENTION_BYTES)
        if name in found and found[name] != UNLIMITED
    ]


def _is_enough(name: str, wanted: str, found: str) -> bool:
    if wanted == found:
        return True
    try:
        asked, there = int(wanted), int(found)
    except ValueError:
        return False
    return name in AT_LEAST and (
        there == int(UNLIMITED) or asked != int(UNLIMITED) < asked <= there
    )


def judged(terms: TopicTerms, *, partitions: int, config: Mapping[str, str]) -> list[str]:
    """What to warn of; raises UnfitTopic where needed records would be removed."""
    found = differences(terms.config, config)
    losing = [one for one in found if one.loses]
    if losing and terms.is_needed:
        raise UnfitTopic(terms=terms, differences=losing)
    warnings = [_config_warning(terms.name, found)] if found else []
    if terms.partitions is not None and partitions != terms.partitions:
        warnings.append(_partitions_warning(terms.name, partitions, terms.partitions))
    return warnings


def _config_warning(topic: str, found: Sequence[Difference]) -> str:
    told = ", ".join(map(str, found))
    return f"Topic {topic} has {told}. Run `{alter_command(topic, found)}`"


def _partitions_warning(topic: str, found: int, wanted: int) -> str:
    has = f"Topic {topic} has {found} partition{'' if found == 1 else 's'} instead of {wanted}."
    if found > wanted:
        return f"{has} A topic never gets fewer: declare partitions={found}"
    return (
        f"{has} Declare partitions={found}; or, while it has no records (a key would move), run "
        f"`millstream topics add-partitions {topic} --to {wanted}`"
    )
