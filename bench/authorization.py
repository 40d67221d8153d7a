"""Question: what does authorization add to a request?

Reproduce:  python -m bench.authorization

CPU time of the way from a Call to its topic, which every Produce and Fetch goes.
Compares looking up a topic as it is with the same behind the API's permit, without authorization
and with 1,000 rules. One process, no sockets; the best of nine rounds, as other work only adds.
"""

import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.served_node import PEER, ServedNode

from millstream.broker.handlers import Call, _guarded
from millstream.broker.security.acls import (
    AclBinding,
    Operation,
    Pattern,
    PatternType,
    ResourceType,
)
from millstream.broker.wire import ApiKey

CALLS, ROUNDS = 50_000, 9
RULES = 1_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for is_on in (False, True):
            served = ServedNode(Path(folder) / str(is_on), is_authorizing=is_on)
            served.create("orders")
            add_rules(served)
            plain, guarded = measured(served)
            served.crash()
            print(
                f"authorization {'on' if is_on else 'off'}: {plain:.2f} us as it is, {guarded:.2f} "
                f"us behind the permit: {guarded - plain:+.2f} us"
            )


def add_rules(served: ServedNode) -> None:
    acls = served.node.access.acls
    acls.add(AclBinding(Pattern(ResourceType.TOPIC, "orders"), "User:ada", Operation.READ))
    for number in range(RULES):
        pattern = Pattern(ResourceType.TOPIC, f"t{number}", PatternType.PREFIXED)
        acls.add(AclBinding(pattern, "User:bob", Operation.READ))


def measured(served: ServedNode) -> tuple[float, float]:
    """Microseconds for one lookup, without and with the permit."""

    def plain(request: Any, call: Call) -> Any:
        return call.node.topics.named("orders")

    def of_call(request: Any, call: Call) -> Any:
        return call.topics.named("orders")

    guarded = _guarded(of_call, ApiKey.FETCH, lambda request, code: None)  # type: ignore[arg-type, return-value] # never refused
    return best(served, plain), best(served, guarded)


def best(served: ServedNode, function: Callable[[Any, Call], Any]) -> float:
    def once() -> None:
        function(None, Call(served.node, 12, "bench", PEER, "User:ada"))

    rounds = timeit.repeat(once, number=CALLS, repeat=ROUNDS, timer=time.process_time)
    return min(rounds) / CALLS * 1_000_000


if __name__ == "__main__":
    main()
