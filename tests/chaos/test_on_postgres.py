"""A Temporal server on PostgreSQL: restored from an older backup, with mTLS, encrypted. `make postgres` runs it."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent

from tenure.cli.exit_codes import UsageError
from tenure.controller.temporal.connection import Security
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.nodeclaim.state import Phase
from tenure.sandbox.spec import Plan
from tenure.sandbox.temporal.server import TemporalServer
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct

pytestmark = pytest.mark.timeout(900)
RESYNC = 400.0
"""Seconds. The resync finds workflows missing since the backup; it runs every three minutes."""
INSIDE, OUTSIDE = "keeps_records", "NodeClaim"
"""A field of the workflow state, which only payloads have, and the workflow type, which is not encrypted."""
BYTEA_COUNT_QUERIES = """
    SELECT format('SELECT count(*) FROM %I WHERE position(''{word}''::bytea IN %I) > 0', table_name, column_name)
    FROM information_schema.columns WHERE table_schema = 'public' AND data_type = 'bytea'
"""


@pytest.fixture
def server(plan: Plan, product: DedicatedProduct) -> TemporalServer:
    if plan.temporal != "postgres":
        pytest.skip("make postgres")
    return product.own_sandbox.temporal_server


async def test_restored_backup_deletes_no_node_and_launches_none_twice(
    product: DedicatedProduct, server: TemporalServer, tmp_path: Path
) -> None:
    """In the backup, one of four nodes is Ready, one is launching, one does not exist yet, and one still exists."""
    await product.ensure_worker()
    async with (
        product.scope("stays", after="Never") as steady,
        product.scope("half", after="Never") as launching,
        product.scope("comes", after="Never") as added,
        product.scope("goes", after="Never") as removed,
    ):
        await asyncio.gather(steady.run_pods(1), removed.run_pods(1))
        fault = launching.inject_aws_fault("5xx", "CreateFleet")
        await launching.create_deployment(1)
        claim = await wait_until(lambda: launching.assert_newest_nodeclaim(1))
        await wait_until(lambda: launching.assert_in_phase(claim, Phase.LAUNCH))
        await _run_in_sandbox(product, server.backup(tmp_path))
        launching.remove_aws_fault(fault)
        await added.run_pods(1)
        await _scale_to_zero(removed)
        await wait_until(lambda: launching.assert_nodes_initialized(1))
        launched = {scope.name: scope.launched_instances() for scope in (steady, launching, added, removed)}
        assert {len(instances) for instances in launched.values()} == {1}
        await _run_in_sandbox(product, server.restore(tmp_path))
        await product.stop_workers()
        await product.resume_worker()
        await wait_until(lambda: _assert_no_open_workflow(removed), seconds=RESYNC)
        for scope in (steady, launching, added):
            (name,) = object_names(await scope.nodeclaims())
            await wait_until(partial(scope.assert_in_phase, name, Phase.READY), seconds=RESYNC)
            await scope.assert_pods_running(1)
        assert {scope.name: scope.launched_instances() for scope in (steady, launching, added, removed)} == launched
        assert not removed.alive_instances()
        await wait_until(lambda: _assert_nothing_missing(product))
        await steady.scale_deployment(2)
        await wait_until(lambda: steady.assert_nodes_initialized(2))
        assert len(steady.launched_instances()) == 2
        assert await product.failed_workflows() == []


async def test_client_without_certificate_is_rejected_and_doctor_finds_no_problem(
    product: DedicatedProduct, server: TemporalServer
) -> None:
    await product.ensure_worker()
    without_certificate = replace(product.connection, security=Security(ca=server.security.ca))
    with pytest.raises(UsageError, match="TEMPORAL_TLS_CLIENT_CERT_PATH"):
        await without_certificate.connect()
    _, found = await product.run_cli("doctor")
    findings = {one["subject"]: (one["level"], one["message"]) for one in found if one["area"] == "temporal"}
    assert findings["search attributes"][0] == "ok"
    assert findings["namespace default"] == ("ok", "histories are kept for 30 days")
    assert {subject: finding for subject, finding in findings.items() if finding[0] == "problem"} == {}


async def test_encrypted_payloads_are_not_readable_in_the_database(
    plan: Plan, product: DedicatedProduct, server: TemporalServer
) -> None:
    if not plan.encrypted:
        pytest.skip("only with --encrypted")
    await product.ensure_worker()
    async with product.scope("secret", after="Never") as scope:
        (name,) = object_names(await scope.run_pods(1))
        (pod,) = object_names(await scope.pods())
        workflow_id = (await scope.nodeclaim_workflow(name)).workflow_id
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        handle = product.temporal.get_workflow_handle(workflow_id)
        events = [event async for event in handle.fetch_history_events()]
    assert "encryption-key-id" in _events_text(events)
    assert INSIDE in _events_text(product.connection.decrypt_events(events))
    assert _count_rows_with(server, OUTSIDE) > 0, "the search finds no unencrypted text at all"
    assert _count_rows_with(server, INSIDE) == 0
    assert _count_rows_with(server, pod) == 0


def _events_text(events: Sequence[HistoryEvent]) -> str:
    return "\n".join(str(event) for event in events)


def _count_rows_with(server: TemporalServer, text: str) -> int:
    """Number of rows, of any table, with this text unencrypted in a bytea column."""
    queries = server.store.query("temporal", BYTEA_COUNT_QUERIES.format(word=text)).splitlines()
    assert any("history_node" in query for query in queries)
    return sum(int(server.store.query("temporal", query)) for query in queries)


async def _run_in_sandbox(product: DedicatedProduct, work: Coroutine[Any, Any, None]) -> None:
    await asyncio.to_thread(product.own_sandbox.run, work)


async def _scale_to_zero(scope: ClusterScope) -> None:
    claims = object_names(await scope.nodeclaims())
    await scope.scale_deployment(0)
    for name in claims:
        await scope.product.delete(NODE_CLAIMS.path(name))
    await wait_until(lambda: scope.assert_nodeclaims_deleted(claims))
    await wait_until(lambda: scope.assert_instances_alive(0))


async def _assert_no_open_workflow(scope: ClusterScope) -> None:
    """No workflow of the scope is open, although the backup had one."""
    nodeclaims = await scope.nodeclaim_workflows()
    assert nodeclaims and not any(nodeclaim.open for nodeclaim in nodeclaims), nodeclaims


async def _assert_nothing_missing(product: DedicatedProduct) -> None:
    code, found = await product.run_cli("rebuild", "--dry-run")
    assert (code, found) == (0, []), found
