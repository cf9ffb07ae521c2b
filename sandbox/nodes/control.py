"""A client of the node simulator's control API, for tests and the demo."""

from typing import Any, Self

import aiohttp

from sandbox.nodes.rules import Match, Rule, Trouble


class NodesControl:
    """An async context manager. Methods raise aiohttp.ClientResponseError when the simulator refuses."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(raise_for_status=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def health(self) -> dict[str, Any]:
        """`synced`, and how many machines are in each stage."""
        found: dict[str, Any] = await self._call("GET", "health")
        return found

    async def nodes(self) -> list[dict[str, Any]]:
        """Each machine: `instanceId`, `instanceType`, `name`, `stage`, `note`."""
        found: list[dict[str, Any]] = await self._call("GET", "nodes")
        return found

    async def add(
        self, trouble: Trouble, *, match: Match | None = None, count: int | None = None, existing: bool = True
    ) -> Rule:
        """Put a rule in force; see `Rule` for what the arguments mean."""
        rule = Rule(trouble=trouble, match=match or Match(), count=count, existing=existing)
        return Rule.model_validate(await self._call("POST", "rules", rule.model_dump(mode="json")))

    async def rules(self) -> list[dict[str, Any]]:
        """The rules in force, each with the ids it has `befallen`."""
        found: list[dict[str, Any]] = await self._call("GET", "rules")
        return found

    async def remove(self, rule: Rule) -> None:
        await self._call("DELETE", f"rules/{rule.id}")

    async def clear(self) -> None:
        """No rule is in force any more; what began goes on to its end."""
        await self._call("DELETE", "rules")

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        async with self._session.request(method, f"{self.url}/_sim/{path}", json=body) as response:
            return await response.json()
