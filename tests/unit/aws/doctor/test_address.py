"""The doctor separates a name that does not resolve from a port that does not answer."""

import asyncio

import pytest

from tenure.aws.doctor.address import check_address
from tenure.model.errors import Subject
from tests.support.cli.remedies import find_faulty_remedies

AT = Subject("temporal", "address")


async def test_open_port_has_no_finding() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await check_address(AT, f"127.0.0.1:{port}", "open it") == []
        assert await check_address(AT, f"http://127.0.0.1:{port}/path", "open it") == []


async def test_unknown_name_is_a_problem_of_dns() -> None:
    (found,) = await check_address(AT, "temporal-frontend.temporal.invalid:7233", "open it")
    assert found.level == "problem" and "temporal-frontend.temporal.invalid does not resolve" in found.message
    assert "nslookup temporal-frontend.temporal.invalid" in found.todo
    assert "edit deployment coredns" in found.todo and "-n tenure" in found.todo and "dnsPolicy=Default" in found.todo
    assert find_faulty_remedies([found]) == []


async def test_name_of_a_service_needs_the_dns_of_the_cluster() -> None:
    """The chart rejects dnsPolicy=Default with such an address of Temporal."""
    (found,) = await check_address(AT, "temporal-frontend.temporal.svc:7233", "open it")
    assert "edit deployment coredns" in found.todo and "dnsPolicy" not in found.todo
    assert find_faulty_remedies([found]) == []


async def test_closed_port_is_named() -> None:
    (found,) = await check_address(AT, "127.0.0.1:1", "open it")
    assert "127.0.0.1 does not answer on port 1" in found.message and found.todo == "open it"


@pytest.mark.parametrize("address", ["temporal:grpc", "temporal..svc:7233", "[::1:7233"])
async def test_invalid_address_is_a_problem(address: str) -> None:
    (found,) = await check_address(AT, address, "correct it")
    assert (found.level, found.todo) == ("problem", "correct it") and address in found.message
