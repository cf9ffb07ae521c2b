"""Takeover and handback step by step, with an in-memory API server: order, repetition and failures."""

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION
from tenure.cli.adopt import handover
from tenure.cli.adopt.handover import REASON, Handover, HandoverResult
from tenure.cli.adopt.preview import DeploymentReference
from tenure.cli.exit_codes import CommandFailed
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.cluster import KubeLeases, KubeNamespaces
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import LEASES, NAMESPACES, NODE_CLAIMS, PODS, WORKLOADS
from tenure.model.nodeclaim.state import Phase
from tenure.model.signals import Pause
from tenure.policy.lifecycle.pauses import pause_from_annotation, write_pause
from tenure.progress import LineProgress
from tenure.settings import load
from tests.support.controller.builders import Json, claim
from tests.support.product.karpenter import HASH_ANNOTATIONS, deployment
from workflows import ids

KARPENTER = WORKLOADS["Deployment"].path("karpenter", namespace="kube-system")
TENURE = WORKLOADS["Deployment"].path("tenure", namespace="tenure")
NAMESPACE = NAMESPACES.path("tenure")
OURS = {key: "1" if key.endswith("hash") else HASH_VERSION for key in HASH_ANNOTATIONS}


class FakeApi:
    """Stores objects by path and applies merge patches."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}

    async def get(self, path: str) -> Json | None:
        return copy.deepcopy(self.objects.get(path))

    async def request(self, method: str, path: str, *, params: Any = None, **_: Any) -> Json:
        assert method == "GET"
        if path in self.objects:
            return copy.deepcopy(self.objects[path])
        found = [one for key, one in self.objects.items() if key.startswith(f"{path}/")]
        return {"items": copy.deepcopy(found), "metadata": {}}

    async def merge(self, path: str, patch: Json) -> Json:
        self.objects[path] = _merged(self.objects[path], patch)
        return copy.deepcopy(self.objects[path])


def _merged(old: Json, patch: Json) -> Json:
    found = dict(old)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif key != "resourceVersion":
            found[key] = _merged(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found


class RecordingProgress(LineProgress):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.steps: dict[str, list[float]] = {}
        """By title, the progress of each step."""

    def print_line(self, line: str) -> None:
        self.lines.append(line)

    def step(self, title: str, total: float | None = None) -> None:
        super().step(title, total)
        self.steps[title] = []

    def advance(self, done: float, detail: str = "") -> None:
        super().advance(done, detail)
        self.steps[self._title].append(done)


class FakeHandover(Handover):
    """Two NodeClaims and fake controllers: Karpenter leads, and a worker takes over, according to the replicas."""

    def __init__(self, *, karpenter: int = 2, tenure: int = 0, deadline: float = 5.0, temporal: bool = True) -> None:
        self.api, self.progress = FakeApi(), RecordingProgress()
        self.drifts: tuple[str, ...] = ()
        self.deletes: tuple[str, ...] = ()
        self.idle = False
        """The worker watches the cluster but starts no workflow."""
        for namespace, name, number in (("kube-system", "karpenter", karpenter), ("tenure", "tenure", tenure)):
            path = WORKLOADS["Deployment"].path(name, namespace=namespace)
            self.api.objects[path] = _versioned(deployment(namespace, name, number, "image", {}))
        self.api.objects[NAMESPACE] = _versioned({"metadata": {"name": "tenure", "uid": "uid-tenure"}})
        for name in ("c1", "c2"):
            self.api.objects[NODE_CLAIMS.path(name)] = claim(
                name, phase="Initialized", annotations=dict(HASH_ANNOTATIONS)
            )
        client = cast(KubeClient, self.api)
        adapters = SimpleNamespace(client=client, leases=KubeLeases(client), namespaces=KubeNamespaces(client))
        super().__init__(
            cluster=cast(KubeAdapters, adapters),
            temporal=cast(Any, object()) if temporal else None,
            settings=load(["--cluster-name=demo"]),
            karpenter=DeploymentReference("kube-system", "karpenter"),
            tenure=DeploymentReference("tenure", "tenure"),
            progress=self.progress,
            deadline=deadline,
            settle=0.0,
        )
        self._react()

    def replicas(self, path: str) -> int:
        return int(self.api.objects[path]["spec"]["replicas"])

    @property
    def pause(self) -> Pause | None:
        return pause_from_annotation(
            (self.api.objects[NAMESPACE]["metadata"].get("annotations") or {}).get(labels.PAUSE, "")
        )

    def set_pause(self, by: str, reason: str) -> None:
        pause = Pause(by=by, reason=reason, until=datetime.now(UTC) + timedelta(hours=1))
        self.api.objects[NAMESPACE]["metadata"]["annotations"] = {labels.PAUSE: write_pause(pause)}

    def claim(self, name: str) -> Json:
        return self.api.objects[NODE_CLAIMS.path(name)]

    def _react(self) -> None:
        """Update the objects as the controllers do after a change of the Deployments."""
        lease = LEASES.path("karpenter-leader-election", namespace="")
        renewed = datetime.now(UTC) - timedelta(seconds=0 if self.replicas(KARPENTER) else 60)
        spec = {"holderIdentity": "karpenter-7d9", "renewTime": renewed.isoformat(), "leaseDurationSeconds": 15}
        self.api.objects[lease] = {
            "metadata": {"namespace": "kube-system", "name": "karpenter-leader-election"},
            "spec": spec,
        }
        self.api.objects[TENURE]["status"] = {"replicas": self.replicas(TENURE)}
        if self.replicas(TENURE) and not self.idle:
            assert not self.replicas(KARPENTER), "both run"
            for name in ("c1", "c2"):
                found = self.claim(name)
                found["metadata"]["annotations"] = dict(OURS)
                if name in self.drifts:
                    found["status"]["conditions"].append({"type": "Drifted", "status": "True", "reason": "AMIDrift"})
                if name in self.deletes:
                    found["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"

    async def _find_watch_host(self) -> str:
        self._react()
        return "1@worker" if self.replicas(TENURE) and self._temporal is not None else ""

    async def _why_still_led(self) -> str:
        self._react()
        return await super()._why_still_led()

    async def _list_workflows(self) -> dict[str, NodeClaimSummary]:
        if not self.replicas(TENURE) or self.idle:
            return {}
        found = (ids.nodeclaim("demo", name, f"uid-{name}") for name in ("c1", "c2"))
        return {one: NodeClaimSummary(one, one.split("/")[2], Phase.READY.value) for one in found}


def _versioned(raw: Json) -> Json:
    return {**raw, "metadata": {"uid": "uid", "resourceVersion": "1", **raw["metadata"]}}


@pytest.fixture(autouse=True)
def poll_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "POLL_INTERVAL_SECONDS", 0.0)


async def test_take_over_stops_karpenter_first_and_ends_pause() -> None:
    cluster = FakeHandover()
    assert await cluster.take_over() == HandoverResult(
        "Tenure has taken over 2 NodeClaims: none drifted, none was replaced", 2
    )
    assert (cluster.replicas(KARPENTER), cluster.replicas(TENURE)) == (0, 2)
    assert cluster.api.objects[KARPENTER]["metadata"]["annotations"][labels.REPLICAS_BEFORE] == "2"
    assert cluster.pause is None
    assert [one for one in cluster.progress.lines if "paused" in one]
    assert cluster.progress.lines[-1] == "adopt: the pause is lifted"
    assert [done[-1] for done in cluster.progress.steps.values()] == [2, 2]


async def test_repeated_take_over_changes_nothing() -> None:
    cluster = FakeHandover()
    await cluster.take_over()
    before = copy.deepcopy(cluster.api.objects[KARPENTER])
    assert (await cluster.take_over()).nodeclaims == 2
    assert cluster.api.objects[KARPENTER] == before and cluster.pause is None


@pytest.mark.parametrize(("change", "message"), [("drifts", "drifted"), ("deletes", "terminating or deleted")])
async def test_drifted_or_deleted_node_is_named_and_pause_is_kept(change: str, message: str) -> None:
    cluster = FakeHandover()
    setattr(cluster, change, ("c2",))
    cluster.claim("c2")["spec"]["expireAfter"] = "Never"
    with pytest.raises(CommandFailed, match=rf"{message}: c2\. .*paused until .*tenure adopt --back"):
        await cluster.take_over()
    assert cluster.pause is not None and cluster.pause.reason == REASON


async def test_previously_drifted_node_is_accepted() -> None:
    cluster = FakeHandover()
    cluster.claim("c2")["status"]["conditions"].append({"type": "Drifted", "status": "True", "reason": "AMIDrift"})
    assert (await cluster.take_over()).nodeclaims == 2


async def test_invalid_nodeclaim_stops_neither_direction() -> None:
    cluster = FakeHandover()
    cluster.api.objects[NODE_CLAIMS.path("odd")] = odd = claim("odd", phase="Initialized")
    odd["spec"]["resources"] = {"requests": {"cpu": "1" * 100}}
    assert (await cluster.take_over()).nodeclaims == 2
    assert (await cluster.hand_back()).nodeclaims == 2


async def test_nodeclaim_with_only_another_finalizer_needs_no_workflow() -> None:
    cluster = FakeHandover()
    cluster.api.objects[NODE_CLAIMS.path("held")] = deleting = claim("held", phase="Initialized")
    deleting["metadata"] |= {"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": ["example.com/hold"]}
    await cluster.take_over()
    assert cluster.replicas(TENURE) == 2


def add_other_leader(cluster: FakeHandover) -> None:
    """Another process renews the lease, whatever the Deployment says."""

    async def still_led() -> str:
        return "karpenter-other still renews the lease karpenter-leader-election"

    cluster._why_still_led = still_led  # type: ignore[method-assign]


def make_idle(cluster: FakeHandover) -> None:
    cluster.idle = True


@pytest.mark.parametrize(
    ("block_takeover", "message"),
    [
        (add_other_leader, "karpenter-other still renews.*kubectl"),
        (make_idle, "c1 has no workflow; c2 has no.*tenure why"),
    ],
)
async def test_timeout_names_blocker_and_next_step(
    block_takeover: Callable[[FakeHandover], None], message: str
) -> None:
    cluster = FakeHandover(deadline=0.0)
    block_takeover(cluster)
    with pytest.raises(CommandFailed, match=rf"timed out: {message}.*run the command again"):
        await cluster.take_over()


async def test_foreign_pause_is_kept() -> None:
    cluster = FakeHandover()
    cluster.set_pause("ann", "incident 4711")
    await cluster.take_over()
    assert cluster.pause is not None and (cluster.pause.by, cluster.pause.reason) == ("ann", "incident 4711")


async def test_hand_back_stops_tenure_before_karpenter_starts() -> None:
    cluster = FakeHandover(karpenter=3)
    await cluster.take_over()
    assert await cluster.hand_back() == HandoverResult("Karpenter leads again and manages 2 NodeClaims", 2)
    assert (cluster.replicas(KARPENTER), cluster.replicas(TENURE)) == (3, 0) and cluster.pause is None
    assert (await cluster.hand_back()).nodeclaims == 2, "the second handback changes nothing"
    assert (await cluster.take_over()).nodeclaims == 2 and cluster.replicas(TENURE) == 2


def add_pod(cluster: FakeHandover, namespace: str, owner: str, phase: str = "Running") -> str:
    """A pod that is terminating, which `status.replicas` of its Deployment does not count."""
    name = f"{owner}-5d4f-x{len(cluster.api.objects)}"
    reference = {"kind": "ReplicaSet", "name": f"{owner}-5d4f", "controller": True}
    cluster.api.objects[PODS.path(name, namespace=namespace)] = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {labels.POD_TEMPLATE_HASH: "5d4f"},
            "ownerReferences": [reference],
            "deletionTimestamp": "2026-01-01T12:00:00Z",
        },
        "status": {"phase": phase},
    }
    return name


async def test_hand_back_waits_for_terminating_pods() -> None:
    cluster = FakeHandover(karpenter=0, tenure=2, deadline=0.0)
    name = add_pod(cluster, "tenure", "tenure")
    message = rf"timed out: pods of Deployment tenure/tenure still run: {name}\. .* delete pod NAME --force"
    with pytest.raises(CommandFailed, match=message):
        await cluster.hand_back()
    assert cluster.replicas(KARPENTER) == 0
    del cluster.api.objects[PODS.path(name, namespace="tenure")]
    await cluster.hand_back()
    assert cluster.replicas(KARPENTER) == 2


async def test_take_over_waits_for_terminating_pods() -> None:
    cluster = FakeHandover(deadline=0.0)
    name = add_pod(cluster, "kube-system", "karpenter")
    with pytest.raises(CommandFailed, match=f"pods of Deployment kube-system/karpenter still run: {name}"):
        await cluster.take_over()
    assert cluster.replicas(TENURE) == 0


async def test_ended_and_foreign_pods_do_not_delay_a_handover() -> None:
    cluster = FakeHandover(karpenter=0, tenure=2)
    add_pod(cluster, "tenure", "tenure", phase="Failed")
    add_pod(cluster, "tenure", "tenure-server")
    await cluster.hand_back()
    assert cluster.replicas(KARPENTER) == 2


async def test_hand_back_works_without_temporal() -> None:
    cluster = FakeHandover(karpenter=0, tenure=2, temporal=False)
    assert (await cluster.hand_back()).unfinished == ()
    assert (cluster.replicas(KARPENTER), cluster.replicas(TENURE)) == (2, 0)


async def test_unfinished_nodes_are_awaited_and_reported() -> None:
    cluster = FakeHandover(karpenter=0, tenure=2, deadline=0.0)
    cluster.claim("c1")["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    del cluster.claim("c2")["status"]["providerID"]
    unfinished = (await cluster.hand_back()).unfinished
    assert [one.split()[0] for one in unfinished] == ["c1", "c2"]
    assert "Karpenter continues it" in unfinished[0] and "no instance yet" in unfinished[1]
    reported = [one.removeprefix("adopt: ") for one in cluster.progress.lines]
    assert [one for one in reported if one in unfinished] == list(unfinished)
