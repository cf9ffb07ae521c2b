"""The cluster page: its files, its host names, and its sections as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tenure.cli.page.sections import Content, Section
from tenure.cli.page.server import FILES, SectionFeed, accepted_host_names, make_application, serving


class Readings:
    """A section with a number that changes, and one that fails when asked to."""

    def __init__(self) -> None:
        self.number, self.fault, self.reads = 1, "", 0

    async def read_number(self) -> Content:
        self.reads += 1
        return {"number": self.number}

    async def read_faulty(self) -> Content:
        if self.fault:
            raise ValueError(self.fault)
        return {"fine": True}

    def sections(self) -> dict[str, Section]:
        return {"number": Section(self.read_number, 0.01), "faulty": Section(self.read_faulty, 0.01)}


@asynccontextmanager
async def served(readings: Readings, names: set[str] | None = None) -> AsyncIterator[str]:
    feed = SectionFeed(readings.sections())
    application = make_application(
        feed, "demo", host_names=accepted_host_names("127.0.0.1") if names is None else names
    )
    async with serving(application, feed, "127.0.0.1", 0) as port:
        yield f"http://127.0.0.1:{port}"


async def read_events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Content]]:
    name = ""
    async for line in response.content:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield name, json.loads(text.removeprefix("data: "))


async def read_until(response: aiohttp.ClientResponse, expected: dict[str, Any]) -> None:
    """Wait until the newest content of each section has the expected fields."""
    found: dict[str, Content] = {}
    async for name, content in read_events(response):
        found[name] = content
        if all(found.get(key, {}) | wanted == found.get(key) for key, wanted in expected.items()):
            return


@pytest.fixture
def readings() -> Iterator[Readings]:
    yield Readings()


async def test_files_have_headers_that_allow_no_other_source(readings: Readings) -> None:
    async with served(readings) as address, aiohttp.ClientSession(raise_for_status=True) as session:
        for path in FILES:
            async with session.get(address + path) as response:
                assert response.headers["Content-Security-Policy"].startswith("default-src 'self';")
                assert await response.read()
        async with session.get(f"{address}/cluster") as response:
            assert await response.json() == {"cluster": "demo"}


async def test_changes_are_sent_and_a_fault_keeps_the_last_content(readings: Readings) -> None:
    async with (
        served(readings) as address,
        aiohttp.ClientSession() as session,
        session.get(f"{address}/events") as response,
    ):
        await read_until(response, {"number": {"data": {"number": 1}}, "faulty": {"data": {"fine": True}}})
        readings.number, readings.fault = 2, "no worker responds"
        error = {"data": {"fine": True}, "error": "ValueError: no worker responds"}
        await read_until(response, {"number": {"data": {"number": 2}}, "faulty": error})
        readings.fault = ""
        await read_until(response, {"faulty": {"data": {"fine": True}, "error": ""}})


async def test_sections_are_read_only_while_a_viewer_is_connected(readings: Readings) -> None:
    async with served(readings) as address, aiohttp.ClientSession() as session:
        await asyncio.sleep(0.05)
        assert readings.reads == 0
        async with session.get(f"{address}/events") as response:
            await read_until(response, {"number": {"data": {"number": 1}}})
        while True:  # Until the server notices that the viewer is gone.
            before = readings.reads
            await asyncio.sleep(0.1)
            if readings.reads == before:
                break
            readings.number += 1


async def test_other_host_names_are_rejected_on_the_loopback_interface(readings: Readings) -> None:
    async with served(readings) as address, aiohttp.ClientSession() as session:
        for host, status in (("attacker.example:80", 403), ("localhost:1", 200), ("[::1]:1", 200), ("127.0.0.1", 200)):
            async with session.get(f"{address}/cluster", headers={"Host": host}) as response:
                assert response.status == status, host


@pytest.mark.parametrize(("address", "restricted"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False)])
def test_only_loopback_addresses_restrict_host_names(address: str, *, restricted: bool) -> None:
    assert (accepted_host_names(address) is not None) == restricted
