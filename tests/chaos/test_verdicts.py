"""One verdict per node and pending pod: each output shows the same code and sentence, also after a worker kill.

The 22 nodes and seven pods have different codes. A table shows how long each verdict took. The rows of the runbook
`on-call.md` are outputs of these blockages.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from tenure.apis import labels
from tenure.cli.nodes.get import read
from tenure.cli.nodes.stuck import find_stuck_nodes
from tenure.cli.nodes.why import PodExplanation, explain_nodes_or_pod, format_explanations, query_disruption_status
from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tenure.model.blockers import NODEPOOL_NOT_READY, NOT_TRIED, SLOW, Verdict
from tenure.policy.lifecycle.verdict import NEEDS_ATTENTION_TEXT, verdict_of
from tenure.sandbox.fault_proxy import ErrorResponse
from tenure.sandbox.nodes.fault_rules import (
    Deregister,
    LateDevices,
    NeverRegister,
    SetCondition,
    SlowReady,
)
from tests.support.kube.builders import persistent_volume_json, volume_attachment_json
from tests.support.paths import ROOT
from tests.support.product.cluster_scope import ClusterScope, conditions_by_type, object_names
from tests.support.product.drains import (
    annotate_do_not_disrupt,
    assert_budget_healthy,
    pod_disruption_budget,
    single_pod,
)
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import announce_maintenance, instance_id, run_pods_with_rules
from tests.support.product.objects import Object, lifecycle_policy, node_class, pod_spec
from tests.support.product.product import DedicatedProduct, InstalledProduct
from workflows.search_attributes import BLOCKED_BY

SETUP_SECONDS = 400.0
TIMEOUTS = {"LAUNCH_TIMEOUT": "30m", "REGISTRATION_TIMEOUT": "30m", "INITIALIZATION_TIMEOUT": "30m"}
"""Longer than the test, so that no phase becomes overdue."""
PAUSE = f"until={datetime.now(UTC) + timedelta(hours=6):%Y-%m-%dT%H:%M:%SZ}, by=ann, reason=a test"
AGENT = {"key": "example.com/agent", "effect": "NoExecute"}
Prepare = Callable[[ClusterScope], Awaitable[str]]
MAX_SECONDS = 10.0
"""From the visible cause to the last output, on an idle machine."""
SLOW_MACHINE = 5
"""Factor by which a busy machine may exceed MAX_SECONDS."""
ON_CALL = ROOT / "docs/operating/runbooks/on-call.md"


@dataclass(frozen=True)
class Blockage:
    """`prepare` blocks a node of the scope and returns the name of its NodeClaim. `pool`: settings of the NodePool.

    `cause`: the condition of the NodeClaim whose transition shows the cause; without it, the end of `prepare` does.
    `delay`: documented seconds for which the cause must last. `incident`: for the runbook, with its first command.
    """

    code: str
    prepare: Prepare
    pool: dict[str, Any] = field(default_factory=lambda: {"after": "Never"})
    cause: str = ""
    delay: float = 0.0
    incident: tuple[str, str] | None = None


async def fail_launch(scope: ClusterScope) -> str:
    scope.inject_aws_fault("5xx", "CreateFleet")
    return await start_pod(scope)


async def start_pod(scope: ClusterScope, **pod: Any) -> str:
    """Create a pod, and return its NodeClaim as soon as it exists."""
    await scope.create_deployment(1, **pod)
    return await wait_until(lambda: scope.assert_newest_nodeclaim(1))


async def start_with_fault(fault: Any, scope: ClusterScope) -> str:
    await scope.inject_node_fault(fault)
    return await start_pod(scope)


async def start_without_device(scope: ClusterScope) -> str:
    await scope.inject_node_fault(LateDevices(seconds=None))
    return await start_pod(scope, containers=pod_spec(scope.name, **{"nvidia.com/gpu": "1"})["containers"])


async def duplicate_provider_id(scope: ClusterScope) -> str:
    name = await start_with_fault(NeverRegister(), scope)
    provider_id = await wait_until(partial(_assert_launched, scope, name))
    registration_fault = scope.inject_api_fault(ErrorResponse(503), f"/nodes/{scope.name}-", "PATCH")
    for number in range(2):
        metadata = {"name": f"{scope.name}-{number}"}
        await scope.apply_manifest(
            {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"providerID": provider_id}}
        )
    await wait_until(lambda: scope.assert_conditions_mention(name, "MultipleNodesFound"))
    scope.remove_api_fault(registration_fault)
    return name


async def _assert_launched(scope: ClusterScope, name: str) -> str:
    found = await scope.product.kube.request("GET", NODE_CLAIMS.path(name))
    provider_id: str = (found.get("status") or {}).get("providerID", "")
    assert provider_id, found.get("status")
    return provider_id


async def empty_node(scope: ClusterScope) -> str:
    (name,) = object_names(await scope.run_pods(1))
    await scope.scale_deployment(0)
    return name


async def annotated_node(key: str, value: str, scope: ClusterScope) -> str:
    (claim,) = await scope.run_pods(1)
    await scope.product.patch(NODES.path(claim["status"]["nodeName"]), {"metadata": {"annotations": {key: value}}})
    await scope.scale_deployment(0)
    return str(claim["metadata"]["name"])


async def node_with_fault(fault: Any, scope: ClusterScope) -> str:
    (claim,) = await scope.run_pods(1)
    await scope.inject_node_fault(fault, node=claim["status"]["nodeName"], count=1)
    return str(claim["metadata"]["name"])


async def stopped_instance(scope: ClusterScope) -> str:
    (claim,) = await scope.run_pods(1)
    scope.product.aws.stop_instance(instance_id(claim))
    return str(claim["metadata"]["name"])


async def drifted_node(scope: ClusterScope) -> str:
    (name,) = object_names(await scope.run_pods(1))
    await scope.product.patch(scope.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})
    return name


async def unhealthy_node(scope: ClusterScope) -> str:
    condition = {"type": "KernelReady", "status": "False", "toleration": "1h"}
    await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, repair={"conditions": [condition]}))
    return await node_with_fault(SetCondition(type="KernelReady", status="False"), scope)


async def deferred_interruption(scope: ClusterScope) -> str:
    rules = {"scheduledChange": {"action": "deferUntilEventStart"}}
    (claim,) = await run_pods_with_rules(scope, 1, rules)
    announce_maintenance(scope.product, claim, hours=6)
    return str(claim["metadata"]["name"])


async def drain(scope: ClusterScope, *, budgets: tuple[Object, ...] = (), annotation: str = "") -> str:
    """Delete a NodeClaim whose pod these budgets or this annotation protect."""
    for budget in budgets:
        await scope.apply_manifest(budget)
    (claim,) = await scope.run_pods(1)
    if annotation:
        await annotate_do_not_disrupt(scope, annotation)
    await scope.product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
    return str(claim["metadata"]["name"])


async def drain_with_budgets(*specs: dict[str, Any], scope: ClusterScope) -> str:
    budgets = [pod_disruption_budget(scope.name, **spec) for spec in specs]
    for number, budget in enumerate(budgets):
        budget["metadata"]["name"] = f"{scope.name}-{number}"
    return await drain(scope, budgets=tuple(budgets))


async def drain_without_room(scope: ClusterScope) -> str:
    """The budget allows the eviction of one of two pods. The limit allows no node for its successor."""
    await scope.apply_manifest(pod_disruption_budget(scope.name, minAvailable=1))
    claims = object_names(await scope.run_pods(2))
    await wait_until(lambda: assert_budget_healthy(scope, 2))
    await scope.product.patch(scope.pool_path, {"spec": {"limits": {"cpu": "1"}}})
    for claim in claims:
        await scope.product.delete(NODE_CLAIMS.path(claim))
    return await wait_until(lambda: scope.assert_newest_nodeclaim(1))


async def refused_eviction(scope: ClusterScope) -> str:
    await scope.run_pods(1)
    pod = (await single_pod(scope))["metadata"]["name"]
    scope.inject_api_fault(ErrorResponse(403), f"/pods/{pod}/eviction", "POST")
    (name,) = object_names(await scope.nodeclaims())
    await scope.product.delete(NODE_CLAIMS.path(name))
    return name


async def attached_volume(scope: ClusterScope) -> str:
    (claim,) = await scope.run_pods(1)
    driver = "ebs.csi.aws.com"
    await scope.apply_manifest(persistent_volume_json(scope.name, driver=driver))
    await scope.apply_manifest(volume_attachment_json(scope.name, claim["status"]["nodeName"], driver=driver))
    await scope.product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
    return str(claim["metadata"]["name"])


STUCK, GET, EVENTS = "tenure stuck", "tenure get", "kubectl events"
BLOCKAGES = (
    Blockage("LaunchFailed", fail_launch, incident=("EC2 rejects a launch", STUCK)),
    Blockage("NodeNotJoined", partial(start_with_fault, NeverRegister()), cause="Launched", delay=180),
    Blockage("MultipleNodesFound", duplicate_provider_id),
    Blockage("NodeNotReady", partial(start_with_fault, SlowReady(seconds=3600)), cause="Registered", delay=8),
    Blockage("StartupTaintsExist", start_pod, {"startup_taints": [AGENT]}, cause="Registered", delay=8),
    Blockage("ResourceNotRegistered", start_without_device, {"types": ["g4dn.xlarge"]}, cause="Registered", delay=8),
    Blockage("Never", empty_node),
    Blockage("PermitDenied", empty_node, {"after": "1s", "budget": "0"}),
    Blockage("NodeDoNotDisrupt", partial(annotated_node, labels.DO_NOT_DISRUPT, "true"), {"after": "1s"}),
    Blockage(
        "Paused",
        partial(annotated_node, labels.PAUSE, PAUSE),
        {"after": "1s"},
    ),
    Blockage("NodeNotFound", partial(node_with_fault, Deregister()), incident=("a Node disappears", STUCK)),
    Blockage("InstanceStopped", stopped_instance, delay=5, incident=("an instance is stopped", STUCK)),
    Blockage("ReplacementPending", drifted_node, {"after": "Never", "budget": "0"}),
    Blockage("Unhealthy", unhealthy_node),
    Blockage("InterruptionDeferred", deferred_interruption),
    Blockage("PodDisruptionBudget", drain_without_room),
    Blockage(
        "PodDisruptionBudgetAllowsNone",
        lambda scope: drain_with_budgets({"maxUnavailable": 0}, scope=scope),
        incident=("a drain does not end", STUCK),
    ),
    Blockage(
        "MultiplePodDisruptionBudgets",
        lambda scope: drain_with_budgets({"maxUnavailable": 1}, {"minAvailable": 0}, scope=scope),
    ),
    Blockage("PodDoNotDisrupt", partial(drain, annotation="true")),
    Blockage("PodDoNotDisruptUntil", partial(drain, annotation="6h")),
    Blockage("EvictionRefused", refused_eviction),
    Blockage("VolumesAttached", attached_volume, incident=("a deleted node stays, without pods", GET)),
)


async def test_every_output_shows_one_verdict_before_and_after_a_worker_kill(product: DedicatedProduct) -> None:
    await product.ensure_worker(FEATURE_GATES="NodeRepair=true", INTERRUPTION_QUEUE="demo", **TIMEOUTS)
    async with AsyncExitStack() as stack:
        scopes = [await stack.enter_async_context(product.scope("verdict", **one.pool)) for one in BLOCKAGES]
        prepared = await asyncio.gather(
            *(_prepare(blockage, scope) for blockage, scope in zip(BLOCKAGES, scopes, strict=True))
        )
        names = [name for name, _ in prepared]
        before = await assert_consistent(product, scopes, names)
        rows = list(zip(BLOCKAGES, scopes, prepared, strict=True))
        assert_prompt(
            {
                one.code: (await _seconds_to_verdict(scope, one, name, prepared_at), one.delay)
                for one, scope, (name, prepared_at) in rows
            }
        )
        incidents = {scope: (one.incident, name) for one, scope, (name, _) in rows if one.incident}
        await assert_documented(product, incidents)
        await product.kill_worker()
        worker = await product.resume_worker()
        await wait_until(lambda: product.assert_watch_hosted_by(worker))
        after = await assert_consistent(product, scopes, names)
        assert after == before


async def _prepare(blockage: Blockage, scope: ClusterScope) -> tuple[str, datetime]:
    """The NodeClaim, and when it was blocked."""
    name = await blockage.prepare(scope)
    return name, datetime.now(UTC)


async def _seconds_to_verdict(scope: ClusterScope, blockage: Blockage, name: str, prepared_at: datetime) -> float:
    """From the cause to the last of the log, the condition and the event. Objects have times in whole seconds."""
    conditions = conditions_by_type(await scope.product.kube.request("GET", NODE_CLAIMS.path(name)))
    caused_at = (
        datetime.fromisoformat(conditions[blockage.cause]["lastTransitionTime"]) if blockage.cause else prepared_at
    )
    times = [
        datetime.fromisoformat(one["time"])
        for one in scope.product.log_entries()
        if one["message"] == "blocked nodeclaim"
        and one["NodeClaim"]["name"] == name
        and one["code"] in (blockage.code, SLOW)
    ][:1]
    attention = conditions.get(labels.NEEDS_ATTENTION, {})
    if attention.get("reason") == blockage.code:
        event = await scope.assert_event(name, "NeedsAttention", attention["message"])
        times += [datetime.fromisoformat(one) for one in (attention["lastTransitionTime"], event["firstTimestamp"])]
    return max(0.0, (max(times) - caused_at).total_seconds())


def assert_prompt(seconds: dict[str, tuple[float, float]]) -> None:
    """`seconds`: by code, how long the verdict took, and how long its cause must last."""
    table = "\n".join(f"{code:32}{took:8.1f}{delay:8.1f}" for code, (took, delay) in seconds.items())
    print(f"{'code':32}{'seconds':>8}{'delay':>8}\n{table}")
    late = [code for code, (took, delay) in seconds.items() if took > SLOW_MACHINE * MAX_SECONDS + delay]
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


async def assert_consistent(product: DedicatedProduct, scopes: list[ClusterScope], names: list[str]) -> list[str]:
    """The sentence of each blockage. `get`, `why`, `stuck`, the condition and the workflow's details agree. A node
    that stays in a phase of its start becomes slow.
    """
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
    expected = {name for name, verdict in zip(names, verdicts, strict=True) if not verdict.clears_by_itself}
    await wait_until(partial(_assert_stuck, product, names, expected))
    for code in {one.code for one in verdicts if not one.clears_by_itself}:
        await wait_until(partial(_assert_counted, product, code))
    return [one.sentence.removeprefix("slow: ") for one in verdicts]


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
    return [
        (one["code"], one["reason"])
        for one in product.log_entries()
        if one["message"] == "blocked nodeclaim" and one["NodeClaim"]["name"] == name
    ]


async def _assert_stuck(product: DedicatedProduct, names: list[str], expected: set[str]) -> None:
    nodes, _, _, _ = await find_stuck_nodes(product.temporal, product.connection.cluster)
    assert {one.name for one in nodes} & set(names) == expected


async def _assert_counted(product: DedicatedProduct, code: str) -> None:
    assert await product.metric_value("tenure_nodeclaims_needing_attention", code=code) == 1


@dataclass(frozen=True)
class PendingPod:
    """`spec`: of a pod for this NodePool. `delay` and `incident`: as in Blockage."""

    code: str
    spec: Callable[[str], Object]
    pool: dict[str, Any] = field(default_factory=dict)
    delay: float = 0.0
    incident: tuple[str, str] | None = None


BROKEN_CLASS = "broken"
PENDING_PODS = (
    PendingPod("NoNodePoolFits", lambda pool: {"nodeSelector": {labels.NODEPOOL: pool, labels.ARCH: "arm64"}}),
    PendingPod("NoInstanceTypeFits", lambda pool: pod_spec(pool, cpu="3500m")),
    PendingPod("LimitsExceeded", pod_spec, {"limits": {"cpu": "1"}}),
    PendingPod("SchedulingGated", lambda pool: {"schedulingGates": [{"name": "example.com/queue"}]}),
    PendingPod(
        "NotTried",
        lambda pool: {"schedulerName": "absent"},
        delay=60,
        incident=("another scheduler is silent", EVENTS),
    ),
    PendingPod(
        "NodePoolNotReady",
        pod_spec,
        {"of_class": BROKEN_CLASS},
        incident=("an EC2NodeClass is not ready", STUCK),
    ),
    PendingPod(
        "PodUnplannable",
        lambda pool: {"resourceClaims": [{"name": "gpu", "resourceClaimName": "absent"}]},
        incident=("a pod has a field that Tenure does not support", STUCK),
    ),
)


async def test_pending_pods_have_one_verdict_before_and_after_a_worker_kill(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with AsyncExitStack() as stack:
        scopes = [await stack.enter_async_context(product.scope("pending", **one.pool)) for one in PENDING_PODS]
        broken_class = node_class(BROKEN_CLASS)
        broken_class["spec"]["subnetSelectorTerms"] = [{"tags": {"absent": "true"}}]
        await scopes[0].apply_manifest(broken_class)
        for one, scope in zip(PENDING_PODS, scopes, strict=True):
            await scope.create_deployment(1, **one.spec(scope.name))
        before = await assert_pending_pods_consistent(scopes)
        rows = list(zip(PENDING_PODS, scopes, before, strict=True))
        assert_prompt(
            {
                one.code: (await _seconds_to_event(scope, verdict), one.delay)
                for one, scope, verdict in rows
                if has_event(verdict)
            }
        )
        incidents = {
            scope: (one.incident, f"default/{(await single_pod(scope))['metadata']['name']}")
            for one, scope, _ in rows
            if one.incident
        }
        await assert_documented(product, incidents)
        await product.kill_worker()
        worker = await product.resume_worker()
        await wait_until(lambda: product.assert_watch_hosted_by(worker))
        assert await assert_pending_pods_consistent(scopes) == before


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


async def _seconds_to_event(scope: ClusterScope, verdict: Verdict) -> float:
    """From the pod's creation, or kube-scheduler's first attempt, to the first event with the verdict."""
    name = (await single_pod(scope))["metadata"]["name"]
    events = await scope.events_of(name)
    times = [
        datetime.fromisoformat(one["firstTimestamp"]) for one in events if one["message"].endswith(verdict.message)
    ]
    assert verdict.since is not None
    return max(0.0, (min(times) - verdict.since).total_seconds())
