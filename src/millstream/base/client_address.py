"""What counts as one client where connections, requests and guesses are counted. Pure."""

from ipaddress import IPv6Address, ip_address

# One host of IPv6 has as many addresses as it wants, of one network of 64 bits.
IPV6_HOST_BITS = 64


def address_key(host: str) -> str:
    """What counts as one address: of IPv6 the network, and an address of IPv4 as that."""
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(found, IPv6Address):
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{int(found) >> IPV6_HOST_BITS:x}"
