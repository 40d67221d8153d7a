"""UUIDs and addresses, spelled as the server spells them."""

from ipaddress import IPv6Address

import pytest

from millstream.capture.mariadb.disguised_types import inet6_text


@pytest.mark.parametrize(
    ("address", "shown"),  # what MariaDB 10.11 answers to SELECT
    [
        ("::", "::"),
        ("::1", "::1"),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
        ("::1.2.3.4", "::1.2.3.4"),
        ("::0.1.0.0", "::0.1.0.0"),
        ("::ffff:0:102:304", "::ffff:0:102:304"),
        ("2001:db8::ff00:42:8329", "2001:db8::ff00:42:8329"),
        ("1:0:2:3:4:5:6:7", "1::2:3:4:5:6:7"),
        ("0:1:0:1:0:1:0:1", "::1:0:1:0:1:0:1"),
        ("1:2:3:4:5:6:7:0", "1:2:3:4:5:6:7::"),
        ("1:0:0:2:0:0:3:4", "1::2:0:0:3:4"),
        ("1:0:0:2:0:0:0:3", "1:0:0:2::3"),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
    ],
)
def test_an_address_is_spelled_as_the_server_does(address: str, shown: str) -> None:
    assert inet6_text(IPv6Address(address).packed) == shown
