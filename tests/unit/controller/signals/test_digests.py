"""Digests for workflows contain only inputs of the current phase, so that an undisturbed node costs few signals."""

from datetime import datetime
from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.apis.labels import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.signals.digests import (
    Digest,
    NodeClaimView,
    hash_observation,
    nodeclaim_digest,
    nodeclass_digest,
    nodepool_digest,
)
from tenure.kube.facts.objects import nodepool_fact
from tenure.model.facts import NodeCondition, NodeFact, Taint
from tenure.model.node_health import UnhealthyCondition
from tenure.model.nodeclaim.node_identity import NODEPOOL_GAP
from tenure.model.observations import ObservedNodeClaim
from tenure.policy.disruption.drift import Drift
from tests.support.controller import builders
from tests.support.controller.builders import NOW, at, claim_fact, node_fact

REGISTERED = {"registered": True, "launched": True}
INITIALIZED = {**REGISTERED, "initialized": True, "initialized_at": at(-50)}
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
CNI = Taint(key="cni", effect="NoExecute")


def observe(
    claim: dict[str, Any] | None = None, *nodes: NodeFact, now: datetime = NOW, **view: Any
) -> ObservedNodeClaim:
    return nodeclaim_digest(NodeClaimView(claim=claim_fact(**(claim or {})), nodes=nodes, **view), now).observed


def ready_observation(**more: Any) -> ObservedNodeClaim:
    """The observation of an initialized node."""
    fields: dict[str, Any] = {
        "provider_id": "aws:///us-west-2a/i-n1",
        "node_name": "n1",
        "node_count": 1,
        "node_ready": True,
        "boot_id": "boot-1",
        **more,
    }
    return ObservedNodeClaim(**fields)


JOINED = ObservedNodeClaim(provider_id="aws:///us-west-2a/i-n1", node_name="n1", node_count=1)


def test_nodeclaim_without_node_has_an_empty_digest() -> None:
    assert observe({"provider_id": ""}) == observe({"launched": True}) == ObservedNodeClaim()


def test_unregistered_node_is_reported_only_as_joined() -> None:
    for node in (node_fact(), node_fact(ready=False), node_fact(taints=(NOT_READY,)), node_fact(boot_id="x")):
        assert observe({"launched": True}, node) == JOINED


def test_registered_node_without_its_registration_is_reported_after_a_delay() -> None:
    node = node_fact(registration_gaps=("finalizer karpenter.sh/termination", NODEPOOL_GAP))
    gaps = ("finalizer karpenter.sh/termination",)
    assert observe({**INITIALIZED, "registered_at": at(-60), "pool": ""}, node).registration_gaps == gaps
    assert observe({**INITIALIZED, "registered_at": at(-60)}, node).registration_gaps == node.registration_gaps
    early = NodeClaimView(claim=claim_fact(**INITIALIZED, registered_at=at(-1)), nodes=(node,))
    digest = nodeclaim_digest(early, NOW)
    assert digest.observed.registration_gaps == () and digest.recheck_at == at(9)
    assert observe({"registered": False}, node).registration_gaps == ()


def test_two_nodes_of_one_instance_are_counted() -> None:
    assert observe({"launched": True}, node_fact(), node_fact(name="n2")).node_count == 2


def test_notready_registered_node_is_reported_only_as_joined() -> None:
    assert observe(REGISTERED, node_fact(ready=False, taints=(NOT_READY, CNI))) == JOINED


def test_ready_node_has_the_same_digest_before_and_after_initialization() -> None:
    first = observe(REGISTERED, node_fact(), consolidation="WhenEmpty/0s")
    assert first == ready_observation(consolidation="WhenEmpty/0s", ready_since=at(-60))
    assert observe(INITIALIZED, node_fact(), consolidation="WhenEmpty/0s", occupied=True) == first


