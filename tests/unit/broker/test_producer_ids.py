import asyncio

import pytest

from millstream.base.disk import DiskFull
from millstream.broker.producer_ids import BLOCK_IDS
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode
from tests.support.simulated_disk import SimulatedDisk, Survival


def take(served: ServedNode, count: int = 1) -> list[int]:
    async def some() -> list[int]:
        return [await served.node.producer_ids.take() for _ in range(count)]

    return served.run(some())


def test_ids_are_given_one_after_another(served: ServedNode) -> None:
    assert take(served, 3) == [0, 1, 2]


def test_a_block_of_ids_costs_one_sync(served: ServedNode) -> None:
    take(served)
    before = served.commit.counts.syncs
    take(served, BLOCK_IDS - 1)
    assert served.commit.counts.syncs == before
    assert take(served) == [BLOCK_IDS]
    assert served.commit.counts.syncs == before + 1


def test_no_id_is_given_twice_after_a_clean_restart(serve: Serve) -> None:
    served = serve()
    given = take(served, 3)
    served.close()
    assert min(take(serve(), 3)) > max(given)


@pytest.mark.parametrize("survival", Survival)
def test_no_id_is_given_twice_after_a_power_cut(
    serve: Serve, disk: SimulatedDisk, survival: Survival
) -> None:
    served = serve()
    given = take(served, BLOCK_IDS + 1)
    served.crash()
    again = serve(disk=disk.after_power_cut(survival, seed=1))
    assert min(take(again)) > max(given)


def test_no_id_is_given_before_its_block_is_durable(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    gate.shut()
    first, second = (served.start(served.node.producer_ids.take()) for _ in range(2))
    gate.until_a_sync_waits()
    served.turn()
    assert not first.done()
    assert not second.done()
    gate.open_gate()
    assert [served.run(first), served.run(second)] == [0, 1]


def test_those_who_ask_at_the_same_time_get_different_ids(served: ServedNode) -> None:
    async def at_once() -> list[int]:
        return await asyncio.gather(*(served.node.producer_ids.take() for _ in range(20)))

    assert sorted(served.run(at_once())) == list(range(20))


def test_on_a_full_disk_no_id_is_given_and_later_none_is_missing_or_doubled(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    disk.fill_at(disk.steps)
    with pytest.raises(DiskFull):
        take(served)
    disk.heal()
    assert take(served) == [0]
