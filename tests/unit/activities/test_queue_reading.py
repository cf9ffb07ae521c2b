"""The queue is read, nodes are told, and a message leaves once they have it: whatever else comes with it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.interruption import queue_consumer
from activities.interruption.queue_consumer import POLLS, QueueReading
from activities.nodeclaim.eviction import Evacuation
from activities.ports.interruption import Leaving
from tenure.model.errors import Forbidden, NotFound, TryLater
from tenure.model.interruption.records import EventParsed
from tenure.model.provider_results import DrainPod, Eviction
from tests.support.fakes.drains import drain_ports
from tests.support.fakes.interruptions import FakeInterruptions, rebalance, scheduled
from tests.support.fakes.kubernetes import FakeNodes, FakePods
from tests.support.fakes.turns import turns

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Scene(FakeInterruptions):
    def __init__(self) -> None:
        super().__init__()
        self.now = datetime.now(UTC)
        self.pauses: list[float] = []
        self.machines, self.pods = FakeNodes(), FakePods()
        self.reading = QueueReading(
            "demo",
            queue=self.queue,
            nodes=self.nodes,
            evacuation=Evacuation(drain_ports(nodes=self.machines, pods=self.pods)),
            metrics=self.metrics,
            now=lambda: self.now,
            sleep=self.sleep,
        )

    def takes(self, number: int) -> None:
        """AWS takes back the instance of a node with a pod."""
        node = f"node-{number}"
        self.machines.join(node, f"aws:///us-west-2a/i-{number}")
        self.pods.place(node, f"pod-{number}")
        self.nodes.evacuated[f"i-{number}"] = Leaving(
            node=node, uid=f"uid-{node}", tainted=False, pods=tuple(self.pods.by_node[node])
        )
        self.queue.send(f"i-{number}")

    async def sleep(self, seconds: float) -> None:
        if seconds != queue_consumer.LOOK_EVERY:
            self.pauses.append(seconds)
        await asyncio.sleep(0)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.ensure_future(ActivityEnvironment().run(self.reading.run))
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(2000):
            if holds():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it never came to be")

    async def until_done(self) -> None:
        await self.until(lambda: self.queue.empty)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_a_node_is_told_and_the_message_leaves(scene: Scene) -> None:
    name = scene.queue.send("i-a")
    async with scene.read():
        await scene.until_done()
    assert scene.nodes.heard("i-a") == ["spotInterruption announced"]
    assert scene.queue.deleted == [name]
    counts = scene.metrics.counts
    assert (counts["received spot_interrupted"], counts["deleted"]) == (1, 1)
    assert counts["read queue"] >= 1


async def test_a_reader_that_is_killed_between_telling_and_deleting_loses_nothing(scene: Scene) -> None:
    scene.nodes.gate = asyncio.Event()
    scene.queue.send("i-a")
    async with scene.read():
        await scene.until(lambda: scene.nodes.under_way == 1)
    assert scene.queue.deleted == []
    scene.nodes.gate.set()
    scene.queue.show_again()
    async with scene.read():
        await scene.until_done()
    assert scene.nodes.heard("i-a") == ["spotInterruption announced"]


async def test_what_comes_together_is_told_together(scene: Scene) -> None:
    for _ in range(4):
        scene.queue.send("i-a", notice=rebalance(NOW))
    scene.queue.send("i-a")
    async with scene.read():
        await scene.until_done()
    assert scene.nodes.heard("i-a") == ["rebalanceRecommendation announced", "spotInterruption announced"]
    assert scene.nodes.most_at_once == 2


async def test_what_is_for_nobody_leaves_and_is_counted(scene: Scene) -> None:
    for dropped in ("malformed", "unknown", "unwanted"):
        scene.queue.put(EventParsed.model_validate({"at": NOW, "dropped": dropped, "why": "some reason"}))
    scene.queue.send("x-1")
    scene.queue.send("i-a")
    async with scene.read():
        await scene.until_done()
        scene.queue.send("i-a")
        await scene.until_done()
    scene.nodes.standings = {"i-over": ["over"]}
    scene.queue.send("i-over")
    async with scene.read():
        await scene.until_done()
    counts = scene.metrics.counts
    dropped_counts = {key.removeprefix("dropped "): n for key, n in counts.items() if key.startswith("dropped")}
    assert dropped_counts == dict.fromkeys(("malformed", "unknown", "unwanted", "foreign", "repeated", "over"), 1)
    assert (counts["received no_op"], counts["deleted"]) == (3, 7)


async def test_a_message_about_two_stays_until_both_have_it(scene: Scene) -> None:
    scene.nodes.standings = {"i-b": ["later"]}
    name = scene.queue.send("i-a", "x-1", "i-b")
    async with scene.read():
        await scene.until(lambda: bool(scene.nodes.heard("i-a")))
        await asyncio.sleep(0.01)
        assert scene.queue.deleted == []
        scene.queue.show_again()
        await scene.until_done()
    assert (scene.nodes.heard("i-a"), scene.nodes.heard("i-b")) == (["spotInterruption announced"],) * 2
    assert scene.queue.deleted == [name]
    assert "dropped foreign" not in scene.metrics.counts


async def test_an_instance_that_may_be_ours_is_tried_again_for_a_minute(scene: Scene) -> None:
    scene.nodes.standings = {"i-new": ["not yet"] * 2, "x-1": ["not yet"] * 3}
    for instance in ("i-new", "x-1"):
        scene.queue.send(instance, first_received=scene.now)
    async with scene.read():
        await scene.until(lambda: len(scene.queue.hidden) == 2)
        await turns()
        scene.now += timedelta(seconds=40)
        scene.queue.show_again()
        await scene.until(lambda: len(scene.queue.hidden) == 2)
        await turns()
        scene.now += timedelta(seconds=21)
        scene.queue.show_again()
        await scene.until_done()
    assert scene.nodes.heard("i-new") == ["spotInterruption announced"]
    assert scene.metrics.counts["dropped foreign"] == 1


async def test_a_node_of_ours_without_a_workflow_is_told_once_it_has_one_however_old_the_message(scene: Scene) -> None:
    """After an outage, or when Temporal's store was lost, the message may have come first days ago."""
    scene.nodes.standings = {"i-a": ["no workflow"] * 3}
    name = scene.queue.send("i-a", first_received=scene.now - timedelta(days=3))
    scene.queue.send("i-b")
    async with scene.read():
        for _ in range(3):
            await scene.until(lambda: "r-m1" in scene.queue.hidden)
            await turns()
            assert name not in scene.queue.deleted
            scene.queue.show_again()
        await scene.until_done()
    assert scene.nodes.heard("i-a") == scene.nodes.heard("i-b") == ["spotInterruption announced"]
    assert "dropped foreign" not in scene.metrics.counts
    assert scene.pauses == [], "others are told meanwhile, so that it is read on"


