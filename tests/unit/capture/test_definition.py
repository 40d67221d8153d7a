"""What a capture is told is checked, kept without passwords, and read again."""

import pytest

from millstream.capture.definition import (
    BadDefinition,
    CaptureDefinition,
    PasswordInUrl,
    UnreadableUrl,
    VariableMissing,
    absolute_url,
    resolve_url,
    shown_url,
)

URL = "postgresql://mill:${SHOP_PASSWORD}@db/shop"


def definition(**changes: object) -> CaptureDefinition:
    told: dict[str, object] = {"name": "shop", "url": URL, "tables": ("orders",)}
    return CaptureDefinition(**(told | changes))  # type: ignore[arg-type]


def test_what_is_kept_is_read_again() -> None:
    made = definition(outbox="orders", partitions=4, retained_bytes_max=10, at_retained_max="drop")
    assert CaptureDefinition.from_json(made.to_json()) == made


def test_a_field_of_a_newer_version_is_left_out() -> None:
    text = definition().to_json().replace('"name"', '"colour": "blue", "name"')
    assert CaptureDefinition.from_json(text) == definition()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://mill:secret@db/shop",
        "postgresql://mill:s${X}@db/shop",
        "postgresql://db/shop?user=mill&password=secret",
        "mariadb://db/shop?ssl_password=secret",
    ],
)
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(PasswordInUrl) as refused:
        definition(url=url).to_json()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://mill:sec/ret@db/shop",
        "postgresql://mill:1/secret@db/shop",
        "postgresql://mill:1?secret@db/shop",
        "mariadb://mill:1#secret@db/shop",
        "mariadb://mill@db:port/shop",
        "postgresql://mill@[::1/shop",
    ],
)
def test_a_url_that_may_hide_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UnreadableUrl) as refused:
        definition(url=url).to_json()
    assert "ret" not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite:shop.db", "sqlite://shop.db", "SQLite:///shop.db"])
def test_a_file_that_would_be_looked_for_elsewhere_is_refused(url: str) -> None:
    """Without its three slashes it would be another file for a runner in another directory."""
    with pytest.raises(UnreadableUrl, match="begins with sqlite:///"):
        definition(url=url).to_json()


@pytest.mark.parametrize("field", ["partitions", "retained_bytes_max"])
def test_a_number_that_nothing_can_have_is_not_kept(field: str) -> None:
    with pytest.raises(BadDefinition, match=f"{field}=0: at least 1"):
        definition(**{field: 0}).to_json()
    definition(**{field: 1}).to_json()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db:5432,other:5433/shop",
        "postgresql://mill@[::1]:5432/shop",
        "postgresql://db:${PORT}/shop?user=mill@tenant",
        "sqlite:////srv/m@il.db",
    ],
)
def test_hosts_and_ports_of_every_kind_are_kept(url: str) -> None:
    assert CaptureDefinition.from_json(definition(url=url).to_json()).url == url


@pytest.mark.parametrize("url", [URL, "postgresql://db/shop", "sqlite:///shop.db", "${SHOP_URL}"])
def test_a_url_without_a_password_is_kept(url: str) -> None:
    assert CaptureDefinition.from_json(definition(url=url).to_json()).url == url


def test_variables_are_looked_up_when_it_is_opened() -> None:
    assert resolve_url("shop", URL, {"SHOP_PASSWORD": "a/b@c"}) == (
        "postgresql://mill:a%2Fb%40c@db/shop"
    )
    whole = "postgresql://mill:x@db/shop"
    assert resolve_url("shop", "${SHOP_URL}", {"SHOP_URL": whole}) == whole


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(VariableMissing, match="SHOP_PASSWORD"):
        resolve_url("shop", URL, {})


def test_a_url_from_a_topic_is_shown_without_any_password() -> None:
    kept = "postgresql://db/shop?user=mill&password=${SHOP_PASSWORD}"
    assert shown_url(kept) == kept
    assert shown_url("mariadb://db/s?ssl_key_password=secret&a=b").endswith("password=***&a=b")
    assert "secret" not in shown_url("postgresql://mill:secret@[::1/shop")


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("sqlite:///shop.db", "sqlite:////srv/my%20shop/shop.db"),
        ("sqlite:///../a%20b.db", "sqlite:////srv/my%20shop/../a%20b.db"),
        ("sqlite:////data/shop.db", "sqlite:////data/shop.db"),
        ("sqlite:///${SHOP}/shop.db", "sqlite:///${SHOP}/shop.db"),
        ("postgresql://db/shop", "postgresql://db/shop"),
    ],
)
def test_a_file_is_kept_with_the_directory_where_it_was_declared(url: str, kept: str) -> None:
    assert absolute_url(url, "/srv/my shop") == kept


def test_a_url_is_shown_without_its_password() -> None:
    assert shown_url("postgresql://mill:secret@db/shop") == "postgresql://mill:***@db/shop"
    assert shown_url(URL) == URL


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "no dots.here"},
        {"name": ""},
        {"tables": ()},
        {"mode": "magic"},
        {"at_retained_max": "explode"},
        {"outbox": "events"},
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadDefinition):
        definition(**changes)


def test_topics_are_named_after_the_capture_and_the_table() -> None:
    shop = definition()
    assert shop.topic_of("public.orders", without="public") == "shop.orders"
    assert shop.topic_of("sales.orders", without="public") == "shop.sales.orders"
    assert shop.topic_of("public.größen", without="public") == "shop.gr__en"
    assert definition(topic_prefix="db1").topic_of("main.a", without="main") == "db1.a"


def test_a_table_does_not_share_the_topic_of_boundaries_or_messages() -> None:
    shop = definition()
    for name, topic in ("transactions", shop.transactions_topic), ("messages", shop.messages_topic):
        assert shop.topic_of(f"public.{name}", without="public") == f"shop.public.{name}" != topic


def test_an_outbox_is_known_by_its_full_name_or_the_last_part() -> None:
    shop = definition(tables=("orders", "outbox"), outbox="outbox")
    assert shop.is_outbox("public.outbox")
    assert not shop.is_outbox("public.not_outbox")
    assert not definition().is_outbox("public.outbox")


def test_the_format_of_debezium_has_its_topics_and_its_modes() -> None:
    shop = definition(format="debezium", time_mode="isostring", decimal_mode="string")
    assert shop.topic_of("public.orders", without="public") == "shop.public.orders"
    assert shop.transactions_topic == "shop.transaction"
    assert CaptureDefinition.from_json(shop.to_json()) == shop


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "maxwell"},
        {"format": "debezium", "encoding": "avro"},
        {"format": "debezium", "time_mode": "seconds"},
        {"format": "debezium", "decimal_mode": "base64"},
    ],
)
def test_a_format_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadDefinition):
        definition(**changes)
