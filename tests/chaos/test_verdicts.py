"""One verdict per node and pending pod: each output shows the same code and sentence, also after any worker kill.

The 22 nodes and seven pods have different codes. The worker is killed and started once for each of them; afterwards its
verdict is compared in all outputs, and the others in the list of nodes or pods. The log and the conditions show that no
restart changed an answer in between. The rows of the runbook `on-call.md` are outputs of these blockages.

A verdict must appear within MAX_SECONDS of its cause, in the last of the log line, the condition and the event. The
workflow task that logs also sets the search attribute and the details, which `get`, `why` and `stuck` read. Each step
takes longer on a busy machine. The limit therefore grows with the longest round trip that the test measures between
the cause and the verdict (`round_trips.py`): IDLE_SECONDS and MAX_ROUND_TRIPS of them may pass.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from tenure.apis import labels
from tenure.cli.nodes.get import read, with_verdicts
from tenure.cli.nodes.stuck import find_stuck_nodes
from tenure.cli.nodes.why import PodExplanation, explain_nodes_or_pod, format_explanations, query_disruption_status
from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tenure.model.blockers import NODEPOOL_NOT_READY, NOT_TRIED, SLOW, Verdict
from tenure.policy.lifecycle.verdict import NEEDS_ATTENTION_TEXT, verdict_of
from tests.chaos.blockages import (
    BLOCKAGES,
    BROKEN_CLASS,
    EVENTS,
    GET,
    PENDING_PODS,
    STUCK,
    TIMEOUTS,
    Blockage,
)
from tests.chaos.round_trips import RoundTrips, measure_round_trips, verdict_lines
from tests.support.paths import ROOT
from tests.support.product.cluster_scope import ClusterScope, conditions_by_type, object_names
from tests.support.product.drains import single_pod
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object, node_class
from tests.support.product.product import DedicatedProduct, InstalledProduct
from workflows.search_attributes import BLOCKED_BY

SETUP_SECONDS = 400.0
KILLS_SECONDS = 1800
"""Timeout of a test. A killed worker holds its Lease for eight seconds, so a kill takes about 15."""
MAX_SECONDS = 10.0
"""From the cause to the last output."""
IDLE_SECONDS = 7.0
"""The slowest verdict on an idle machine, with its documented delay."""
MAX_ROUND_TRIPS = 4
"""A cause may change other objects first, such as pods and permits; the workflow then reports by an activity."""
ON_CALL = ROOT / "docs/operating/runbooks/on-call.md"


@asynccontextmanager
async def scopes_at_once(scopes: Sequence[ClusterScope]) -> AsyncIterator[None]:
    """Enter and exit all scopes at the same time."""
    await asyncio.gather(*(scope.__aenter__() for scope in scopes))
    error: tuple[Any, Any, Any] = (None, None, None)
    try:
        yield
    except BaseException as raised:
        error = (type(raised), raised, raised.__traceback__)
        raise
    finally:
        await asyncio.gather(*(scope.__aexit__(*error) for scope in scopes))


@pytest.mark.timeout(KILLS_SECONDS)
async def test_every_output_shows_one_verdict_before_and_after_each_worker_kill(product: DedicatedProduct) -> None:
    await product.ensure_worker(FEATURE_GATES="NodeRepair=true", INTERRUPTION_QUEUE="demo", **TIMEOUTS)
    scopes = [product.scope("verdict", **one.pool) for one in BLOCKAGES]
    async with scopes_at_once(scopes):
        async with product.scope("idle", after="Never") as idle, measure_round_trips(idle) as round_trips:
            prepared = await asyncio.gather(
                *(_prepare(blockage, scope) for blockage, scope in zip(BLOCKAGES, scopes, strict=True))
            )
            names = [name for name, _ in prepared]
            verdicts = await assert_consistent(product, scopes, names)
            rows = list(zip(BLOCKAGES, scopes, prepared, strict=True))
            assert_prompt(
                [
                    (one.code, *await _verdict_times(scope, one, name, prepared_at), one.delay)
                    for one, scope, (name, prepared_at) in rows
                ],
                round_trips,
            )
        incidents = {scope: (one.incident, name) for one, scope, (name, _) in rows if one.incident}
        await assert_documented(product, incidents)
        expected = {name: _without_slow(verdict.sentence) for name, verdict in zip(names, verdicts, strict=True)}
        conditions = await _attention_conditions(product, names)
        for blockage, scope, (name, _) in rows:
            await restart_worker(product)
            verdict = await wait_until(partial(_assert_same_everywhere, scope, name, blockage.code))
            assert _without_slow(verdict.sentence) == expected[name], f"{blockage.code}: {verdict}"
            assert await wait_until(partial(_list_verdicts, product, names)) == expected
            await _assert_attention(product, names, verdicts)
        assert await _attention_conditions(product, names) == conditions
        for blockage, name, verdict in zip(BLOCKAGES, names, verdicts, strict=True):
            _assert_one_verdict_logged(product, name, blockage.code, verdict)


async def restart_worker(product: DedicatedProduct) -> None:
    """Kill the worker, and start another that hosts the watch."""
    await product.kill_worker()
    worker = await product.resume_worker()
    await wait_until(lambda: product.assert_watch_hosted_by(worker))


def _without_slow(sentence: str) -> str:
    """A node that stays in a phase of its start becomes slow, with the same blocker."""
    return sentence.removeprefix("slow: ")


async def _list_verdicts(product: DedicatedProduct, names: list[str]) -> dict[str, str]:
    """By NodeClaim, as `tenure get` lists them."""
    found = await read(product.temporal, product.connection.cluster, names, "")
    listed = await with_verdicts(product.temporal, found)
    assert all(one.sentence for one in listed) and len(listed) == len(names), listed
    return {one.name: _without_slow(one.sentence) for one in listed}


async def _attention_conditions(product: DedicatedProduct, names: list[str]) -> list[Object | None]:
    """The conditions NeedsAttention, with the time of their last transition."""
    claims = await asyncio.gather(*(product.kube.request("GET", NODE_CLAIMS.path(name)) for name in names))
    return [conditions_by_type(claim).get(labels.NEEDS_ATTENTION) for claim in claims]


def _assert_one_verdict_logged(product: DedicatedProduct, name: str, code: str, verdict: Verdict) -> None:
    """After this verdict was logged first, no worker logged another one."""
    logged = _logged_verdicts(product, name)
    first = next(number for number, (logged_code, _) in enumerate(logged) if logged_code in (code, SLOW))
    assert {logged_code for logged_code, _ in logged[first:]} <= {code, SLOW}, logged
    if not verdict.clears_by_itself:
        assert {reason for _, reason in logged[first:]} == {verdict.sentence}, logged


async def _prepare(blockage: Blockage, scope: ClusterScope) -> tuple[str, datetime]:
    """The NodeClaim, and when it was blocked."""
    name = await blockage.prepare(scope)
    return name, datetime.now(UTC)


async def _verdict_times(
    scope: ClusterScope, blockage: Blockage, name: str, prepared_at: datetime
) -> tuple[datetime, datetime]:
    """When the cause began, and the last of the log, the condition and the event."""
    conditions = conditions_by_type(await scope.product.kube.request("GET", NODE_CLAIMS.path(name)))
    caused_at = await blockage.cause(scope, name) if blockage.cause else prepared_at
    times = [
        datetime.fromisoformat(one["time"])
        for one in verdict_lines(scope.product, name)
        if one["code"] in (blockage.code, SLOW)
    ][:1]
    attention = conditions.get(labels.NEEDS_ATTENTION, {})
    if attention.get("reason") == blockage.code:
        event = await scope.assert_event(name, "NeedsAttention", attention["message"])
        times += [datetime.fromisoformat(one) for one in (attention["lastTransitionTime"], event["firstTimestamp"])]
    return caused_at, max(times)


def assert_prompt(found: Sequence[tuple[str, datetime, datetime, float]], round_trips: RoundTrips) -> None:
    """`found`: codes, when their causes began and their verdicts appeared, and how long each cause must last."""
    rows, late = [f"{'code':32}{'seconds':>8}{'limit':>8}"], []
    for code, caused_at, reported_at, delay in found:
        seconds = max(0.0, (reported_at - caused_at).total_seconds() - delay)
        longest = round_trips.longest(reported_at.timestamp() - seconds, reported_at.timestamp())
        limit = max(MAX_SECONDS, IDLE_SECONDS + MAX_ROUND_TRIPS * longest)
        rows.append(f"{code:32}{seconds:8.1f}{limit:8.1f}")
        late += [code] if seconds > limit else []
    table = "\n".join(rows)
    print(table)
    assert not late, table


async def assert_documented(
    product: DedicatedProduct, incidents: dict[ClusterScope, tuple[tuple[str, str], str]]
) -> None:
    """The first command and `tenure why` show the cause and the action in the runbook. `incidents`: the incident and
    the NodeClaim or pod of each scope."""
    lists = {command: (await product.run_cli(command.removeprefix("tenure ")))[1] for command in (STUCK, GET)}
    rows = []
    for scope, ((incident, first), name) in incidents.items():
        verdict = await wait_until(partial(_explained_verdict, product, name))
        code, action = verdict["code"], verdict["remedy"]
        cause = verdict["sentence"].removeprefix(f"{NEEDS_ATTENTION_TEXT}: {action}; ")
        if code == NODEPOOL_NOT_READY:
            broken = f"EC2NodeClass {BROKEN_CLASS}"
            (cause,) = [one["blockedBy"] for one in lists[STUCK]["late"] if one["what"] == broken]
        if first == EVENTS:
            await scope.assert_event(name.removeprefix("default/"), "FailedScheduling", code, cause)
        else:
            assert (code if first == GET else cause) in json.dumps(lists[first], ensure_ascii=False), lists[first]
        kind = "POD" if name.startswith("default/") else "NODE"
        shown = _anonymize(cause.removeprefix(f"{code}: "), scope)
        rows.append(f"| {incident} | `{first}`, `tenure why {kind}` | `{code}`: {shown} | {action} |")
    page = ON_CALL.read_text()
    assert all(row in page for row in rows), "\n".join(rows)


async def _explained_verdict(product: DedicatedProduct, name: str) -> Any:
    _, (explained,) = await product.run_cli("why", name)
    assert explained.get("verdict"), explained
    return explained["verdict"]


def _anonymize(text: str, scope: ClusterScope) -> str:
    """Replace names and times of this run."""
    patterns = {
        rf"{scope.name}(-[a-z0-9]+)*": "web",
        r"ip-[0-9-]+[a-z0-9.-]*": "ip-10-0-1-7",
        r"\bi-[0-9a-f]+": "i-0abc",
        r"\d{4}-\d\d-\d\d[T ][\d:+.]+Z?": "TIME",
    }
    for pattern, replacement in patterns.items():
        text = re.sub(pattern, replacement, text)
    return text


async def assert_consistent(product: DedicatedProduct, scopes: list[ClusterScope], names: list[str]) -> list[Verdict]:
    """The verdict of each blockage. `get`, `why`, `stuck`, the condition and the workflow's details agree."""
    rows = list(zip(BLOCKAGES, scopes, names, strict=True))
    results = await asyncio.gather(
        *(
            wait_until(
                partial(_assert_same_everywhere, scope, name, blockage.code), seconds=SETUP_SECONDS, poll_interval=3
            )
            for blockage, scope, name in rows
        ),
        return_exceptions=True,
    )
    verdicts = [one for one in results if isinstance(one, Verdict)]
    assert len(verdicts) == len(results), [str(one)[:600] for one in results if not isinstance(one, Verdict)]
    await _assert_attention(product, names, verdicts)
    return verdicts


