"""The planner as its process uses it: serializable data, and the node counts of the end-to-end benchmark."""

import pickle

import pytest

from benchmarks.generators.instance_types import catalogue
from benchmarks.generators.workloads import make_scenario
from tenure.apis.labels import DECLARED_FEATURE
from tenure.model.plan import Plan
from tenure.scheduling.cluster_state import ClusterState
from tests.unit.scheduling.builders import NOW, Cluster, change, node, pod, pods, pool


def test_plan_without_pending_pods_is_empty() -> None:
    assert Cluster(pool(), node("n"), pod(node="n")).plan() == Plan()


def test_changes_and_plans_are_serializable() -> None:
    changes = [change(pool()), change(node("n", cpu=2)), *map(change, pods(9)), change(pod("large", cpu=99))]
    assert pickle.loads(pickle.dumps(changes)) == changes
    cluster = Cluster()
    cluster.state.apply(changes)
    plan = cluster.plan()
    assert plan.claims and plan.nominations and plan.unschedulable
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@pytest.mark.parametrize(("number", "nodes"), [(100, 15), (500, 72), (1000, 143)])
def test_end_to_end_benchmark_needs_as_many_nodes_as_karpenter(number: int, nodes: int) -> None:
    state = ClusterState()
    state.set_catalogue(catalogue(most_cpus=192))
    state.apply([change(pool("default", "karpenter.k8s.aws/instance-cpu Lte 8"))])
    state.apply(change(one) for one in make_scenario("equal", number).pod_facts())
    plan = state.provision(now=NOW)
    assert (len(plan.claims), len(plan.unschedulable)) == (nodes, 0)


def test_pod_that_requires_a_feature_runs_only_on_nodes_that_declare_it() -> None:
    required = {DECLARED_FEATURE.format("VolumeBindMountOptions"): "true"}
    demanding = pod("demanding", selector=required)
    declaring = node("declaring", declared_features=("VolumeBindMountOptions", "ExtendWebSocketsToKubelet"))
    plan = Cluster(pool(), node("plain"), declaring, demanding, pod("other")).plan()
    assert plan.nominations[demanding.uid] == "declaring" and not plan.claims
    alone = Cluster(pool(), node("plain"), demanding).plan()
    (unscheduled,) = alone.unschedulable
    assert not alone.nominations and not alone.claims
    assert "status.declaredFeatures (VolumeBindMountOptions)" in unscheduled.reason
