"""Leader epochs: who wrote an offset, and where an epoch ended."""

import pytest

from millstream.base.errors import Corrupt
from millstream.log.config import INT64_MAX
from millstream.log.leader_epochs import LeaderEpochs

EPOCHS = [(0, 0), (3, 10), (4, 25)]


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, 0), (9, 0), (10, 3), (24, 3), (25, 4), (1000, 4)]
)
def test_the_epoch_that_wrote_an_offset(offset: int, expected: int) -> None:
    assert LeaderEpochs(EPOCHS).at(offset) == expected


def test_an_offset_before_all_epochs_has_none() -> None:
    assert LeaderEpochs(EPOCHS[1:]).run_at(9) == (-1, 10)
    assert LeaderEpochs().run_at(9) == (-1, INT64_MAX)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 10)), (2, (0, 10)), (3, (3, 25)), (4, (4, 40)), (9, (4, 40))],
)
def test_where_an_epoch_ended(epoch: int, expected: tuple[int, int]) -> None:
    assert LeaderEpochs(EPOCHS).end_of(epoch, log_end_offset=40) == expected


def test_an_epoch_that_wrote_nothing_is_replaced() -> None:
    epochs = LeaderEpochs(list(EPOCHS))
    assert epochs.begin(5, 25)
    assert epochs.entries == [(0, 0), (3, 10), (5, 25)]


def test_epochs_do_not_go_back() -> None:
    epochs = LeaderEpochs(list(EPOCHS))
    assert not epochs.begin(4, 30)
    assert not epochs.begin(2, 30)
    assert epochs.entries == EPOCHS


def test_the_text_is_kafkas() -> None:
    text = "0\n3\n0 0\n3 10\n4 25\n"
    assert LeaderEpochs(EPOCHS).to_text() == text
    assert LeaderEpochs.from_text(text).entries == EPOCHS


@pytest.mark.parametrize(
    "text",
    ["", "0", "0\n", "1\n0\n", "0\n1\n", "0\n1\n0 0", "0\n1\n0 x\n", "0\n2\n1 0\n0 5\n",
     "0\n2\n0 5\n1 5\n", "0\n1\n+0 0\n", "0\n1\n0  0\n", "0\n1\n0 1_0\n"],
)  # fmt: skip
def test_any_other_text_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt):
        LeaderEpochs.from_text(text)
