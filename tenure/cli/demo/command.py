"""`tenure demo`: nodes are launched for unschedulable pods, and deleted when they are empty."""

import asyncio
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from tenure.cli.demo.screen import Screen, console_for_output
from tenure.cli.demo.script import Demo, Options, wait_until_interrupted
from tenure.cli.exit_codes import DONE, FAILED, CommandFailed, UsageError, end_like_ctrl_c
from tenure.cli.sandbox.background import detach_from_parent, run_in_background, tenure_command
from tenure.cli.sandbox.command import demo_directory, format_exports
from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.sandbox.worker_process import RBAC, aws_arguments
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import SandboxError
from tenure.sandbox.spec import CRDS, Plan
from tenure.sandbox.state_file import owner_of

SHORT_STATES: Final = ("--pending-seconds=0.3", "--shutting-down-seconds=0.5")
"""EC2 takes longer, and would show nothing more."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def demo(
    pods: Annotated[int, typer.Option(min=1, max=2000, help="Number of pods.")] = 30,
    boot_seconds: Annotated[
        float, typer.Option(min=0, max=600, help="Seconds from a running instance to its Node.")
    ] = 0.5,
    retain: Annotated[bool, typer.Option("--keep", help="Leave everything running.")] = False,
    tell: Annotated[int, typer.Option(hidden=True)] = -1,
) -> int:
    """Watch nodes launch and terminate on this machine, without an AWS account."""
    if retain and tell < 0:
        return run_in_background(tenure_command("demo", f"--pods={pods}", f"--boot-seconds={boot_seconds}", "--keep"))
    end_like_ctrl_c()
    options = Options(pods=pods, boot_seconds=boot_seconds, retain=retain, exit_code_fd=tell, began=time.monotonic())
    directory = _prepare_directory(retain=retain)
    screen = Screen(console_for_output())
    try:
        code = _run_demo(options, directory, screen)
    except KeyboardInterrupt:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    if code == DONE:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        screen.print_line(f"The logs are in {directory / 'logs'}")
    return code


def _prepare_directory(*, retain: bool) -> Path:
    """A temporary directory, or with `retain` the one that other commands use by default."""
    if not retain:
        return Path(tempfile.mkdtemp(prefix="tenure-demo-"))
    directory = demo_directory()
    if owner := owner_of(directory):
        raise UsageError(
            f"demo --keep: process {owner} already runs a demo; stop it: tenure sandbox down --dir {directory}"
        )
    shutil.rmtree(directory, ignore_errors=True)
    return directory


def build_plan(options: Options) -> Plan:
    """`examples/` select subnets and security groups by this cluster name."""
    return Plan(
        cluster_name="demo",
        manifests=(CRDS, RBAC),
        aws_arguments=(*aws_arguments(), *SHORT_STATES),
        node_arguments=(f"--boot-seconds={options.boot_seconds:g}",),
        quick=True,
    )


def _run_demo(options: Options, directory: Path, screen: Screen) -> int:
    try:
        screen.print_heading("A cluster, AWS and Temporal on this machine")
        with Sandbox(directory, plan=build_plan(options), reports_progress=True) as sandbox:
            seconds = time.monotonic() - options.began
            screen.print_line(f"Running after {seconds:.1f} s: {', '.join(sandbox.plan.parts)}")
            code = asyncio.run(_run_in_session(sandbox, options, screen))
            # The directory is removed, so no part has to write its data.
            sandbox.kill()
            return code
    except (CommandFailed, SandboxError) as failed:
        screen.print_line(f"FAILED  {failed}")
        return FAILED


async def _run_in_session(sandbox: Sandbox, options: Options, screen: Screen) -> int:
    async with SandboxSession(sandbox, deployment=options.deployment) as session:
        with screen:
            code = await Demo(session, options, screen).run()
        if options.retain:
            _print_next_steps(sandbox, options.deployment, screen)
            if detach_from_parent(options.exit_code_fd, code, sandbox.logs / "demo.log"):
                await wait_until_interrupted(session)
        return code


def _print_next_steps(sandbox: Sandbox, deployment: str, screen: Screen) -> None:
    screen.print_heading("Everything is left running")
    here = Path(sys.executable).parent
    lines = [] if shutil.which("tenure") else [f'export PATH={shlex.quote(str(here))}:"$PATH"']
    for line in (*lines, *format_exports(sandbox.environment())):
        screen.console.print(line, markup=False, soft_wrap=True)
    where = f"--dir {sandbox.directory}"
    for command, what in (
        (f"tenure sandbox scale {deployment} 10 {where}", "launches nodes again, as `kubectl scale` does"),
        ("tenure get", "lists the nodes"),
        ("tenure why NODE", "explains one of them"),
        ('tenure pause --node NODE --for 30m --reason "trying it out"', "pauses its disruption"),
        ("tenure resume --node NODE", "resumes it"),
        (f"tenure sandbox down {where}", "stops and removes everything"),
    ):
        screen.console.print(f"{command}   {what}", markup=False, soft_wrap=True)
