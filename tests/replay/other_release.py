"""Replays the histories of this build with the code of an earlier release, and its histories with this code.

    python -m tests.replay.other_release [REF]

REF is a tag or commit; by default the newest earlier tag `vX.Y.Z`. Without one, nothing is replayed. Both use the
installed packages. Workers of both run side by side during a rollout, and a rollback runs the earlier one.
"""

import asyncio
import io
import logging
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import Replayer

from workflows.runner import WORKFLOWS, OrderedWorkflowRunner

ROOT: Final = Path(__file__).parents[2]
HISTORIES: Final = Path("tests") / "replay" / "histories"


def find_earlier_tag(repository: Path = ROOT) -> str:
    """The newest version tag of an ancestor of HEAD; empty without one."""
    newest_first = ("tag", "--list", "v*", "--merged", "HEAD", "--no-contains", "HEAD", "--sort=-version:refname")
    return next(iter(_git(repository, *newest_first).decode().split()), "")


def check_out(ref: str, folder: Path, repository: Path = ROOT) -> None:
    """Raises CalledProcessError for an unknown REF."""
    with tarfile.open(fileobj=io.BytesIO(_git(repository, "archive", ref))) as archive:
        archive.extractall(folder, filter="data")


def replay_with(code: Path, histories: Path) -> list[str]:
    """Histories that the code in the folder cannot replay, each with the error. In a process of its own."""
    command = [sys.executable, __file__, "--histories", str(histories.resolve())]
    environment = os.environ | {"PYTHONPATH": str(code)}
    done = subprocess.run(command, cwd=code, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


async def replay(histories: Iterable[WorkflowHistory]) -> list[str]:
    """Histories that this process cannot replay, each with the message of the error.

    Debug mode disables the deadlock detector. The log of the SDK's core would be on stdout, between the results.
    """
    replayer = Replayer(
        workflows=WORKFLOWS,
        data_converter=pydantic_data_converter,
        workflow_runner=OrderedWorkflowRunner(),
        debug_mode=True,
        runtime=Runtime(telemetry=TelemetryConfig(logging=None)),
    )
    found = []
    for history in histories:
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        if result.replay_failure:
            text = str(result.replay_failure)
            message = re.search(r'message: "(.+?)"', text)
            found.append(f"{history.workflow_id}: {(message[1] if message else text).splitlines()[0]}")
    return found


def _git(repository: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=repository, stdout=subprocess.PIPE, check=True).stdout


def main(ref: str) -> int:
    """The exit code: 1 if a history cannot be replayed."""
    if not ref:
        print("no tag of an earlier release: no histories to compare")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder)
        check_out(ref, other)
        results = {
            f"histories of this build with the code of {ref}": replay_with(other, ROOT / HISTORIES),
            f"histories of {ref} with this code": replay_with(ROOT, other / HISTORIES),
        }
    for what, failed in results.items():
        print(f"{what}: {len(failed)} cannot be replayed", *failed, sep="\n  ")
    return int(any(results.values()))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--histories", folder]:
            logging.disable()
            stored = [WorkflowHistory.from_json(file.stem, file.read_text()) for file in sorted(Path(folder).iterdir())]
            sys.stdout.writelines(f"{line}\n" for line in asyncio.run(replay(stored)))
        case arguments:
            sys.exit(main(*(arguments or [find_earlier_tag()])))
