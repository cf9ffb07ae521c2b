"""Addresses that hooks may call, and those that need HOOK_LOCAL_ADDRESSES."""

import pytest

from tenure.policy.hooks.addresses import local_address_kind, local_host_kind

LOOPBACK, LINK_LOCAL = "a loopback address", "a link-local address"
ADDRESSES = {
    "127.0.0.1": LOOPBACK,
    "127.255.255.254": LOOPBACK,
    "0.0.0.0": LOOPBACK,
    "0.1.2.3": LOOPBACK,
    "::1": LOOPBACK,
    "::": LOOPBACK,
    "::127.0.0.1": LOOPBACK,
    "::ffff:127.0.0.1": LOOPBACK,
    "::ffff:0.0.0.0": LOOPBACK,
    "64:ff9b::7f00:1": LOOPBACK,
    "2002:7f00:1::": LOOPBACK,
    "169.254.169.254": LINK_LOCAL,
    "169.254.170.23": LINK_LOCAL,
    "169.254.0.0": LINK_LOCAL,
    "169.254.255.255": LINK_LOCAL,
    "fe80::1": LINK_LOCAL,
    "fe80::1%eth0": LINK_LOCAL,
    "febf:ffff::1": LINK_LOCAL,
    "fd00:ec2::254": LINK_LOCAL,
    "fd00:ec2::23": LINK_LOCAL,
    "::ffff:169.254.169.254": LINK_LOCAL,
    "::ffff:a9fe:a9fe": LINK_LOCAL,
    "64:ff9b::169.254.169.254": LINK_LOCAL,
    "2002:a9fe:a9fe::1": LINK_LOCAL,
    "127.1": "no canonical IP address",
    "2130706433": "no canonical IP address",
    "0x7f.0.0.1": "no canonical IP address",
    "169.253.255.255": "",
    "169.255.0.0": "",
    "128.0.0.1": "",
    "10.0.0.10": "",
    "172.20.0.1": "",
    "192.0.2.1": "",
    "::ffff:10.0.0.10": "",
    "64:ff9b::10.0.0.10": "",
    "fd00:ec3::254": "",
    "fd12::1": "",
    "fec0::1": "",
    "2600:1f14::1": "",
}


@pytest.mark.parametrize(("address", "kind"), ADDRESSES.items())
def test_loopback_and_link_local_addresses_are_recognized_in_every_form(address: str, kind: str) -> None:
    assert local_address_kind(address) == kind


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("localhost", LOOPBACK),
        ("LOCALHOST.", LOOPBACK),
        ("web.localhost", LOOPBACK),
        ("169.254.169.254", LINK_LOCAL),
        ("::ffff:169.254.169.254", LINK_LOCAL),
        ("hooks.example.com", ""),
        ("notlocalhost", ""),
        ("10.0.0.10", ""),
        ("", ""),
    ],
)
def test_host_of_a_policy_is_checked_without_dns(host: str, kind: str) -> None:
    assert local_host_kind(host) == kind
