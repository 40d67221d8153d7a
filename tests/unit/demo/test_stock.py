"""The stock of the demo's shop: what is shipped is gone, what runs low says so once."""

from millstream.demo.shop import RanLow, Received, Shipped, Stock
from millstream.eventsourcing.aggregates import Aggregates
from tests.support.memory_events import MemoryEvents


def test_a_stock_runs_low_once_until_it_is_filled_again() -> None:
    stock = Aggregates(Stock, MemoryEvents().as_store)
    lamp = stock["lamp"]
    lamp.receive(12)
    lamp.ship(1, 2)
    lamp.ship(2, 1)
    lamp.ship(3, 20)
    assert (lamp.state().on_hand, lamp.state().is_low) == (-11, True)
    lamp.receive(50, id="for a shortage")
    lamp.receive(50, id="for a shortage")
    assert (lamp.state().on_hand, lamp.state().is_low) == (39, False)
    events = [one.event for one in lamp.history()]
    assert events == [
        Received(12),
        Shipped(1, 2),
        Shipped(2, 1),
        RanLow(9),
        Shipped(3, 20),
        Received(50),
    ]
