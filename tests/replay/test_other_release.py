"""Histories are replayed with the code of another checkout, and the newest earlier tag selects it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.replay.other_release import HISTORIES, ROOT, check_out, find_earlier_tag, replay_with

STORED = ROOT / HISTORIES


def git(repository: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "tag.gpgSign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    found = tmp_path / "repository"
    found.mkdir()
    git(found, "init", "--initial-branch=main")
    for number, tag in enumerate(("v0.9.0", "v0.10.0", "other-9", "v0.11.0")):
        (found / "file").write_text(str(number))
        git(found, "add", "file")
        git(found, "commit", "--no-gpg-sign", "-m", tag)
        git(found, "tag", tag)
    return found


def test_newest_version_tag_before_the_present_commit_is_selected(repository: Path, tmp_path: Path) -> None:
    assert find_earlier_tag(repository) == "v0.10.0", "v0.11.0 is the present commit, and 10 is newer than 9"
    check_out("v0.10.0", tmp_path / "earlier", repository)
    assert (tmp_path / "earlier" / "file").read_text() == "1"


def test_repository_without_an_earlier_tag_has_none(repository: Path) -> None:
    git(repository, "tag", "--delete", "v0.9.0", "v0.10.0")
    assert find_earlier_tag(repository) == ""


def test_only_history_that_the_other_code_continues_differently_is_named(tmp_path: Path) -> None:
    histories, code = tmp_path / "histories", tmp_path / "code"
    histories.mkdir()
    for name in ("nodeclaim_vanished", "canary_completed"):
        (histories / f"{name}.json").write_text((STORED / f"{name}.json").read_text())
    assert replay_with(ROOT, histories) == []
    code.mkdir()
    for name in ("activities", "tenure", "deploy"):
        (code / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "workflows", code / "workflows")
    file = code / "workflows" / "phases" / "registration.py"
    start = "async def _register_node(context: NodeClaimContext) -> bool:\n"
    assert start in file.read_text()
    timer = "    from temporalio import workflow as sdk\n\n    await sdk.sleep(1)\n"
    file.write_text(file.read_text().replace(start, f"{start}{timer}"))
    (found,) = replay_with(code, histories)
    assert found.startswith("nodeclaim_vanished: ") and "[TMPRL1100]" in found