async def test_a_message_that_cannot_be_handled_blocks_no_other(scene: Scene) -> None:
    scene.nodes.failing = {"i-bad"}
    bad = scene.queue.send("i-bad")
    scene.queue.send("i-a")
    async with scene.read():
        await scene.until(lambda: bool(scene.nodes.heard("i-a")))
        scene.queue.show_again()
        scene.queue.send("i-b")
        await scene.until(lambda: bool(scene.nodes.heard("i-b")))
    assert bad not in scene.queue.deleted
    assert scene.pauses == []


async def test_more_polls_run_while_they_come_back_full(scene: Scene) -> None:
    for number in range(500):
        scene.queue.send(f"i-{number}")
    async with scene.read():
        await scene.until_done()
        assert len({instance for instance, _ in scene.nodes.told}) == 500
        await scene.until(lambda: scene.queue.polling == 1)
        polled = len(scene.queue.read)
        scene.queue.most_polls = 0
        await scene.until(lambda: len(scene.queue.read) > polled + 2)
    assert scene.queue.most_polls == 1


async def test_pods_that_have_to_go_at_once_are_told_before_the_life_is_and_it_hears_which(scene: Scene) -> None:
    scene.nodes.gate = asyncio.Event()
    scene.takes(1)
    async with scene.read():
        await scene.until(lambda: scene.nodes.under_way == 1)
        assert scene.pods.evicted == ["pod-1"] and scene.queue.deleted == []
        scene.nodes.gate.set()
        await scene.until_done()
    assert scene.nodes.left["i-1"] == ["default/pod-1"]


