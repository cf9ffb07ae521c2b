"""`tenure sandbox`: the world on this machine, or one part of it, to try things on.

`up` starts all parts and holds them until Ctrl-C, or in the background with `--detach`; `status`, `scale` and `down`
find it by its directory. `aws`, `kubernetes`, `temporal` and `nodes` start one part on a port of your choice, so that
any other client or controller can be put in its place.

A Deployment's number of pods, set as `kubectl scale` does it: for `tenure sandbox scale`, which needs no kubectl.
"""

import asyncio
import os
import shlex
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tenure.cli.exit_codes import DONE, FAILED, CommandFailed, UsageError, end_like_ctrl_c
from tenure.cli.output import Output, print_message, print_result
from tenure.cli.sandbox.background import detach_from_parent, run_in_background, tenure_command
from tenure.cli.sandbox.worker_process import RBAC, aws_arguments
from tenure.kube.client.client import MERGE_PATCH, KubeClient, connect
from tenure.model.errors import Fault, NotFound
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import DirectoryInUse, NoPort, SandboxError
from tenure.sandbox.spec import CRDS, PARTS, Plan
from tenure.sandbox.state_file import Record, owner_of


async def scale_deployment(kubeconfig: str, namespace: str, deployment: str, replicas: int) -> None:
    """Raises `Refused` where there is no such Deployment, or the API server says no."""
    collection_path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    try:
        client = await connect(kubeconfig)
        try:
            await _patch_scale(client, collection_path, deployment, replicas)
        finally:
            await client.close()
    except Fault as fault:
        raise UsageError(f"sandbox scale: {fault.message}; see `tenure sandbox status`") from fault


async def _patch_scale(client: KubeClient, collection_path: str, deployment: str, replicas: int) -> None:
    body = {"spec": {"replicas": replicas}}
    try:
        await client.request("PATCH", f"{collection_path}/{deployment}/scale", body=body, content_type=MERGE_PATCH)
    except NotFound:
        found = await client.request("GET", collection_path)
        known = ", ".join(one["metadata"]["name"] for one in found["items"]) or "none"
        raise UsageError(
            f"sandbox scale {deployment}: no such Deployment in this namespace; there are {known}"
        ) from None


