"""A Temporal server on PostgreSQL: set back to an older backup, guarded, encrypted. `make postgres` runs it."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent

from tenure.cli.exit_codes import Refused
from tenure.controller.temporal.connection import Security
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.nodeclaim_state import Phase
from tenure.sandbox.spec import Plan
from tenure.sandbox.temporal.server import TemporalServer
from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names

pytestmark = pytest.mark.timeout(900)
RESYNC = 400.0
"""Seconds; what is gone since the backup is looked for every three minutes."""
INSIDE, OUTSIDE = "keeps_records", "NodeClaimWorkflow"
"""A field of a life's state, which only payloads have, and the name of its workflow, which is not encrypted."""
READABLE = """
    SELECT format('SELECT count(*) FROM %I WHERE position(''{word}''::bytea IN %I) > 0', table_name, column_name)
    FROM information_schema.columns WHERE table_schema = 'public' AND data_type = 'bytea'
"""


@pytest.fixture
def server(plan: Plan, product: OwnProduct) -> TemporalServer:
    if plan.temporal != "postgres":
        pytest.skip("make postgres")
    return product.own_sandbox.temporal_server


async def test_an_older_backup_takes_no_node_away_and_buys_none_again(
    product: OwnProduct, server: TemporalServer, tmp_path: Path
) -> None:
    """Of four nodes one stays, one is being launched in the backup, one comes after it, and one goes."""
    await product.work()
    async with (
        product.scene("stays", after="Never") as stays,
        product.scene("half", after="Never") as half,
        product.scene("comes", after="Never") as comes,
        product.scene("goes", after="Never") as goes,
    ):
        await asyncio.gather(stays.run(1), goes.run(1))
        away = half.aws_fault("5xx", "CreateFleet")
        await half.deploy(1)
        claim = await eventually(lambda: half.newest_claim(1))
        await eventually(lambda: _is(half, claim, Phase.LAUNCH))
        await _in_world(product, server.backup(tmp_path))
        half.forgive(away)
        await comes.run(1)
        await _is_let_go(goes)
        await eventually(lambda: half.nodes_are_initialized(1))
        bought = {scene.name: scene.launched() for scene in (stays, half, comes, goes)}
        assert {len(instances) for instances in bought.values()} == {1}
        await _in_world(product, server.restore(tmp_path))
        await product.rest()
        await product.go_on()
        await eventually(lambda: _is_forgotten(goes), seconds=RESYNC)
        for scene in (stays, half, comes):
            (name,) = names(await scene.claims())
            await eventually(partial(_is, scene, name, Phase.READY), seconds=RESYNC)
            await scene.pods_run(1)
        assert {scene.name: scene.launched() for scene in (stays, half, comes, goes)} == bought
        assert not goes.alive()
        await eventually(lambda: _nothing_is_missing(product))
        await stays.scale(2)
        await eventually(lambda: stays.nodes_are_initialized(2))
        assert len(stays.launched()) == 2
        assert await product.failed_workflows() == []


async def test_nobody_is_let_in_without_a_certificate_and_the_doctor_finds_it_well(
    product: OwnProduct, server: TemporalServer
) -> None:
    await product.work()
    stranger = replace(product.connection, security=Security(ca=server.security.ca))
    with pytest.raises(Refused, match="TEMPORAL_TLS_CLIENT_CERT_PATH"):
        await stranger.client()
    _, found = await product.tenure("doctor")
    told = {one["subject"]: (one["level"], one["said"]) for one in found if one["area"] == "temporal"}
    assert told["search attributes"][0] == "ok"
    assert told["namespace default"] == ("ok", "histories are kept for 30 days")
    assert {subject: said for subject, said in told.items() if said[0] == "problem"} == {}


async def test_what_is_encrypted_is_not_readable_in_the_database(
    plan: Plan, product: OwnProduct, server: TemporalServer
) -> None:
    if not plan.encrypted:
        pytest.skip("only with --encrypted")
    await product.work()
    async with product.scene("secret", after="Never") as scene:
        (name,) = names(await scene.run(1))
        (pod,) = names(await scene.pods())
        life = (await scene.life(name)).workflow_id
        await product.delete(NODE_CLAIMS.path(name))
        await eventually(lambda: scene.claims_are_gone([name]))
        handle = product.temporal.get_workflow_handle(life)
        events = [event async for event in handle.fetch_history_events()]
    assert "encryption-key-id" in _text(events)
    assert INSIDE in _text(product.connection.read(events))
    assert _rows_with(server, OUTSIDE) > 0, "nothing is found where something has to be"
    assert _rows_with(server, INSIDE) == 0
    assert _rows_with(server, pod) == 0


def _text(events: Sequence[HistoryEvent]) -> str:
    return "\n".join(str(event) for event in events)


def _rows_with(server: TemporalServer, word: str) -> int:
    """Rows of any table that have this word in the clear, in whatever is stored as bytes."""
    queries = server.store.ask("temporal", READABLE.format(word=word)).splitlines()
    assert any("history_node" in query for query in queries)
    return sum(int(server.store.ask("temporal", query)) for query in queries)


async def _in_world(product: OwnProduct, work: Coroutine[Any, Any, None]) -> None:
    await asyncio.to_thread(product.own_sandbox.run, work)


async def _is(scene: Scene, claim: str, phase: Phase) -> None:
    life = await scene.life(claim)
    assert life.open and life.phase == phase.value, life


async def _is_let_go(scene: Scene) -> None:
    claims = names(await scene.claims())
    await scene.scale(0)
    for name in claims:
        await scene.product.delete(NODE_CLAIMS.path(name))
    await eventually(lambda: scene.claims_are_gone(claims))
    await eventually(lambda: scene.instances_alive(0))


async def _is_forgotten(scene: Scene) -> None:
    """No workflow of it is open, though the backup had one."""
    lives = await scene.lives()
    assert lives and not any(life.open for life in lives), lives


async def _nothing_is_missing(product: OwnProduct) -> None:
    code, found = await product.tenure("rebuild", "--dry-run")
    assert (code, found) == (0, []), found