async def _assert_same_everywhere(scope: ClusterScope, name: str, code: str) -> Verdict:
    product, state = scope.product, await scope.nodeclaim_state(name)
    verdict = verdict_of(state)
    assert verdict is not None and verdict.code in (code, SLOW) and state.blocked_code == code, f"{code}: {verdict}"
    (listed,) = await read(product.temporal, product.connection.cluster, [name], "")
    assert listed.blocked_by == verdict.code, listed
    explained = format_explanations(await explain_nodes_or_pod(product.connection, name))
    assert verdict.sentence in explained, f"{verdict.sentence!r} is not in:\n{explained}"
    metadata = await (await scope.workflow_handle(name)).query("__temporal_workflow_metadata")
    assert verdict.sentence in metadata.current_details, metadata.current_details
    condition = conditions_by_type(await product.kube.request("GET", NODE_CLAIMS.path(name))).get(
        labels.NEEDS_ATTENTION, {}
    )
    description = await (await scope.workflow_handle(name)).describe()
    assert description.typed_search_attributes.get(BLOCKED_BY) == verdict.code
    logged = _logged_verdicts(product, name)
    assert [code for code, _ in logged[-1:]] == [verdict.code], logged
    if verdict.clears_by_itself:
        assert condition.get("status") != "True", condition
    else:
        assert logged[-1][1] == verdict.sentence, logged
        await _assert_reported(scope, name, verdict, condition)
        if node := await product.find(NODES.path(state.node_name)) if state.node_name else None:
            await _assert_reported(
                scope, state.node_name, verdict, conditions_by_type(node).get(labels.NEEDS_ATTENTION, {})
            )
    return verdict


