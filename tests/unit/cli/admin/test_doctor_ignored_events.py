"""Event kinds that need no EventBridge rule, because the LifecyclePolicies of every NodePool ignore them."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.apis.nodepool import NodePool
from tenure.cli.admin.doctor import list_ignored_events
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.errors import Forbidden
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.operator_requests import PolicyFact

RULES = LifecycleRules.model_validate({"interruption": {"rebalanceRecommendation": {"action": "ignore"}}})
WEB, DATABASES = (
    NodePool.from_object(
        {
            "metadata": {"name": name, "uid": name, "labels": {"team": name}},
            "spec": {
                "template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []}}
            },
        }
    )
    for name in ("web", "databases")
)


def cluster(*facts: PolicyFact, fault: Exception | None = None) -> KubeAdapters:
    async def read() -> list[PolicyFact]:
        if fault:
            raise fault
        return list(facts)

    return cast(KubeAdapters, SimpleNamespace(lifecycle_policies=SimpleNamespace(list_facts=read)))


def policy(**selects: Any) -> PolicyFact:
    return PolicyFact(name="quiet", created=datetime(2026, 1, 1, tzinfo=UTC), rules=RULES, **selects)


async def test_policy_of_every_nodepool_ignores_event_kind() -> None:
    assert await list_ignored_events(cluster(policy()), Deadlines(), [WEB, DATABASES]) == {"rebalanceRecommendation"}


async def test_policy_of_some_nodepools_does_not_ignore_event_kind() -> None:
    for selects in ({"names": ("web",)}, {"match_labels": {"team": "web"}}):
        one = cluster(policy(**selects))
        assert await list_ignored_events(one, Deadlines(), [WEB, DATABASES]) == frozenset()
        assert await list_ignored_events(one, Deadlines(), [WEB]) == {"rebalanceRecommendation"}


async def test_unreadable_policies_ignore_no_event_kind() -> None:
    assert await list_ignored_events(cluster(fault=Forbidden("no")), Deadlines(), [WEB]) == frozenset()
