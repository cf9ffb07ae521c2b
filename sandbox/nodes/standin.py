"""Instances as the stand-in's control API tells them: only what changed, as soon as it changed.

An endpoint without that API is asked the way of EC2 (`ec2.py`); which of the two it is, is found out at the first look.
"""

import asyncio
from typing import Any

import aiohttp

from sandbox.nodes.instance import Instance, InstanceSource

_WAIT_SECONDS = 5.0
# Many changes in a row are taken together: looking again at each would cost more than the delay matters.
_GATHER_SECONDS = 0.1
_ALL = -1


class StandInSource:
    """Keeps the list and asks for changes after the last revision."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: str, region: str) -> None:
        self._session, self._url, self._region = session, f"{endpoint.rstrip('/')}/_sim/instances", region
        self._revision = _ALL
        self._instances: dict[str, Instance] = {}

    async def there(self) -> bool:
        """Whether the endpoint has the control API."""
        async with self._session.get(self._url, params={"after": "0"}) as response:
            return response.status == 200 and response.content_type == "application/json"

    async def next(self) -> dict[str, Instance]:
        """All instances. Returns within some seconds, changed or not."""
        if self._revision != _ALL:
            await asyncio.sleep(_GATHER_SECONDS)
        answer = await self._ask(self._revision)
        self._merge(answer)
        if answer["revision"] < self._revision or answer["alive"] != self._alive():
            # It was reset or started anew: what was known is of another world.
            self._instances = {}
            answer = await self._ask(_ALL)
            self._merge(answer)
        self._revision = answer["revision"]
        return dict(self._instances)

    def _merge(self, answer: dict[str, Any]) -> None:
        for instance_id in answer.get("gone", []):
            self._instances.pop(instance_id, None)
        for described in answer["instances"]:
            self._instances[described["id"]] = self._read(described)

    def _alive(self) -> int:
        return sum(instance.state not in ("shutting-down", "terminated") for instance in self._instances.values())

    async def _ask(self, after: int) -> dict[str, Any]:
        params = {"after": str(after), "wait": "0" if after == _ALL else str(_WAIT_SECONDS)}
        async with self._session.get(self._url, params=params) as response:
            response.raise_for_status()
            answer: dict[str, Any] = await response.json()
            return answer

    def _read(self, described: dict[str, Any]) -> Instance:
        address = described.get("private_ip") or ""
        name = f"ip-{address.replace('.', '-')}.{self._region}.compute.internal" if address else ""
        known = {key: value for key, value in described.items() if key in Instance.model_fields and value is not None}
        return Instance.model_validate({"private_dns_name": name} | known)


class AnySource:
    """The stand-in's control API if there is one, the other way if not."""

    def __init__(self, standin: StandInSource, other: InstanceSource) -> None:
        self._standin, self._other = standin, other
        self._chosen: InstanceSource | None = None

    async def next(self) -> dict[str, Instance]:
        if self._chosen is None:
            self._chosen = self._standin if await self._standin.there() else self._other
        return await self._chosen.next()
