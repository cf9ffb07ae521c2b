"""`tenure sandbox`: the world on this machine, or one part of it, to try things on.

`up` starts all parts and holds them until Ctrl-C, or in the background with `--detach`; `status` and `down` find it by
its directory. `aws`, `kubernetes`, `temporal` and `nodes` start one part on a port of your choice, so that any other
client or controller can be put in its place.
"""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from cli.exits import DONE, FAILED, Failed, Refused
from cli.held import held, let_go, tenure
from cli.interrupts import end_like_ctrl_c
from cli.rights import RBAC, aws_arguments
from sandbox.errors import DirectoryInUse, NoPort, SandboxError
from sandbox.plan import CRDS, PARTS, Plan
from sandbox.record import Record, owner_of
from sandbox.world import Sandbox

SECONDS_TO_STOP = 30.0
LOOK_SECONDS = 0.5
LOOK_OFTEN = 0.05

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Directory = Annotated[Path | None, typer.Option("--dir", help="Where its state and logs are.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="A free one when it is not given.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the state; the same --dir opens it again.")]
More = Annotated[list[str] | None, typer.Argument(help="Passed on to the part, after `--`.")]
Told = Annotated[int, typer.Option(hidden=True)]


@app.callback()
def sandbox() -> None:
    """A cluster, AWS and Temporal on this machine, all real parts except AWS."""


@app.command()
def up(
    directory: Directory = None,
    keep: Keep = False,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it running in the background.")] = False,
    parts: Annotated[str, typer.Option(help="Which, with commas between them.")] = ",".join(PARTS),
    cluster_name: Annotated[str, typer.Option(envvar="CLUSTER_NAME")] = Plan.cluster_name,
    boot_seconds: Annotated[float, typer.Option(min=0, help="From a running instance to its Node.")] = 2.0,
    tell: Told = -1,
) -> int:
    """Start the parts and say how to reach them."""
    directory = (directory or default_directory()).absolute()
    if detach and tell < 0:
        flags = [f"--dir={directory}", f"--parts={parts}", f"--cluster-name={cluster_name}"]
        flags += [f"--boot-seconds={boot_seconds}", "--detach", *(["--keep"] if keep else [])]
        return held(tenure("sandbox", "up", *flags))
    wanted = tuple(filter(None, parts.split(",")))
    plan = plan_of(
        parts=wanted,
        keep=keep,
        cluster_name=cluster_name,
        node_arguments=(f"--boot-seconds={boot_seconds:g}",),
        aws_arguments=aws_arguments(),
        manifests=(CRDS, RBAC),
    )
    return _hold(Sandbox(directory, plan=plan), tell)


@app.command()
def status(directory: Directory = None) -> int:
    """Which parts run, and how to reach them. Exit code 1 when none does."""
    directory = directory or default_directory()
    record = Record.read(directory)
    if owner_of(directory) is None or record is None:
        typer.echo(f"no sandbox runs in {directory}")
        return FAILED
    for name, pid in record.processes.items():
        typer.echo(f"{name:<26} {'runs' if _alive(pid) else 'ENDED'}  pid {pid}")
    _say(record.reach, record.environment)
    return DONE if all(map(_alive, record.processes.values())) else FAILED


@app.command()
def down(directory: Directory = None) -> int:
    """Stop it, wherever it was started."""
    directory = directory or default_directory()
    owner = owner_of(directory)
    if owner is None:
        typer.echo(f"no sandbox runs in {directory}")
        return DONE
    os.kill(owner, signal.SIGTERM)
    until = time.monotonic() + SECONDS_TO_STOP
    while owner_of(directory) == owner:
        if time.monotonic() > until:
            raise Failed(f"process {owner} did not stop within {SECONDS_TO_STOP:g} s")
        time.sleep(LOOK_OFTEN)
    while time.monotonic() < until and _runs(owner):
        time.sleep(LOOK_OFTEN)
    typer.echo(f"stopped what ran in {directory}")
    return DONE


@app.command()
def aws(port: Port = None, directory: Directory = None, keep: Keep = False, more: More = None) -> int:
    """The AWS stand-in alone."""
    plan = plan_of(parts=("aws",), keep=keep, aws_arguments=(*aws_arguments(), *(more or ())))
    return _alone(plan, directory, {"aws": port})


@app.command()
def kubernetes(port: Port = None, directory: Directory = None, keep: Keep = False) -> int:
    """A Kubernetes control plane alone, with the CRDs. `--port` is the API server's."""
    return _alone(plan_of(parts=("kubernetes",), keep=keep, manifests=(CRDS, RBAC)), directory, {"apiserver": port})


@app.command()
def temporal(
    port: Port = None,
    ui_port: Port = None,
    namespace: Annotated[str, typer.Option(envvar="TEMPORAL_NAMESPACE")] = "default",
    directory: Directory = None,
    keep: Keep = False,
) -> int:
    """A Temporal dev server alone, with its UI and the search attributes."""
    plan = plan_of(parts=("temporal",), keep=keep, namespace=namespace)
    return _alone(plan, directory, {"temporal": port, "temporal-ui": ui_port})


@app.command()
def nodes(
    kubeconfig: Annotated[Path, typer.Option(envvar="KUBECONFIG", exists=True, help="Of the cluster to join.")],
    aws_endpoint: Annotated[str, typer.Option(envvar="AWS_ENDPOINT_URL", help="Where instances are to be seen.")],
    port: Port = None,
    directory: Directory = None,
    more: More = None,
) -> int:
    """The node simulator alone, between a cluster and an AWS of your choice."""
    plan = plan_of(
        parts=("nodes",), kubeconfig=kubeconfig.absolute(), aws_endpoint=aws_endpoint, node_arguments=tuple(more or ())
    )
    return _alone(plan, directory, {"nodes": port})


def default_directory() -> Path:
    """`tenure/sandbox` in the XDG state folder."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "tenure" / "sandbox"


def plan_of(**wanted: object) -> Plan:
    """Raises `Refused` for a plan that makes no sense."""
    try:
        return Plan(**wanted)  # type: ignore[arg-type]
    except ValueError as error:
        raise Refused(f"--parts: {error}") from error


def _alone(plan: Plan, directory: Path | None, ports: Mapping[str, int | None]) -> int:
    asked = {name: port for name, port in ports.items() if port}
    return _hold(Sandbox(directory.absolute() if directory else None, plan=plan, ports=asked))


def _hold(world: Sandbox, tell: int = -1) -> int:
    """Until it is interrupted, or a part ends by itself."""
    end_like_ctrl_c()
    try:
        with world:
            _say(world.reach(), world.environment())
            if tell < 0:
                typer.echo("Ctrl-C ends it.")
            elif not let_go(tell, DONE, world.logs / "sandbox.log"):
                return DONE
            _watch(world)
    except KeyboardInterrupt:
        return DONE
    except (NoPort, DirectoryInUse) as error:
        raise Refused(str(error)) from error
    except SandboxError as error:
        raise Failed(str(error)) from error
    return DONE


def _watch(world: Sandbox) -> None:
    while True:
        world.check()
        time.sleep(LOOK_SECONDS)


def _say(reach: Mapping[str, str], environment: Mapping[str, str]) -> None:
    for name, where in reach.items():
        typer.echo(f"{name:<26} {where}")
    for name, value in environment.items():
        typer.echo(f"export {name}={value}")


def _runs(owner: int) -> bool:
    """It let go of the directory, and goes on for a moment. One that nobody has buried yet has ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{owner}/status").read_text()
    except OSError:
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