@pytest.mark.parametrize(
    ("node", "claim", "reason"),
    [
        (node_fact(taints=(CNI,)), {"startup_taints": (CNI,)}, "StartupTaintsExist"),
        (node_fact(taints=(NOT_READY,)), {}, "KnownEphemeralTaintsExist"),
        (node_fact(), {"requests": {"nvidia.com/gpu": 1}}, "ResourceNotRegistered"),
    ],
)
def test_initialization_blocker_is_reported_after_six_seconds(
    node: NodeFact, claim: dict[str, Any], reason: str
) -> None:
    fresh = node.model_copy(update={"ready_changed": at(-2)})
    early = nodeclaim_digest(NodeClaimView(claim=claim_fact(**REGISTERED, **claim), nodes=(fresh,)), NOW)
    assert early.observed == JOINED and early.recheck_at == at(4)
    late = nodeclaim_digest(NodeClaimView(claim=claim_fact(**REGISTERED, **claim), nodes=(fresh,)), at(4))
    assert late.observed.node_ready and late.recheck_at is None
    assert late.observed.waiting_for[0].startswith(reason)


def test_undeclared_taint_does_not_block_initialization() -> None:
    assert observe(REGISTERED, node_fact(taints=(CNI,))).waiting_for == ()


def test_empty_since_is_the_end_of_the_last_cause_of_occupation() -> None:
    vacant = observe(INITIALIZED, node_fact(), occupied=False, vacant_since=at(-10))
    assert (vacant.empty, vacant.empty_since) == (True, at(-10))
    assert observe(INITIALIZED, node_fact(), occupied=False).empty_since == at(-50)
    lapsed = observe(
        INITIALIZED, node_fact(), occupied=False, expected=True, expected_until=at(-5), vacant_since=at(-10)
    )
    assert lapsed.empty_since == at(-5)


def test_node_with_nominated_pods_is_not_empty_until_they_expire() -> None:
    view = NodeClaimView(
        claim=claim_fact(**INITIALIZED), nodes=(node_fact(),), occupied=False, expected=True, expected_until=at(20)
    )
    expecting = nodeclaim_digest(view, NOW)
    assert not expecting.observed.empty and expecting.recheck_at == at(20)
    assert nodeclaim_digest(view, at(20)).observed.empty_since == at(20)


def test_occupied_node_is_not_empty() -> None:
    assert observe(INITIALIZED, node_fact(), occupied=True).empty_since is None


def test_emptiness_is_not_reported_before_initialization() -> None:
    assert not observe(REGISTERED, node_fact(), occupied=False).empty


def test_initialized_node_reports_reboot_readiness_policy_and_protection() -> None:
    base = observe(INITIALIZED, node_fact())
    protected = node_fact(annotations={"karpenter.sh/do-not-disrupt": "true"})
    changed = [
        observe(INITIALIZED, node_fact(boot_id="boot-2")),
        observe(INITIALIZED, node_fact(ready=False)),
        observe(INITIALIZED, node_fact(), consolidation="WhenEmpty/30s"),
        observe(INITIALIZED, protected),
    ]
    assert all(one.differs_from(base) for one in changed)
    for same in (node_fact(labels={"a": "b"}), node_fact(ready_changed=at(-1)), node_fact(allocatable={"cpu": 1})):
        assert not observe(INITIALIZED, same).differs_from(base)


@pytest.mark.parametrize(
    ("claim", "node"), [({"deleting": True}, node_fact()), (INITIALIZED, node_fact(deleting=True))]
)
def test_deleting_node_reports_only_its_deletion(claim: dict[str, Any], node: NodeFact) -> None:
    assert observe(claim, node, occupied=False) == ObservedNodeClaim(deleting=True)


def test_disruption_reason_alone_causes_no_signal() -> None:
    observed = observe({"deleting": True, "disruption": "Drifted"})
    assert observed.disruption == "Drifted" and not observed.differs_from(observe({"deleting": True}))