async def _assert_reported(scope: ClusterScope, name: str, verdict: Verdict, condition: Object) -> None:
    """The condition of the NodeClaim or Node has the code and the sentence, and an event has the sentence."""
    assert (condition.get("status"), condition.get("reason")) == ("True", verdict.code), condition
    assert verdict.sentence in condition["message"], condition
    await scope.assert_event(name, "NeedsAttention", verdict.sentence)


def _logged_verdicts(product: InstalledProduct, name: str) -> list[tuple[str, str]]:
    """Codes and sentences. The sentence of a verdict that clears by itself may be an earlier one."""
    return [(one["code"], one["reason"]) for one in verdict_lines(product, name)]


async def _assert_attention(product: DedicatedProduct, names: list[str], verdicts: list[Verdict]) -> None:
    """`stuck` lists the nodes that need attention, and the metric counts them."""
    expected = {name for name, verdict in zip(names, verdicts, strict=True) if not verdict.clears_by_itself}
    await wait_until(partial(_assert_stuck, product, names, expected))
    for code in {one.code for one in verdicts if not one.clears_by_itself}:
        await wait_until(partial(_assert_counted, product, code))


async def _assert_stuck(product: DedicatedProduct, names: list[str], expected: set[str]) -> None:
    nodes, _, _, _ = await find_stuck_nodes(product.temporal, product.connection.cluster)
    assert {one.name for one in nodes} & set(names) == expected