async def test_of_a_storm_all_pods_are_told_before_any_life_is(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_consumer, "LATER_BY", float("inf"))
    scene.nodes.gate = asyncio.Event()
    for number in range(500):
        scene.takes(number)
    async with scene.read():
        await scene.until(lambda: scene.nodes.under_way > 0)
        assert len(scene.pods.evicted) == 500
        scene.nodes.gate.set()
        await scene.until_done()
    assert len({instance for instance, _ in scene.nodes.told}) == 500
    assert len(scene.queue.deleted) == 500


async def test_an_api_server_that_evicts_nobody_holds_up_no_other_node_and_the_lives_for_a_while_only(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, evict = asyncio.Event(), scene.pods.evict

    async def waits(pod: DrainPod) -> Eviction:
        await answers.wait()
        return await evict(pod)

    monkeypatch.setattr(scene.pods, "evict", waits)
    for number in range(500):
        scene.takes(number)
    async with scene.read():
        await scene.until(lambda: all(node.taints for node in scene.machines.found.values()))
        await scene.until(lambda: len({instance for instance, _ in scene.nodes.told}) == 500)
        assert not scene.pods.evicted
        answers.set()
        await scene.until(lambda: len(scene.pods.evicted) == 500)
        await scene.until_done()


async def test_a_reader_that_is_killed_before_it_told_anyone_loses_nothing(scene: Scene) -> None:
    for number in range(50):
        scene.takes(number)
    async with scene.read():
        await scene.until(lambda: len(scene.pods.evicted) == 50)
    assert len(scene.queue.deleted) + len(scene.queue.hidden) + len(scene.queue.visible) == 50
    scene.queue.show_again()
    async with scene.read():
        await scene.until_done()
    assert len({instance for instance, _ in scene.nodes.told}) == 50
    assert len(scene.pods.evicted) == 50


async def test_where_messages_never_end_lives_are_told_all_the_same(scene: Scene) -> None:
    scene.takes(1)
    async with scene.read():
        for number in range(20_000):
            scene.queue.send(f"x-{number}")
        await scene.until(lambda: bool(scene.nodes.heard("i-1")))
        assert scene.queue.visible


async def test_no_more_is_in_memory_than_the_polls_bring(scene: Scene) -> None:
    scene.nodes.gate = asyncio.Event()
    for number in range(500):
        scene.queue.send(f"i-{number}")
    async with scene.read():
        await scene.until(lambda: scene.nodes.under_way == 10 * POLLS)
        await asyncio.sleep(0.05)
        assert scene.nodes.most_at_once == 10 * POLLS
        scene.nodes.gate.set()
        await scene.until_done()


async def test_a_storm_of_repeats_and_of_strangers_ends(scene: Scene) -> None:
    """15,000 messages for 500 nodes, two thirds of them repeats or foreign."""
    for number in range(15_000):
        scene.queue.send(f"i-{number % 500}" if number % 3 else f"x-{number}", notice=rebalance(NOW))
    async with scene.read():
        for _ in range(60):
            with suppress(AssertionError):
                await scene.until_done()
                break
    assert scene.queue.empty
    assert len(scene.nodes.told) == 500
    counts = scene.metrics.counts
    assert (counts["deleted"], counts["dropped foreign"]) == (15_000, 5_000)


async def test_what_has_time_is_gathered_and_told_together_while_much_is_in_the_queue(scene: Scene) -> None:
    for number in range(3000):
        scene.queue.send(f"i-{number % 20}", notice=scheduled(number // 20 % 10))
    async with scene.read():
        await scene.until_done()
    assert len(scene.nodes.told) == len({(instance, one.id) for instance, one in scene.nodes.told}) == 20 * 10
    assert scene.nodes.calls < 3000 / 5


@pytest.fixture
def without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has time is gathered for as long as polls come back full."""
    monkeypatch.setattr("activities.interruption.queue_consumer.GATHERED", 10**9)
    monkeypatch.setattr("activities.interruption.queue_consumer.GATHERED_FOR", 10.0**9)


@pytest.mark.usefixtures("without_end")
async def test_what_has_no_time_is_told_at_once_whatever_is_gathered(scene: Scene) -> None:
    for number in range(200):
        scene.queue.send(f"i-{number}", notice=rebalance(NOW))
    scene.queue.send("i-spot")
    scene.queue.visible += [scene.queue.visible[0]] * 100_000
    async with scene.read():
        await scene.until(lambda: bool(scene.nodes.heard("i-spot")))
        assert scene.queue.visible


@pytest.mark.usefixtures("without_end")
async def test_a_reader_that_is_killed_while_it_gathers_loses_nothing(scene: Scene) -> None:
    for number in range(2000):
        scene.queue.send(f"i-{number}", notice=rebalance(NOW))
    async with scene.read():
        await scene.until(lambda: len(scene.queue.hidden) > 1000)
        told = len(scene.nodes.told)
    assert told < 1000 and len(scene.queue.deleted) == told
    scene.queue.show_again()
    async with scene.read():
        await scene.until_done()
    assert len({instance for instance, _ in scene.nodes.told}) == 2000


async def test_nobody_to_tell_slows_the_polls_and_is_no_reading(scene: Scene) -> None:
    """Temporal is away: the messages stay, and the alert goes by when it was last read. Strangers prove nothing."""
    scene.nodes.standings = {"i-a": ["later"] * 3}
    scene.queue.send("i-a")
    async with scene.read():
        for _ in range(3):
            await scene.until(lambda: bool(scene.queue.hidden))
            scene.queue.send("x-1")
            await scene.until(lambda: not scene.queue.visible)
            await turns()
            assert "read queue" not in scene.metrics.counts
            scene.queue.show_again()
        await scene.until_done()
        await scene.until(lambda: "read queue" in scene.metrics.counts)
        paused = len(scene.pauses)
        scene.queue.send("i-b")
        await scene.until_done()
    assert sorted(set(scene.pauses)) == [1.0, 2.0, 4.0]
    assert len(scene.pauses) <= paused + 1


async def test_what_nobody_could_be_told_may_be_gone_and_then_it_is_read_again(scene: Scene) -> None:
    scene.nodes.standings = {"*": ["later"]}
    scene.queue.send("i-a")
    async with scene.read():
        await scene.until(lambda: len(scene.pauses) > 3)
        assert "read queue" not in scene.metrics.counts
        scene.now += queue_consumer.FORGOTTEN
        await scene.until(lambda: scene.metrics.counts.get("read queue", 0) > 0)


async def test_a_passing_fault_is_none(scene: Scene) -> None:
    scene.queue.faults = {"receive": [TryLater("503"), TryLater("503")]}
    scene.queue.send("i-a")
    async with scene.read():
        await scene.until_done()
    assert len(scene.pauses) == 2


@pytest.mark.parametrize("fault", [NotFound("no such queue"), Forbidden("not allowed")])
async def test_what_a_person_has_to_mend_ends_the_reading(scene: Scene, fault: Exception) -> None:
    scene.queue.faults = {"receive": [fault]}  # type: ignore[list-item]
    with pytest.raises(type(fault)):
        await asyncio.wait_for(scene.reading.run(), 60)


async def test_what_is_not_deleted_comes_again_and_is_a_repeat(scene: Scene) -> None:
    scene.queue.faults = {"delete": [TryLater("503")]}
    scene.queue.send("i-a")
    async with scene.read():
        await scene.until(lambda: bool(scene.nodes.told))
        await turns()
        scene.queue.show_again()
        await scene.until_done()
    assert scene.metrics.counts["dropped repeated"] == 1
    assert scene.nodes.heard("i-a") == ["spotInterruption announced"]