def test_undisturbed_lifecycle_costs_five_signals() -> None:
    observations = [
        observe({"provider_id": ""}),
        observe({"launched": True}),
        observe({"launched": True}, node_fact(ready=False, taints=(NOT_READY,))),
        observe(REGISTERED, node_fact(ready=False, taints=(NOT_READY,))),
        observe(REGISTERED, node_fact(ready_changed=NOW, taints=(NOT_READY,))),
        observe(REGISTERED, node_fact()),
        observe(INITIALIZED, node_fact(), occupied=False, expected=True, expected_until=at(20)),
        observe(INITIALIZED, node_fact(), occupied=True),
        observe(INITIALIZED, node_fact(), occupied=False, vacant_since=at(-1)),
        observe({**INITIALIZED, "deleting": True}, node_fact()),
        observe({**INITIALIZED, "deleting": True}),
    ]
    signaled = [
        one for before, one in zip([None, *observations], observations, strict=False) if one.differs_from(before)
    ]
    assert len(signaled) == 5


def test_hash_ignores_the_observation_number() -> None:
    assert hash_observation(ObservedNodeClaim(number=1)) == hash_observation(ObservedNodeClaim(number=2))
    assert hash_observation(ObservedNodeClaim()) != hash_observation(ObservedNodeClaim(deleting=True))


def test_nodepool_digest_covers_usage_and_nodeclass_readiness() -> None:
    pool = nodepool_fact(builders.pool())
    used = claim_fact(capacity={"cpu": 2000})
    bare = EC2NodeClass.from_object(builders.node_class())
    base = nodepool_digest(pool, [used], bare)
    assert nodepool_digest(pool, [used, claim_fact(name="c2", provider_id="")], bare) == base
    assert nodepool_digest(pool, [used, used], bare) != base
    assert nodepool_digest(pool, [claim_fact(capacity={"cpu": 4000})], bare) != base
    assert nodepool_digest(pool, [used], None).node_class_ready == "NotFound"
    terminating = EC2NodeClass.from_object(builders.node_class(deleting=True))
    assert nodepool_digest(pool, [used], terminating).node_class_ready == "Terminating"


def test_nodepool_digest_covers_only_the_rollout_rules() -> None:
    fact = nodepool_fact(builders.pool())
    rules = LifecycleRules.model_validate({"rollout": {"onFailure": "halt"}, "notReadyGrace": "9m"})
    assert nodepool_digest(fact, [], None, rules=rules).rollout == rules.rollout
    other = rules.model_copy(update={"not_ready_grace": "8m"})
    assert nodepool_digest(fact, [], None, rules=other) == nodepool_digest(fact, [], None, rules=rules)


def test_only_static_nodepool_digest_counts_nodeclaims() -> None:
    claims = [claim_fact(), claim_fact(name="c2", provider_id=""), claim_fact(name="c3", deleting=True)]
    static = nodepool_fact(builders.pool(replicas=4))
    observed = nodepool_digest(static, claims, None, static_capacity=True)
    assert (observed.static, observed.replicas, observed.existing, observed.terminating) == ("on", 4, 2, 1)
    fewer = nodepool_digest(static, claims[:1] + claims[2:], None, static_capacity=True)
    assert (fewer.existing, fewer.usage) == (1, observed.usage), (
        "a NodeClaim that never launched is counted as missing too"
    )
    dynamic = nodepool_digest(nodepool_fact(builders.pool()), claims, None, static_capacity=True)
    assert (dynamic.static, dynamic.existing, dynamic.terminating) == ("", 0, 0)


def test_static_nodepool_digest_counts_replaced_nodeclaims_up_to_the_replicas() -> None:
    replaced = claim_fact(name="c2").model_copy(update={"disrupted_by": "command"})
    claims = [claim_fact(), replaced, claim_fact(name="replacement")]
    found = {
        replicas: nodepool_digest(
            nodepool_fact(builders.pool(replicas=replicas)), claims, None, static_capacity=True
        ).existing
        for replicas in (1, 2, 3, 4)
    }
    assert found == {1: 2, 2: 2, 3: 3, 4: 3}


def test_static_nodepool_digest_without_feature_gate_has_no_counts() -> None:
    static = nodepool_fact(builders.pool(replicas=4))
    observed = nodepool_digest(static, [claim_fact()], None)
    assert (observed.static, observed.replicas, observed.existing) == ("off", 0, 0)
    assert hash_observation(observed) != hash_observation(
        nodepool_digest(static, [claim_fact()], None, static_capacity=True)
    )


