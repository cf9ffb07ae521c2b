"""`tenure why --from` explains a node from exported files only."""

from pathlib import Path

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli.exit_codes import UsageError
from tenure.cli.main import main
from tenure.cli.nodes.exported_histories import explain_exported_nodes
from tests.replay.record import HISTORIES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An export with one completed NodeClaim workflow."""
    file = tmp_path / "demo" / "nodeclaim" / "web-1" / "0a1b2c3d" / "run.json"
    file.parent.mkdir(parents=True)
    file.write_text((HISTORIES / "nodeclaim_vanished.json").read_text())
    return tmp_path


def test_node_is_explained_by_nodeclaim_node_or_instance_name(folder: Path) -> None:
    [explanation] = explain_exported_nodes(folder, "web-1")
    nodeclaim = explanation.nodeclaim
    assert (nodeclaim.name, nodeclaim.phase, nodeclaim.workflow_id) == (
        "web-1",
        "Gone",
        "demo/nodeclaim/web-1/0a1b2c3d",
    )
    assert nodeclaim.instance_id and nodeclaim.instance_type and nodeclaim.zone
    assert [step.phase.value for step in explanation.state.steps][:3] == ["Launch", "Registration", "Initialization"]
    assert [one.what.split()[0] for one in explanation.calls][1:3] == ["launch_one", "register_node"]
    for name in filter(None, (nodeclaim.node_name, nodeclaim.instance_id)):
        assert explain_exported_nodes(folder, name) == [explanation]


def test_command_needs_no_temporal(folder: Path, capsys: CaptureFixture[str]) -> None:
    assert main(["why", "web-1", "--from", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("NodeClaim web-1")


def test_unknown_name_reports_number_of_files(folder: Path) -> None:
    with pytest.raises(UsageError, match="among 1 files"):
        explain_exported_nodes(folder, "web-3")


def test_invalid_file_is_named_and_does_not_hide_others(folder: Path) -> None:
    broken = folder / "demo" / "nodeclaim" / "web-2" / "0a1b2c3d" / "run.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    [unreadable] = explain_exported_nodes(folder, "web-2")
    assert "run.json is not a history" in unreadable.remark and "export it again" in unreadable.format_text()
    [explanation] = explain_exported_nodes(folder, "web-1")
    assert explain_exported_nodes(folder, explanation.nodeclaim.instance_id) == [explanation]


def test_missing_folder_names_export_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="history export --to"):
        explain_exported_nodes(tmp_path / "nowhere", "web-1")
