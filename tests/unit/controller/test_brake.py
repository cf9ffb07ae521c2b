"""Pauses as the watch sees them: annotations of the worker's namespace, of NodePools, NodeClaims and Nodes."""

from typing import Any

from tenure.apis.labels import PAUSE
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty
from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.signals.digests import View, claim_digest, pool_digest
from tenure.controller.signals.signaller import Signaller
from tenure.kube.client.list_watch import Delta
from tenure.kube.facts.objects import pool_fact
from tenure.model.operator_requests import PauseSeen
from tests.support.controller import builders
from tests.support.controller.builders import NOW, claim_fact, node_fact

TEXT = "until=2026-06-01T18:00:00Z, by=ann, reason=why"


def namespace(name: str, text: str = "", *, gone: bool = False) -> Delta:
    metadata: dict[str, Any] = {"name": name, **({"annotations": {PAUSE: text}} if text else {})}
    return Delta(object={"metadata": metadata}, gone=gone)


class Noted(Signaller):
    """What was offered; nothing is sent."""

    def __init__(self) -> None:
        self.sent: dict[str, str] = {}
        self.offered: list[Any] = []

    def offer(self, signal: Any) -> bool:
        known = self.sent.get(signal.key) == signal.digest
        if not known:
            self.sent[signal.key] = signal.digest
            self.offered.append(signal)
        return not known


def caches(*pools: str) -> Caches:
    found = Caches(lambda: NOW)
    found.hear("nodepools", [Delta(object=builders.pool(name), gone=False) for name in pools])
    found.take_dirty()
    return found


def test_only_the_workers_own_namespace_pauses_and_every_pool_is_due_when_it_does() -> None:
    brake = ClusterBrake("tenure", caches("a", "b"))
    brake.hear([namespace("default", TEXT)])
    dirty = Dirty()
    brake.look(dirty)
    assert brake.text == "" and dirty.pools == set()
    brake.hear([namespace("tenure", TEXT)])
    brake.look(dirty)
    assert brake.text == TEXT and dirty.pools == {"a", "b"}
    again = Dirty()
    brake.look(again)
    assert again.pools == set()
    brake.hear([namespace("tenure", gone=True)])
    assert brake.text == ""


def test_the_cluster_workflow_is_told_of_changes_alone() -> None:
    brake, signaller = ClusterBrake("tenure", caches()), Noted()
    brake.tell("demo", signaller, 1)
    assert signaller.offered == []
    brake.hear([namespace("tenure", TEXT)])
    brake.tell("demo", signaller, 2)
    brake.tell("demo", signaller, 3)
    brake.hear([namespace("tenure")])
    brake.tell("demo", signaller, 4)
    assert [(one.workflow_id, one.name, one.argument) for one in signaller.offered] == [
        ("demo/cluster", "pause_seen", PauseSeen(number=2, text=TEXT)),
        ("demo/cluster", "pause_seen", PauseSeen(number=4, text="")),
    ]


def test_a_pools_annotation_is_part_of_what_it_is_told() -> None:
    pool = builders.pool("a")
    pool["metadata"]["annotations"] = {PAUSE: TEXT}
    known = Caches(lambda: NOW)
    known.hear("nodepools", [Delta(object=pool, gone=False)])
    assert known.pools["a"].pause == TEXT
    seen = pool_digest(pool_fact(pool), [], None, pauses=(TEXT, "another"))
    assert (seen.pause, seen.cluster_pause) == (TEXT, "another")


def test_a_claims_annotation_counts_before_its_nodes_and_until_it_is_gone() -> None:
    mine, other = claim_fact(annotations={PAUSE: TEXT}), claim_fact()
    node = node_fact(annotations={PAUSE: "the node's"})
    assert claim_digest(View(claim=mine, nodes=(node,)), NOW).seen.pause == TEXT
    assert claim_digest(View(claim=other, nodes=(node,)), NOW).seen.pause == "the node's"
    assert claim_digest(View(claim=other), NOW).seen.pause == ""
    going = claim_fact(annotations={PAUSE: TEXT}, deleting=True)
    assert claim_digest(View(claim=going), NOW).seen.pause == TEXT