def test_nodeclass_digest_counts_nodeclaims_only_while_deleting() -> None:
    active = EC2NodeClass.from_object(builders.node_class(generation=4))
    terminating = EC2NodeClass.from_object(builders.node_class(deleting=True))
    few, more = [claim_fact()], [claim_fact(), claim_fact(name="c2")]
    assert nodeclass_digest(active, few) == nodeclass_digest(active, more)
    assert nodeclass_digest(active, few).generation == 4
    assert nodeclass_digest(terminating, few) != nodeclass_digest(terminating, more)


def test_nodepool_digest_reports_only_foreign_hash_versions() -> None:
    ours, others = {NODEPOOL_HASH_VERSION: HASH_VERSION}, {NODEPOOL_HASH_VERSION: "v3"}
    raw = builders.pool()
    assert nodepool_digest(nodepool_fact(raw), [claim_fact(annotations=ours), claim_fact()], None).stamps == ""
    assert nodepool_digest(nodepool_fact(raw), [claim_fact(annotations=others)], None).stamps == "v3"
    assert nodepool_digest(nodepool_fact(raw), [claim_fact(annotations=others, deleting=True)], None).stamps == ""
    raw["metadata"]["annotations"] = others
    assert nodepool_digest(nodepool_fact(raw), [], None).stamps == "v3"


def test_nodeclass_digest_reports_foreign_hash_versions_until_deletion() -> None:
    others = claim_fact(annotations={NODECLASS_HASH_VERSION: "v6"})
    active = EC2NodeClass.from_object(builders.node_class())
    assert nodeclass_digest(active, [others]).stamps == "v6" and nodeclass_digest(active, [claim_fact()]).stamps == ""
    assert nodeclass_digest(EC2NodeClass.from_object(builders.node_class(deleting=True)), [others]).stamps == ""


def test_drift_is_reported_in_every_phase_before_deletion() -> None:
    drift = Drift(reason="AMIDrift", message="old")
    running = {"registered": True, "initialized": True, "initialized_at": at(-50)}
    for claim in ({}, {"registered": True}, running):
        for nodes in ((), (node_fact(),)):
            observed = nodeclaim_digest(
                NodeClaimView(claim=claim_fact(**claim), nodes=nodes, drift=drift), NOW
            ).observed
            assert (observed.drift, observed.drift_message) == ("AMIDrift", "old")
    assert nodeclaim_digest(
        NodeClaimView(claim=claim_fact(deleting=True), drift=drift), NOW
    ).observed == ObservedNodeClaim(deleting=True)


RUNNING = {"registered": True, "launched": True, "initialized": True, "initialized_at": at(-50)}
STARTING = {"registered": True, "launched": True}
READY = NodeCondition(type="Ready", status="True", since=at(-60))
KERNEL = NodeCondition(type="KernelReady", status="False", since=at(-30))
UNREADY = NodeCondition(type="Ready", status="False", since=at(-30))


def digest(claim: dict[str, Any], node: NodeFact, *, at_: float = 0, **view: Any) -> Digest:
    view_fields: dict[str, Any] = {"repair_mode": "legacy", **view}
    return nodeclaim_digest(NodeClaimView(claim=claim_fact(**claim), nodes=(node,), **view_fields), at(at_))


def rules(**repair: Any) -> LifecycleRules:
    return LifecycleRules.model_validate({"repair": repair})


def test_unhealthy_condition_is_reported_with_its_start() -> None:
    unhealthy = digest(RUNNING, node_fact(conditions=(READY, KERNEL))).observed.unhealthy
    assert unhealthy == (UnhealthyCondition(type="KernelReady", status="False", since=at(-30)),)


@pytest.mark.parametrize(
    "conditions",
    [
        (READY,),
        (READY, NodeCondition(type="KernelReady", status="True", since=at(-3))),
        (READY, NodeCondition(type="DiskPressure", status="True", since=at(-3))),
        (READY, NodeCondition(type="KernelReady", status="False")),
    ],
    ids=["Ready", "KernelReady", "DiskPressure", "without time"],
)
def test_healthy_and_unknown_conditions_do_not_change_the_digest(conditions: tuple[NodeCondition, ...]) -> None:
    actual = digest(RUNNING, node_fact(conditions=conditions))
    assert actual == digest(RUNNING, node_fact()) and actual.observed.unhealthy == ()


