"""Today's code replays the stored histories; `record.py` describes when to record again and when to patch."""

from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from tests.replay.paths import PATHS
from tests.replay.record import HISTORIES, missing_paths
from tests.support.paths import ROOT
from tests.support.workflows.histories import create_replayer
from workflows.runner import WORKFLOWS

STORED = sorted(HISTORIES.glob("*.json"))


@pytest.fixture(scope="module")
def replayer() -> Replayer:
    return create_replayer()


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
async def test_stored_history_replays(replayer: Replayer, path: Path) -> None:
    await replayer.replay_workflow(load_history(path.stem))


def test_every_path_has_histories_and_every_history_a_path() -> None:
    assert missing_paths() == []
    assert {path.name.partition(".")[0] for path in STORED} == set(PATHS)


def test_every_workflow_has_a_history() -> None:
    stored = "".join(path.read_text() for path in STORED)
    names = [workflow._Definition.must_from_class(one).name for one in WORKFLOWS]
    assert [name for name in names if f'"workflowType":{{"name":"{name}"}}' not in stored] == []


async def test_changed_history_is_nondeterministic(replayer: Replayer) -> None:
    """Proves that the other tests can fail."""
    with pytest.raises(workflow.NondeterminismError):
        await replayer.replay_workflow(load_history("nodeclaim_vanished", register_node="another_activity"))


def test_stored_history_has_no_machine_details() -> None:
    for path in STORED:
        text = path.read_text()
        assert 'File \\"' not in text and str(ROOT) not in text


def load_history(name: str, **changed: str) -> WorkflowHistory:
    text = (HISTORIES / f"{name}.json").read_text()
    for old, new in changed.items():
        text = text.replace(old, new)
    return WorkflowHistory.from_json(name, text)
