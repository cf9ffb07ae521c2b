"""Addresses that hooks may not call while HOOK_LOCAL_ADDRESSES is off.

A policy's author must not reach through the worker services that trust the worker's machine: those that listen on
loopback, the instance metadata service, and the agent of EKS Pod Identity.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

HOOK_LOCAL_ADDRESSES: Final = "HOOK_LOCAL_ADDRESSES"
"""The setting that allows them."""
MAX_HOST_LENGTH: Final = 100
"""Characters of a host in a message, so that the remedy after it is not cut."""
_THIS_NETWORK: Final = IPv4Network("0.0.0.0/8")
"""RFC 1122: Linux connects 0.0.0.0 to loopback."""
_AWS_LOCAL_SERVICES: Final = IPv6Network("fd00:ec2::/32")
"""EC2's link-local services in IPv6: instance metadata is fd00:ec2::254, the agent of EKS Pod Identity fd00:ec2::23."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE: Final = IPv6Network("::/96")
"""RFC 4291, deprecated; :: and ::1 are in it."""
_IPV4_BITS: Final = 0xFFFFFFFF


def local_address_kind(address: str) -> str:
    """`a loopback address` or the like; empty for an address that hooks may call. A text that is no canonical address
    is refused too: the system's own reading of it, such as of `127.1`, is not known here."""
    try:
        ip = ip_address(address)
    except ValueError:
        return "no canonical IP address"
    if isinstance(ip, IPv6Address) and (embedded := _embedded_ipv4(ip)) is not None:
        return _kind(embedded) or _kind(ip)
    return _kind(ip)


def local_host_kind(host: str) -> str:
    """Of the host of a URL, without a look-up: empty for a name, unless it is that of loopback (RFC 6761)."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return "a loopback address"
    try:
        ip_address(host)
    except ValueError:
        return ""
    return local_address_kind(host)


def _kind(ip: IPv4Address | IPv6Address) -> str:
    if ip.is_loopback or ip.is_unspecified or ip in _THIS_NETWORK:
        return "a loopback address"
    if ip.is_link_local or ip in _AWS_LOCAL_SERVICES:
        return "a link-local address"
    return ""


def _embedded_ipv4(ip: IPv6Address) -> IPv4Address | None:
    if ip in _NAT64 or ip in _IPV4_COMPATIBLE:
        return IPv4Address(int(ip) & _IPV4_BITS)
    return ip.ipv4_mapped or ip.sixtofour
