"""The simulator's control API over HTTP: health, rules, and what each machine is at. `control.py` is its client."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import ValidationError

from sandbox.nodes.rules import Rule
from sandbox.nodes.simulator import Simulator

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
        """503 until instances and Nodes have been seen once."""
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
                    "note": machine.note,
                }
                for machine in self._simulator.machines()
            ]
        )

    async def rules(self, _: web.Request) -> web.Response:
        return web.json_response(
            [rule.model_dump(mode="json") | {"befallen": sorted(ids)} for rule, ids in self._simulator.book.entries()]
        )

    async def add_rule(self, request: web.Request) -> web.Response:
        """The rule with its id; 400 with the reason when it is malformed."""
        try:
            rule = Rule.model_validate_json(await request.read())
        except ValidationError as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response(self._simulator.add_rule(rule).model_dump(mode="json"))

    async def clear_rules(self, _: web.Request) -> web.Response:
        self._simulator.book.clear()
        return web.json_response({})

    async def remove_rule(self, request: web.Request) -> web.Response:
        found = self._simulator.book.remove(request.match_info["id"])
        return web.json_response({}, status=200 if found else 404)
