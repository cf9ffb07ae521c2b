"""From an instance to its node's life: who is told, what is news, and what is nobody's."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode

from activities.ports.interruption import Standing
from tenure.controller import interruption
from tenure.controller.host import ClusterHost
from tenure.controller.interruption import Noticing
from tenure.controller.session import Session
from tenure.controller.settings import HostSettings
from tenure.model.interruption.notices import Notice, Notices
from tests.support.controller.builders import NOW, World, at, claim
from tests.support.fakes.turns import turns
from tests.unit.controller.fake_temporal import FakeTemporal

LIFE = "demo/nodeclaim/a/uid-a"


class Scene(World):
    def __init__(self, *phases: str) -> None:
        super().__init__()
        self.temporal = FakeTemporal()
        self.noticing = Noticing(self.temporal.client, "demo", now=lambda: self.now)
        self.hear("nodeclaims", claim("a", phase="Initialized"))

    async def notice(self, *notices: Notice, instance: str = "i-a", known: bool = True) -> Standing:
        return await self.noticing.notice(self.caches, instance, notices or (spot(),), known=known)

    def told(self) -> list[list[str]]:
        """The ids of notices, by signal."""
        found: Sequence[Any] = self.temporal.to(LIFE)
        assert all(isinstance(one, Notices) and one.instance_id == "i-a" for one in found)
        return [[notice.id for notice in one.notices] for one in found]


def spot(**more: Any) -> Notice:
    return Notice.model_validate({"kind": "spotInterruption", "id": "terminate", "at": NOW, **more})


def change(**more: Any) -> Notice:
    return Notice.model_validate({"kind": "scheduledChange", "id": "arn:1", "at": NOW, "starts": at(86400), **more})


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_the_life_of_the_instances_node_is_told(scene: Scene) -> None:
    assert await scene.notice(spot(), change()) == "told"
    (sent,) = scene.temporal.sent
    assert (sent.workflow_id, sent.signal) == (LIFE, "noticed")
    assert scene.told() == [["terminate", "arn:1"]]


async def test_the_same_is_told_once(scene: Scene) -> None:
    assert await scene.notice() == "told"
    assert await scene.notice(spot(at=at(30))) == "repeated"
    assert await scene.notice(spot(), spot(at=at(60)), change(), change(text="said otherwise")) == "told"
    assert scene.told() == [["terminate"], ["arn:1"]]


async def test_the_same_at_the_same_time_is_told_once(scene: Scene) -> None:
    scene.temporal.gate = asyncio.Event()
    telling = [asyncio.create_task(scene.notice()) for _ in range(5)]
    await asyncio.sleep(0)
    scene.temporal.gate.set()
    assert sorted(await asyncio.gather(*telling)) == ["repeated"] * 4 + ["told"]
    assert scene.told() == [["terminate"]]


async def test_what_aws_moves_or_calls_off_is_news(scene: Scene) -> None:
    await scene.notice(change())
    assert await scene.notice(change(starts=at(7200), at=at(10))) == "told"
    assert await scene.notice(change(starts=at(7200), status="withdrawn", at=at(20))) == "told"


async def test_a_late_repeat_of_an_older_word_is_no_news(scene: Scene) -> None:
    """SQS keeps no order, and brings some things twice."""
    await scene.notice(change(status="withdrawn", at=at(20)))
    assert await scene.notice(change()) == "repeated"


async def test_of_two_words_on_one_thing_the_latest_counts(scene: Scene) -> None:
    await scene.notice(change(status="over", at=at(20)), change())
    (said,) = scene.temporal.to(LIFE)
    assert isinstance(said, Notices) and [one.status for one in said.notices] == ["over"]


async def test_what_was_not_accepted_is_told_again(scene: Scene) -> None:
    scene.temporal.failures = [RPCStatusCode.UNAVAILABLE, RPCStatusCode.PERMISSION_DENIED]
    assert [await scene.notice() for _ in range(4)] == ["later", "later", "told", "repeated"]


async def test_what_temporal_refuses_for_good_is_an_error(scene: Scene) -> None:
    scene.temporal.failures = [RPCStatusCode.INVALID_ARGUMENT]
    with pytest.raises(RPCError):
        await scene.notice()


async def test_an_instance_of_nobodys_is_foreign(scene: Scene) -> None:
    assert await scene.notice(instance="i-other") == "foreign"
    assert scene.temporal.sent == []


async def test_it_may_be_that_of_a_claim_that_is_being_launched(scene: Scene) -> None:
    scene.now = at(-40)
    scene.hear("nodeclaims", claim("b"))
    assert await scene.notice(instance="i-b") == "not yet"
    scene.now = at(21)
    assert await scene.notice(instance="i-b") == "foreign"
    scene.now = at(-40)
    scene.hear("nodeclaims", claim("b", phase="Launched"))
    assert await scene.notice(instance="i-b") == "told"


async def test_nobody_is_foreign_to_caches_that_are_too_old(scene: Scene) -> None:
    assert await scene.notice(instance="i-other", known=False) == "later"
    assert await scene.notice(known=False) == "told"


async def test_a_life_that_is_over_needs_no_word(scene: Scene) -> None:
    scene.hear("nodeclaims", claim("a", phase="Initialized", deleting=True))
    scene.temporal.failures = [RPCStatusCode.NOT_FOUND]
    assert await scene.notice() == "over"


async def test_a_life_that_is_missing_is_about_to_be_started(scene: Scene) -> None:
    """Its NodeClaim is there and stays: the watch starts lives for such."""
    scene.temporal.failures = [RPCStatusCode.NOT_FOUND]
    assert [await scene.notice(), await scene.notice()] == ["no workflow", "told"]


async def test_a_node_that_is_ended_is_not_told_that_its_instance_ends(scene: Scene) -> None:
    """Each node's own end is announced; a signal for it would be history for nothing."""
    scene.hear("nodeclaims", claim("a", phase="Initialized", deleting=True))
    ends = Notice(kind="instanceTerminating", id="shutting-down", at=NOW)
    assert await scene.notice(ends) == "over"
    assert await scene.notice(ends, spot()) == "told"
    assert scene.told() == [["terminate"]]


