import pytest

from millstream.queues.access import Address, UnusableAccess, access_from, addresses_from


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("broker:9093", Address("broker", 9093)),
        ("broker", Address("broker", 9092)),
        ("[::1]:9093", Address("::1", 9093)),
        ("[::1]", Address("::1", 9092)),
    ],
)
def test_an_address_is_read_as_librdkafka_reads_it(text: str, address: Address) -> None:
    assert addresses_from(f"{text}, {text}") == (address, address)


def test_plaintext_needs_nothing_more() -> None:
    access = access_from({"bootstrap.servers": "a:1"})
    assert (access.tls, access.credentials) == (None, None)


def test_tls_and_login_are_read_from_the_same_config() -> None:
    access = access_from(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "none",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ada",
            "sasl.password": "secret",
        }
    )
    assert access.tls is not None
    assert (str(access.tls.ca), access.tls.checks_host) == ("/ca.pem", False)
    assert access.credentials is not None
    assert access.credentials.user == "ada"
    assert "secret" not in repr(access)


@pytest.mark.parametrize(
    "config",
    [
        {"security.protocol": "ktls"},
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"},
        {"bootstrap.servers": "broker:port"},
    ],
)
def test_what_a_queue_cannot_do_is_refused(config: dict[str, str]) -> None:
    with pytest.raises(UnusableAccess):
        access_from({"bootstrap.servers": "a:1", **config})
