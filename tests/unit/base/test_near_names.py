from millstream.base.near_names import NAMES_SHOWN_MAX, some_of


def test_so_many_names_are_shown_and_the_others_counted() -> None:
    names = [f"orders-{number}" for number in range(NAMES_SHOWN_MAX + 2)]
    assert some_of(names[:2]) == "orders-0, orders-1"
    assert some_of(names[:NAMES_SHOWN_MAX]).endswith(f"orders-{NAMES_SHOWN_MAX - 1}")
    assert some_of(names).endswith(f"orders-{NAMES_SHOWN_MAX - 1} and 2 more")
