"""The pytest plugin is loaded in every project that has Millstream, with or without Spark."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from millstream.eventsourcing.aggregate import Aggregate, FoldFailed
from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.personal import FORGOTTEN, Personal
from millstream.testing import folded, forgotten

WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None  # an import of it now fails
import millstream.testing
assert millstream.testing.millstream_steps
assert not [name for name in sys.modules if name.startswith("millstream.processing")]
"""


def test_the_plugin_needs_no_spark_to_be_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@event(subject="user")
class Joined:
    user: str
    email: Personal[str]
    phone: Personal[str | None] = None


class Member(Aggregate):
    email = ""

    def leave(self) -> Iterator[object]:
        yield Joined("ada", self.email)

    def on_Joined(self, found: Joined) -> None:  # noqa: N802 - the name of the event
        self.email = found.email


class Careless(Aggregate):
    domain = ""

    def on_Joined(self, found: Joined) -> None:  # noqa: N802 - the name of the event
        self.domain = found.email.split("@")[1]


ADA = Joined("ada", "ada@x.org")


def test_an_event_can_be_seen_as_it_is_when_its_subject_was_forgotten() -> None:
    assert forgotten(ADA) == Joined("ada", FORGOTTEN, FORGOTTEN)
    assert folded(Member, ADA, forgotten(ADA)).email is FORGOTTEN
    assert list(folded(Member, ADA).leave()) == [ADA]


def test_a_fold_that_does_not_expect_it_is_found() -> None:
    assert folded(Careless, ADA).domain == "x.org"
    with pytest.raises(FoldFailed, match=r"AttributeError in test_testing\.py"):
        folded(Careless, forgotten(ADA))
