"""Addresses that hooks may not call while HOOK_LOCAL_ADDRESSES is off.

The author of a policy must not use a hook to reach services that trust the worker's machine: services on loopback, the
instance metadata service, and the EKS Pod Identity agent.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

HOOK_LOCAL_ADDRESSES: Final = "HOOK_LOCAL_ADDRESSES"
"""The setting that allows them."""
MAX_HOST_LENGTH: Final = 100
"""Characters of a host in a message, so that the remedy after it is not truncated."""
_THIS_NETWORK: Final = IPv4Network("0.0.0.0/8")
"""RFC 1122: Linux connects 0.0.0.0 to loopback."""
_AWS_LOCAL_SERVICES: Final = IPv6Network("fd00:ec2::/32")
"""EC2's local services in IPv6: instance metadata at fd00:ec2::254, the EKS Pod Identity agent at fd00:ec2::23."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE: Final = IPv6Network("::/96")
"""RFC 4291, deprecated. It contains :: and ::1, which embed 0.0.0.0 and 0.0.0.1."""


def local_address_kind(address: str) -> str:
    """Why hooks may not call the address, such as `a loopback address`; empty if they may. Text that is not a canonical
    IP address, such as `127.1`, is rejected too: the operating system may parse it as any address."""
    ip = _parse_address(address)
    return _kind(ip) if ip else "no canonical IP address"


def local_host_kind(host: str) -> str:
    """`local_address_kind` for the host of a URL, without a DNS lookup. Empty for a name other than localhost (RFC
    6761)."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return "a loopback address"
    ip = _parse_address(host)
    return _kind(ip) if ip else ""


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """The address, or the IPv4 address that an IPv6 address embeds."""
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    return _embedded_ipv4(ip) or ip if isinstance(ip, IPv6Address) else ip


def _kind(ip: IPv4Address | IPv6Address) -> str:
    if ip.is_loopback or ip in _THIS_NETWORK:
        return "a loopback address"
    if ip.is_link_local or ip in _AWS_LOCAL_SERVICES:
        return "a link-local address"
    return ""


def _embedded_ipv4(ip: IPv6Address) -> IPv4Address | None:
    if ip in _NAT64 or ip in _IPV4_COMPATIBLE:
        return IPv4Address(ip.packed[-4:])
    return ip.ipv4_mapped or ip.sixtofour