def test_unhealthy_condition_is_not_reported_without_feature_gate() -> None:
    node = node_fact(ready=False, conditions=(UNREADY, KERNEL))
    assert digest(RUNNING, node, repair_mode=None).observed.unhealthy == ()


def test_repair_rules_select_the_conditions() -> None:
    disk_worn = NodeCondition(type="DiskWorn", status="True", since=at(-5))
    node = node_fact(conditions=(READY, KERNEL, disk_worn))
    custom_rules = rules(conditions=[{"type": "DiskWorn", "status": "True", "toleration": "1m"}])
    assert [one.type for one in digest(RUNNING, node, rules=custom_rules).observed.unhealthy] == ["DiskWorn"]
    assert digest(RUNNING, node, rules=rules(conditions=[])).observed.unhealthy == ()


def test_starting_node_is_not_reported_as_unhealthy_at_first() -> None:
    node = node_fact(ready=False, conditions=(UNREADY,))
    first = digest(STARTING, node)
    assert first.observed == digest(STARTING, node, repair_mode=None).observed and first.recheck_at == at(30)
    later = digest(STARTING, node, at_=30)
    assert [one.since for one in later.observed.unhealthy] == [at(-30)]


def test_starting_node_is_reported_before_a_short_toleration_ends() -> None:
    node = node_fact(ready=False, conditions=(UNREADY,))
    short = rules(conditions=[{"type": "Ready", "status": "False", "toleration": "50s"}])
    assert digest(STARTING, node, at_=-10, rules=short).recheck_at == at(-5)
    assert digest(STARTING, node, at_=-5, rules=short).observed.unhealthy


def test_voluntary_repair_reports_reasons_that_a_pattern_may_match_and_the_annotation() -> None:
    gpu = NodeCondition(type="AcceleratedHardwareReady", status="False", reason="XID63", since=at(-30))
    kernel = KERNEL.model_copy(update={"reason": "Deadlock"})
    node = node_fact(conditions=(READY, gpu, kernel), annotations={"karpenter.sh/do-not-repair": "true"})
    observed = digest(RUNNING, node, repair_mode="replace").observed
    assert [one.reason for one in observed.unhealthy] == ["XID63", ""]
    assert observed.repair_mode == "replace" and observed.do_not_repair
    assert not digest(RUNNING, node).observed.do_not_repair
    node = node.model_copy(update={"annotations": {"karpenter.sh/do-not-repair": "soon"}})
    assert not digest(RUNNING, node, repair_mode="replace").observed.do_not_repair


def test_voluntary_repair_ignores_nodeclaim_without_nodepool() -> None:
    standalone, node = {**RUNNING, "pool": ""}, node_fact(conditions=(READY, KERNEL))
    assert digest(standalone, node).observed.unhealthy
    voluntary, without = (digest(standalone, node, repair_mode=mode).observed for mode in ("replace", None))
    assert voluntary == without


def test_deleting_node_reports_no_unhealthy_condition() -> None:
    actual = digest({**RUNNING, "deleting": True}, node_fact(conditions=(UNREADY,)))
    assert actual.observed.deleting and actual.observed.unhealthy == ()


def test_nodepool_digest_counts_registrations_until_the_pool_is_healthy() -> None:
    pool = nodepool_fact(builders.pool("general"))
    some = [claim_fact(registered=True), claim_fact(name="c2", registered=False)]
    assert nodepool_digest(pool, some, None, healthy_at=None).registered == 1
    assert nodepool_digest(pool, some, None, healthy_at=(pool.generation, 3)).registered == 1
    assert nodepool_digest(pool, some, None, healthy_at=(pool.generation + 1, 0)).registered == 1
    assert nodepool_digest(pool, some, None, healthy_at=(pool.generation, 0)).registered == 0
