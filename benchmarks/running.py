"""What every benchmark on the sandbox begins and ends with."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import typer

from cli.exits import Failed, Refused, code_of, line_of
from sandbox.errors import SandboxError
from sandbox.plan import Plan
from sandbox.world import Sandbox

T = TypeVar("T")


def benchmark() -> typer.Typer:
    """An app of one command."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def in_sandbox(plan: Plan, play: Callable[[Sandbox], Coroutine[Any, Any, T]]) -> T:
    """What `play` answers, in a sandbox of its own. The logs of one that failed are kept, and named."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
    try:
        with Sandbox(directory, plan=plan) as sandbox:
            found = asyncio.run(play(sandbox))
    except (Failed, SandboxError):
        print(f"The logs are in {directory / 'logs'}", file=sys.stderr)
        raise
    shutil.rmtree(directory, ignore_errors=True)
    return found


def run(app: typer.Typer, name: str) -> int:
    """Exit codes as everywhere in `cli/exits.py`; the command's own where it answers."""
    try:
        answer = app(standalone_mode=False)
    except (Failed, SandboxError, Refused, typer.TyperException, KeyboardInterrupt) as error:
        if not isinstance(error, KeyboardInterrupt):
            print(line_of(error, name), file=sys.stderr)
        return code_of(error)
    return int(answer or 0)
