"""Loops over all objects of a kind: an error of one object does not end them, is reported, and is forgotten later."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cache.pod_verdicts import PodVerdicts
from tenure.controller.consistency import ConsistencyChecker
from tenure.controller.disruption.status import OverlayStatusWriter, VerdictReporter
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.controller.planning.pod_nominator import PodNominator
from tenure.controller.planning.pod_verdict_events import PodVerdictEvents
from tenure.controller.pod_events import LastPodEventWriter
from tenure.kube.client.list_watch import Delta
from tenure.model.disruption.decision import Decision, Ineligibility, NodeVerdict
from tenure.model.facts import PodFact
from tenure.model.nodeclaim.state import Deadlines
from tenure.policy.policy_features import PolicyFeatures
from tenure.scheduling.nodeoverlays import ACCEPTED
from tests.support.controller.builders import CacheHarness, at, claim, node, not_ready_tracker, pod, stamp
from tests.support.fakes.event_loop import run_pending_tasks

NAMES = ("a", "bad", "c")
AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}


class LoopHarness(CacheHarness):
    """Three objects of each kind. `self` is the port of all loops: calls for the object `self.bad` raise an error."""

    def __init__(self) -> None:
        super().__init__()
        self.bad, self.handled = "bad", set[str]()
        self.nominations, self.now = Nominations(), at(3600)
        for name in NAMES:
            self.apply_objects("nodes", node(f"node-{name}", of=name))
            self.apply_objects("nodeclaims", claim(name, phase="Initialized"))
            waiting = pod(name, affinity=AFFINITY)
            del waiting["status"]["conditions"]
            self.apply_objects("pods", waiting)
            metadata = {"name": name, "uid": f"uid-{name}", "generation": 1, "creationTimestamp": stamp(-100)}
            self.apply_objects("nodeoverlays", {"metadata": metadata, "spec": {"price": "1"}})
        tracker = not_ready_tracker(self)
        expected_pods = ExpectedPods(self.cache, self.nominations, tracker)
        self.verdicts = PodVerdicts(self.cache, self.nominations, tracker, expected_pods, lambda _: Deadlines())

    def handle(self, name: str) -> None:
        if name == self.bad:
            raise ZeroDivisionError("injected")
        self.handled.add(name)

    async def publish(self, *, name: str, **_: Any) -> None:
        self.handle(name)

    async def patch(self, name: str, _: str, **__: Any) -> None:
        self.handle(name)

    async def write_validation(self, name: str, *_: Any, **__: Any) -> bool:
        self.handle(name)
        return True

    async def nominate(self, found: PodFact, *_: Any, **__: Any) -> bool:
        self.handle(found.name)
        return True


Round = Callable[[], Awaitable[object]]


def publish_pod_verdicts(harness: LoopHarness) -> Round:
    return PodVerdictEvents(harness.cache, harness.verdicts, cast(Any, harness), lambda: harness.now).publish_due


def count_pods_by_code(harness: LoopHarness) -> Round:
    explain = harness.verdicts._explain

    def explain_or_raise(found: PodFact, now: Any) -> Any:
        harness.handle(found.name)
        return explain(found, now)

    cast(Any, harness.verdicts)._explain = explain_or_raise
    return lambda: harness.verdicts.count_by_code(harness.now)


def publish_node_verdicts(harness: LoopHarness) -> Round:
    reporter = VerdictReporter(harness.cache, cast(Any, harness))
    blocked = (Ineligibility(cause="PodDoNotDisrupt", message="x"),)
    reporter.update(Decision(nodes=tuple(NodeVerdict(claim=one, node="", excluded=blocked) for one in NAMES)))
    return reporter.publish_events


def write_overlay_status(harness: LoopHarness) -> Round:
    writer = OverlayStatusWriter(harness.cache, harness, lambda: harness.now)
    return lambda: writer.write(dict.fromkeys(NAMES, ACCEPTED))


def nominate_pods(harness: LoopHarness) -> Round:
    nominator = PodNominator(harness.cache, harness.nominations, cast(Any, harness), lambda: harness.now)
    harness.nominations.nominate({f"uid-{name}": name for name in NAMES}, harness.now)

    async def update() -> None:
        nominator.update(NAMES)
        running = asyncio.create_task(nominator.run())
        await run_pending_tasks()
        assert not running.done()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    return update


def write_pod_events(harness: LoopHarness) -> Round:
    writer = LastPodEventWriter(harness.cache, cast(Any, harness), lambda: harness.now)
    harness.apply_objects("pods", *(pod(f"on-{name}", on=f"node-{name}") for name in NAMES))

    async def write() -> None:
        harness.now = at((harness.now - at(0)).total_seconds() + 20)
        writer.collect()
        await writer.write()

    return write


def write_policy_status(harness: LoopHarness) -> Round:
    policies = LifecyclePolicies(
        harness.cache,
        harness,
        default_deadlines=Deadlines(),
        features=PolicyFeatures(),
        now=lambda: harness.now,
    )
    for name in NAMES:
        metadata = {"name": name, "uid": f"uid-{name}", "generation": 1, "creationTimestamp": stamp(-100)}
        policies.on_deltas([Delta({"metadata": metadata, "spec": {}})])
    policies.update(harness.cache.drain_changes())

    async def write() -> None:
        assert await policies.write_validations() is (harness.bad == "")

    return write


def check_consistency(harness: LoopHarness) -> Round:
    port = cast(Any, harness)
    return ConsistencyChecker(cache=harness.cache, claims=port, events=port, now=lambda: harness.now).check_all


LOOPS = (
    publish_pod_verdicts,
    count_pods_by_code,
    publish_node_verdicts,
    write_overlay_status,
    nominate_pods,
    write_pod_events,
    write_policy_status,
    check_consistency,
)


@pytest.mark.parametrize("loop", LOOPS)
async def test_error_of_one_object_affects_no_other(loop: Callable[[LoopHarness], Round]) -> None:
    harness = LoopHarness()
    run_once = loop(harness)
    await run_once()
    assert harness.handled == {"a", "c"}
    (found,) = harness.cache.invalid_objects.report().objects
    assert found.name.rpartition("/")[2] == "bad" and found.reason == "ZeroDivisionError"
    harness.bad = ""
    await run_once()
    assert harness.handled == {*NAMES} and not harness.cache.invalid_objects.items()


@pytest.mark.parametrize("loop", [publish_pod_verdicts, count_pods_by_code, nominate_pods])
async def test_error_of_a_pod_is_forgotten_once_it_is_bound(loop: Callable[[LoopHarness], Round]) -> None:
    harness = LoopHarness()
    run_once = loop(harness)
    await run_once()
    assert harness.cache.invalid_objects.items()
    harness.apply_objects("pods", pod("bad", on="node-bad", affinity=AFFINITY))
    await run_once()
    assert not harness.cache.invalid_objects.items()