async def test_what_is_remembered_has_an_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "REMEMBERED", 2)
    for number in range(3):
        await scene.notice(change(id=f"arn:{number}"))
    assert await scene.notice(change(id="arn:2")) == "repeated"
    assert await scene.notice(change(id="arn:0")) == "told"


async def test_signals_go_out_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    names = [f"n{number}" for number in range(3 * interruption.AT_ONCE)]
    for name in names:
        scene.hear("nodeclaims", claim(name, phase="Initialized"))
    scene.temporal.gate = asyncio.Event()
    telling = [asyncio.create_task(scene.notice(instance=f"i-{name}")) for name in names]
    await turns()
    scene.temporal.gate.set()
    assert set(await asyncio.gather(*telling)) == {"told"}
    assert scene.temporal.most_at_once == interruption.AT_ONCE


def test_a_claim_is_found_by_its_instance_until_it_is_gone(scene: Scene) -> None:
    found = scene.caches.claim_on("i-a")
    assert found is not None and found.name == "a"
    scene.lose("nodeclaims", claim("a", phase="Initialized"))
    assert scene.caches.claim_on("i-a") is None
    assert scene.caches.claim_on("") is None
    assert timedelta(minutes=2) == interruption.LAUNCHING


class Watched:
    """A stay of the watch, as far as notices need it."""

    def __init__(self, scene: Scene) -> None:
        self.caches = scene.caches
        self.old: list[str] = []
        self.heard: list[str] = []

    def hear(self, instance_id: str, notices: Sequence[Notice]) -> None:
        self.heard.append(instance_id)

    def stale(self, within: float) -> list[str]:
        return self.old


def hosting(scene: Scene) -> ClusterHost:
    nothing: Any = None
    return ClusterHost(
        settings=HostSettings(cluster="demo", task_queue="demo"),
        kube=nothing,
        temporal=scene.temporal.client,
        offerings=nothing,
        instances=nothing,
        plan_worker=nothing,
    )


async def test_a_process_that_does_not_host_the_watch_tells_nobody(scene: Scene) -> None:
    host = hosting(scene)
    assert await host.notice("i-a", [spot()]) == "later"
    assert host.owns(["i-a"]) == frozenset()


async def test_the_host_of_the_watch_tells_and_remembers_over_its_stays(scene: Scene) -> None:
    host, stay = hosting(scene), Watched(scene)
    host._session = cast(Session, stay)
    assert host.owns(["i-a", "i-other"]) == {"i-a"}
    assert await host.notice("i-a", [spot()]) == "told"
    assert await host.notice("i-other", [spot()]) == "foreign"
    assert stay.heard == ["i-a", "i-other"], "before anybody is told"
    stay.old = ["nodeclaims"]
    assert await host.notice("i-other", [spot()]) == "later"
    host._session = cast(Session, Watched(scene))
    assert await host.notice("i-a", [spot()]) == "repeated"
