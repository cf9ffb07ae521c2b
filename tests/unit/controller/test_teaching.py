"""The Provisioning workflow is told what was learnt: in one signal for many nodes, and again when it has lost it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tenure.controller.planning import discovered_capacity
from tenure.controller.planning.discovered_capacity import PAUSE, Learning, Teaching
from tenure.controller.signals.signaller import Signal, Signaller, Start
from tenure.model.discovered_capacity import Learnt, LearntSeen
from tenure.model.observations import DemandSeen
from tenure.model.workflow_states import ProvisioningState
from tests.support.controller.builders import NOW, World
from tests.support.fakes.turns import turns
from tests.unit.controller.fake_temporal import FakeTemporal
from tests.unit.controller.test_learning import STANDARD, learn, machine

START = Start("ProvisioningWorkflow", ProvisioningState(cluster="c"))


class Stage(World):
    def __init__(self, sent: dict[str, str]) -> None:
        super().__init__()
        self.temporal, self.learning = FakeTemporal(), Learning(self.caches)
        self.signaller = Signaller(self.temporal.client, "queue", sent)
        self.teaching = Teaching("c", self.learning, self.signaller)

    async def tell(self, after: float = 0) -> None:
        self.teaching.tell(START, NOW + PAUSE * after)
        await turns()

    def told(self) -> list[Learnt]:
        return [one.learnt for one in self.temporal.to("c/provisioning") if isinstance(one, LearntSeen)]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage({})
    task = asyncio.create_task(stage.signaller.run())
    yield stage
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_nothing_is_told_before_anything_is_learnt(stage: Stage) -> None:
    await stage.tell()
    assert not stage.temporal.sent and stage.teaching.again is None


async def test_the_same_is_told_once(stage: Stage) -> None:
    learn(stage, machine("a"), by=stage.learning)
    await stage.tell()
    await stage.tell(after=5)
    assert [one.count for one in stage.told()] == [1]
    assert (stage.temporal.sent[0].workflow, stage.temporal.sent[0].signal) == ("ProvisioningWorkflow", "learnt")


async def test_many_nodes_teach_in_one_signal(stage: Stage) -> None:
    learn(stage, machine("a"), by=stage.learning)
    await stage.tell()
    for number, name in enumerate("bcd"):
        learn(stage, machine(name, f"{7000 - number}Mi"), by=stage.learning)
        await stage.tell(after=0.5)
    assert len(stage.told()) == 1 and stage.teaching.again == NOW + PAUSE
    await stage.tell(after=1)
    assert len(stage.told()) == 2 and stage.teaching.again is None
    assert stage.told()[-1].memory(STANDARD, "m6i.large") == 6998 << 20


async def test_what_the_workflow_knows_already_is_not_told(stage: Stage) -> None:
    learn(stage, machine("a"), by=stage.learning)
    stage.learning.heed(stage.learning.learnt)
    learn(stage, machine("b", of="m6i.xlarge"), by=stage.learning)
    await stage.tell()
    assert [one.images for one in stage.told()] == [{STANDARD: {"m6i.xlarge": 7650 << 20}}]


async def test_a_workflow_that_turns_out_to_know_nothing_is_told_again(stage: Stage) -> None:
    learn(stage, machine("a"), by=stage.learning)
    await stage.tell()
    stage.learning.heed(stage.learning.learnt)
    assert not stage.teaching.check()
    stage.learning.heed(Learnt())
    assert stage.teaching.check()
    await stage.tell(after=1)
    assert [one.count for one in stage.told()] == [1, 1]


async def test_a_workflow_that_is_full_is_not_told_again_and_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovered_capacity, "MOST_ENTRIES", 1)
    learn(stage, machine("a"), machine("b", of="m6i.xlarge"), by=stage.learning)
    stage.learning.heed(Learnt(images={STANDARD: {"m6i.large": 7650 << 20}}))
    assert stage.learning.seen().learnt.count == 1
    assert not stage.teaching.check()


async def test_a_successor_that_has_learnt_the_same_tells_nothing(stage: Stage) -> None:
    learn(stage, machine("a"), by=stage.learning)
    await stage.tell()
    successor = Stage(dict(stage.signaller.sent))
    learn(successor, machine("a"), by=successor.learning)
    await successor.tell()
    assert not successor.temporal.sent and not successor.signaller._waiting


async def test_demand_and_what_was_learnt_do_not_take_each_others_place(stage: Stage) -> None:
    stage.temporal.gate = asyncio.Event()
    learn(stage, machine("a"), by=stage.learning)
    for number in (1, 2):
        demand = DemandSeen(number=number, pods=1, newest=NOW)
        stage.signaller.offer(Signal("c/provisioning", "demand", demand, str(number), START))
        await stage.tell()
    stage.temporal.gate.set()
    await turns()
    assert sorted(one.signal for one in stage.temporal.sent) == ["demand", "demand", "learnt"]
