import json

import pytest

from millstream.capture.recorded_change import BadToken, change_from, offsets_in, token_of

SOURCE = {"table": "orders", "commit": "0/15D6F40", "seq": 3, "txId": "731", "ts_ms": 7}


def test_a_token_says_where_each_partition_goes_on() -> None:
    token = token_of("shop.orders", {1: 977, 0: 1042})
    assert token == "shop.orders@0:1042,1:977"
    assert offsets_in(token, "shop.orders") == {0: 1042, 1: 977}


@pytest.mark.parametrize(
    "token", ["", "shop.orders", "shop.orders@", "shop.orders@0:1,", "shop.orders@0", "other@0:1"]
)
def test_what_is_no_token_of_the_topic_is_refused_with_what_to_give(token: str) -> None:
    with pytest.raises(BadToken, match=r"is no token of shop\.orders: give"):
        offsets_in(token, "shop.orders")


def test_a_change_has_its_row_and_its_place_in_the_databases_log() -> None:
    value = {"before": None, "after": {"id": 1, "total": "9.50"}, "source": SOURCE, "op": "c"}
    change = change_from(b'{"id":1}', json.dumps(value).encode(), "t")
    assert (change.op, change.table, change.key) == ("c", "orders", {"id": 1})
    assert (change.before, change.after) == (None, {"id": 1, "total": "9.50"})
    assert (change.commit, change.seq, change.transaction, change.at_ms) == (
        "0/15D6F40",
        3,
        "731",
        7,
    )
    assert change.unavailable == ()
    assert json.loads(json.dumps(change.to_json()))["token"] == "t"


def test_a_change_tells_what_the_database_left_out() -> None:
    value = {"after": {"id": 1}, "source": SOURCE, "op": "u", "unavailable": ["note"]}
    assert change_from(b'{"id":1}', json.dumps(value).encode(), "t").unavailable == ("note",)


def test_a_truncation_is_of_no_key() -> None:
    value = {"before": None, "after": None, "source": SOURCE, "op": "t"}
    assert change_from(b"{}", json.dumps(value).encode(), "t").key is None