async def _assert_counted(product: DedicatedProduct, code: str) -> None:
    assert await product.metric_value("tenure_nodeclaims_needing_attention", code=code) == 1


@pytest.mark.timeout(KILLS_SECONDS)
async def test_pending_pods_have_one_verdict_before_and_after_each_worker_kill(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    scopes = [product.scope("pending", **one.pool) for one in PENDING_PODS]
    async with scopes_at_once(scopes):
        broken_class = node_class(BROKEN_CLASS)
        broken_class["spec"]["subnetSelectorTerms"] = [{"tags": {"absent": "true"}}]
        await scopes[0].apply_manifest(broken_class)
        async with product.scope("idle", after="Never") as idle, measure_round_trips(idle) as round_trips:
            for one, scope in zip(PENDING_PODS, scopes, strict=True):
                await scope.create_deployment(1, **one.spec(scope.name))
            before = await assert_pending_pods_consistent(scopes)
            rows = list(zip(PENDING_PODS, scopes, before, strict=True))
            assert_prompt(
                [
                    (one.code, *await _event_times(scope, verdict), one.delay)
                    for one, scope, verdict in rows
                    if has_event(verdict)
                ],
                round_trips,
            )
        incidents = {
            scope: (one.incident, f"default/{(await single_pod(scope))['metadata']['name']}")
            for one, scope, _ in rows
            if one.incident
        }
        await assert_documented(product, incidents)
        for _ in PENDING_PODS:
            await restart_worker(product)
            assert await assert_pending_pods_consistent(scopes) == before
        for _, scope, verdict in rows:
            name = (await single_pod(scope))["metadata"]["name"]
            logged = {(one["code"], one["reason"]) for one in product.log_entries() if _is_about_pod(one, name)}
            assert logged <= {(verdict.code, verdict.sentence)}, logged


async def assert_pending_pods_consistent(scopes: list[ClusterScope]) -> list[Verdict]:
    return await asyncio.gather(
        *(
            wait_until(partial(_assert_one_pod_verdict, scope, one.code), seconds=SETUP_SECONDS, poll_interval=3)
            for one, scope in zip(PENDING_PODS, scopes, strict=True)
        )
    )


async def _assert_one_pod_verdict(scope: ClusterScope, code: str) -> Verdict:
    """`why`, `stuck`, the event, the log and the metric agree."""
    product, pods = scope.product, object_names(await scope.pods())
    assert len(pods) == 1, pods
    name = pods[0]
    (found,) = await explain_nodes_or_pod(product.connection, f"default/{name}")
    assert isinstance(found, PodExplanation), found
    verdict = found.status.verdict
    assert verdict is not None and verdict.code == code, f"{code}: {found.status}"
    assert verdict.message in format_explanations([found])
    stuck = await query_disruption_status(product.temporal, product.connection.cluster, pending_pods=True)
    listed = {group.pod: group.verdict for group in stuck.pending_pods}
    assert listed.get(f"default/{name}") == (None if verdict.clears_by_itself else verdict), stuck
    if has_event(verdict):
        await scope.assert_event(name, "FailedScheduling", verdict.message)
        logged = [(one["code"], one["reason"]) for one in product.log_entries() if _is_about_pod(one, name)]
        assert logged[-1:] == [(verdict.code, verdict.sentence)], logged
    clears_by_itself = str(verdict.clears_by_itself).lower()
    await product.metric_value("tenure_pending_pods", code=code, clears_by_itself=clears_by_itself)
    return verdict


def _is_about_pod(line: Object, name: str) -> bool:
    return bool(line["message"] == "blocked pod" and line["Pod"] == {"namespace": "default", "name": name})


def has_event(verdict: Verdict) -> bool:
    return not verdict.clears_by_itself or verdict.code == NOT_TRIED


async def _event_times(scope: ClusterScope, verdict: Verdict) -> tuple[datetime, datetime]:
    """Of the pod's creation, or kube-scheduler's first attempt, and of the first event with the verdict."""
    name = (await single_pod(scope))["metadata"]["name"]
    events = await scope.events_of(name)
    times = [
        datetime.fromisoformat(one["firstTimestamp"]) for one in events if one["message"].endswith(verdict.message)
    ]
    assert verdict.since is not None
    return verdict.since, min(times)