SECONDS_TO_STOP = 30.0
CHECK_INTERVAL_SECONDS = 0.5
POLL_INTERVAL_SECONDS = 0.05

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Directory = Annotated[Path | None, typer.Option("--dir", help="Where its state and logs are.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="A free one when it is not given.")]
Retain = Annotated[bool, typer.Option("--keep", help="Keep the state; the same --dir opens it again.")]
More = Annotated[list[str] | None, typer.Argument(help="Passed on to the part, after `--`.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Of the Deployment.")]
Replicas = Annotated[int, typer.Argument(min=0)]
ExitCodeFd = Annotated[int, typer.Option(hidden=True)]


@app.callback()
def sandbox() -> None:
    """A cluster, AWS and Temporal on this machine, all real parts except AWS."""


@app.command()
def up(
    directory: Directory = None,
    retain: Retain = False,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it running in the background.")] = False,
    parts: Annotated[str, typer.Option(help="Which, with commas between them.")] = ",".join(PARTS),
    cluster_name: Annotated[str, typer.Option(envvar="CLUSTER_NAME")] = Plan.cluster_name,
    boot_seconds: Annotated[float, typer.Option(min=0, help="From a running instance to its Node.")] = 2.0,
    output: Output = "table",
    tell: ExitCodeFd = -1,
) -> int:
    """Start the parts and say how to reach them."""
    directory = (directory or default_directory()).absolute()
    if detach and tell < 0:
        flags = [f"--dir={directory}", f"--parts={parts}", f"--cluster-name={cluster_name}"]
        flags += [f"--boot-seconds={boot_seconds}", "--detach", f"--output={output}"]
        flags += ["--keep"] if retain else []
        return run_in_background(tenure_command("sandbox", "up", *flags))
    selected_parts = tuple(filter(None, parts.split(",")))
    plan = build_plan(
        parts=selected_parts,
        retain_data=retain,
        cluster_name=cluster_name,
        node_arguments=(f"--boot-seconds={boot_seconds:g}",),
        aws_arguments=aws_arguments(),
        manifests=(CRDS, RBAC),
    )
    return _run_until_stopped(Sandbox(directory, plan=plan), output, tell)


@app.command()
def status(directory: Directory = None, output: Output = "table") -> int:
    """Which parts run, and how to reach them. Exit code 1 when none does."""
    directory = find_directory(directory)
    record = _record_in(directory)
    if record is None:
        print_message(output, _not_running_message(directory))
        return FAILED
    parts = {name: {"pid": pid, "runs": _is_alive(pid)} for name, pid in record.processes.items()}
    lines = [f"{name:<26} {'runs' if one['runs'] else 'ENDED'}  pid {one['pid']}" for name, one in parts.items()]
    data = {"processes": parts, "reach": dict(record.reach), "environment": dict(record.environment)}
    print_result(output, data, *lines, *_format_lines(record.reach, record.environment))
    return DONE if all(one["runs"] for one in parts.values()) else FAILED


@app.command()
def scale(
    deployment: str,
    replicas: Replicas,
    directory: Directory = None,
    namespace: Namespace = "default",
    output: Output = "table",
) -> None:
    """Set how many pods a Deployment of the sandbox's cluster has, so that nodes come or go."""
    directory = find_directory(directory)
    record = _record_in(directory)
    if record is None:
        raise UsageError(f"sandbox scale: {_not_running_message(directory)}")
    if "KUBECONFIG" not in record.environment:
        raise UsageError(f"sandbox scale: what runs in {directory} has no cluster; `tenure sandbox up` starts one")
    asyncio.run(scale_deployment(record.environment["KUBECONFIG"], namespace, deployment, replicas))
    message = f"Deployment {namespace}/{deployment} is to have {replicas} pods; `tenure get` lists the nodes"
    print_message(output, message, deployment=deployment, namespace=namespace, replicas=replicas)


@app.command()
def down(directory: Directory = None, output: Output = "table") -> int:
    """Stop it, wherever it was started."""
    directory = find_directory(directory)
    owner = owner_of(directory)
    if owner is None:
        print_message(output, _not_running_message(directory))
        return DONE
    os.kill(owner, signal.SIGTERM)
    until = time.monotonic() + SECONDS_TO_STOP
    while owner_of(directory) == owner:
        if time.monotonic() > until:
            raise CommandFailed(
                f"process {owner} did not stop within {SECONDS_TO_STOP:g} s; see {directory / 'logs'}, "
                f"and end it with kill -9 {owner}"
            )
        time.sleep(POLL_INTERVAL_SECONDS)
    while time.monotonic() < until and _has_not_exited(owner):
        time.sleep(POLL_INTERVAL_SECONDS)
    print_message(output, f"stopped what ran in {directory}")
    return DONE


@app.command()
def aws(
    port: Port = None,
    directory: Directory = None,
    retain: Retain = False,
    more: More = None,
    output: Output = "table",
) -> int:
    """The AWS stand-in alone."""
    plan = build_plan(parts=("aws",), retain_data=retain, aws_arguments=(*aws_arguments(), *(more or ())))
    return _run_single_part(plan, directory, {"aws": port}, output)


@app.command()
def kubernetes(port: Port = None, directory: Directory = None, retain: Retain = False, output: Output = "table") -> int:
    """A Kubernetes control plane alone, with the CRDs. `--port` is the API server's."""
    plan = build_plan(parts=("kubernetes",), retain_data=retain, manifests=(CRDS, RBAC))
    return _run_single_part(plan, directory, {"apiserver": port}, output)


@app.command()
def temporal(
    port: Port = None,
    ui_port: Port = None,
    namespace: Annotated[str, typer.Option(envvar="TEMPORAL_NAMESPACE")] = "default",
    directory: Directory = None,
    retain: Retain = False,
    output: Output = "table",
) -> int:
    """A Temporal dev server alone, with its UI and the search attributes."""
    plan = build_plan(parts=("temporal",), retain_data=retain, namespace=namespace)
    return _run_single_part(plan, directory, {"temporal": port, "temporal-ui": ui_port}, output)


@app.command()
def nodes(
    kubeconfig: Annotated[Path, typer.Option(envvar="KUBECONFIG", exists=True, help="Of the cluster to join.")],
    aws_endpoint: Annotated[str, typer.Option(envvar="AWS_ENDPOINT_URL", help="Where instances are to be seen.")],
    port: Port = None,
    directory: Directory = None,
    more: More = None,
    output: Output = "table",
) -> int:
    """The node simulator alone, between a cluster and an AWS of your choice."""
    plan = build_plan(
        parts=("nodes",), kubeconfig=kubeconfig.absolute(), aws_endpoint=aws_endpoint, node_arguments=tuple(more or ())
    )
    return _run_single_part(plan, directory, {"nodes": port}, output)


def default_directory() -> Path:
    """`tenure/sandbox` in the XDG state folder."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "tenure" / "sandbox"


def demo_directory() -> Path:
    """Where `tenure demo --keep` leaves its own."""
    return default_directory().with_name("demo")


def find_directory(directory: Path | None) -> Path:
    """The one that was given; else that of `up`, or of `demo --keep` where that alone runs."""
    if directory:
        return directory
    candidates = (default_directory(), demo_directory())
    return next((one for one in candidates if owner_of(one) is not None), candidates[0])


def build_plan(**options: object) -> Plan:
    """Raises `Refused` for a plan that makes no sense."""
    try:
        return Plan(**options)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"--parts: {error}") from error


def _record_in(directory: Path) -> Record | None:
    """Of what runs there; what has ended leaves one too."""
    return Record.read(directory) if owner_of(directory) is not None else None


def _not_running_message(directory: Path) -> str:
    return f"no sandbox runs in {directory}; start one: tenure sandbox up --dir {directory}"


def _run_single_part(plan: Plan, directory: Path | None, ports: Mapping[str, int | None], output: str) -> int:
    chosen_ports = {name: port for name, port in ports.items() if port}
    return _run_until_stopped(
        Sandbox(directory.absolute() if directory else None, plan=plan, ports=chosen_ports), output
    )


def _run_until_stopped(sandbox: Sandbox, output: str, exit_code_fd: int = -1) -> int:
    """Until it is interrupted, or a part ends by itself."""
    end_like_ctrl_c()
    try:
        with sandbox:
            reach, environment = sandbox.locations(), sandbox.environment()
            lines = [*_format_lines(reach, environment), *(["Ctrl-C ends it."] if exit_code_fd < 0 else [])]
            print_result(output, {"reach": reach, "environment": environment}, *lines)
            if exit_code_fd >= 0 and not detach_from_parent(exit_code_fd, DONE, sandbox.logs / "sandbox.log"):
                return DONE
            _watch_parts(sandbox)
    except KeyboardInterrupt:
        return DONE
    except (NoPort, DirectoryInUse) as error:
        raise UsageError(str(error)) from error
    except SandboxError as error:
        raise CommandFailed(str(error)) from error
    return DONE


def _watch_parts(sandbox: Sandbox) -> None:
    while True:
        sandbox.check()
        time.sleep(CHECK_INTERVAL_SECONDS)


def _format_lines(reach: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """What a shell takes comes last."""
    addresses = [f"{name:<26} {where}" for name, where in reach.items()]
    return [*addresses, *format_exports(environment)]


def format_exports(environment: Mapping[str, str]) -> list[str]:
    """Lines for a shell."""
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]


def _has_not_exited(owner: int) -> bool:
    """It let go of the directory, and goes on for a moment. One that nobody has buried yet has ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{owner}/status").read_text()
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
