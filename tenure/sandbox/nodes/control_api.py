"""The node simulator's control API over HTTP (health, fault rules, the state of each machine), and its client."""

from collections.abc import Awaitable, Callable
from typing import Any, Self

import aiohttp
from aiohttp import web
from pydantic import ValidationError

from tenure.sandbox.nodes.fault_rules import InjectedFault, Match, Rule
from tenure.sandbox.nodes.simulator import Simulator

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(simulator: Simulator) -> web.Application:
    control = _Control(simulator)
    app = web.Application()
    app.add_routes(
        [
            web.get("/health", control.health),
            web.get("/_sim/health", control.health),
            web.get("/_sim/nodes", control.nodes),
            web.get("/_sim/rules", control.rules),
            web.post("/_sim/rules", control.add_rule),
            web.delete("/_sim/rules", control.clear_rules),
            web.delete("/_sim/rules/{id}", control.remove_rule),
        ]
    )
    return app


class _Control:
    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    async def health(self, _: web.Request) -> web.Response:
        """503 until instances and Nodes are synced."""
        stages: dict[str, int] = {}
        for machine in self._simulator.machines():
            stages[machine.stage] = stages.get(machine.stage, 0) + 1
        synced = self._simulator.synced
        return web.json_response({"synced": synced, "stages": stages}, status=200 if synced else 503)

    async def nodes(self, _: web.Request) -> web.Response:
        return web.json_response(
            [
                {
                    "instanceId": machine.instance.id,
                    "instanceType": machine.instance.instance_type,
                    "name": machine.instance.node_name,
                    "stage": machine.stage,
                    "note": machine.message,
                }
                for machine in self._simulator.machines()
            ]
        )

    async def rules(self, _: web.Request) -> web.Response:
        return web.json_response(
            [rule.model_dump(mode="json") | {"befallen": sorted(ids)} for rule, ids in self._simulator.rules.entries()]
        )

    async def add_rule(self, request: web.Request) -> web.Response:
        """The rule with its ID; 400 with the reason for an invalid rule."""
        try:
            rule = Rule.model_validate_json(await request.read())
        except ValidationError as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response(self._simulator.add_rule(rule).model_dump(mode="json"))

    async def clear_rules(self, _: web.Request) -> web.Response:
        self._simulator.rules.clear()
        return web.json_response({})

    async def remove_rule(self, request: web.Request) -> web.Response:
        found = self._simulator.rules.remove(request.match_info["id"])
        return web.json_response({}, status=200 if found else 404)


class NodesControl:
    """An async context manager. Methods raise aiohttp.ClientResponseError for a rejection."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(raise_for_status=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def health(self) -> dict[str, Any]:
        """`synced`, and the number of machines by stage."""
        found: dict[str, Any] = await self._call("GET", "health")
        return found

    async def nodes(self) -> list[dict[str, Any]]:
        """Each machine: `instanceId`, `instanceType`, `name`, `stage`, `note`."""
        found: list[dict[str, Any]] = await self._call("GET", "nodes")
        return found

    async def add(
        self, fault: InjectedFault, *, match: Match | None = None, count: int | None = None, existing: bool = True
    ) -> Rule:
        """Add a rule; see `Rule` for the arguments."""
        rule = Rule(fault=fault, match=match or Match(), count=count, existing=existing)
        return Rule.model_validate(await self._call("POST", "rules", rule.model_dump(mode="json")))

    async def rules(self) -> list[dict[str, Any]]:
        """The active rules, each with the IDs of affected instances (`befallen`)."""
        found: list[dict[str, Any]] = await self._call("GET", "rules")
        return found

    async def remove(self, rule: Rule) -> None:
        await self._call("DELETE", f"rules/{rule.id}")

    async def clear(self) -> None:
        """Remove all rules. Faults that have started continue."""
        await self._call("DELETE", "rules")

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        async with self._session.request(method, f"{self.url}/_sim/{path}", json=body) as response:
            return await response.json()
