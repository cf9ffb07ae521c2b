"""`tenure sandbox`: the sandbox on this machine, or one part of it.

`up` starts all parts and keeps them running until Ctrl-C, or in the background with `--detach`. `status`, `scale` and
`down` find the sandbox by its directory. `aws`, `kubernetes`, `temporal` and `nodes` start one part, for any other
client or controller.
"""

import os
import shlex
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tenure.cli.command import CommandGroup, command
from tenure.cli.exit_codes import DONE, FAILED, CommandFailed, UsageError, end_like_ctrl_c
from tenure.cli.output import Output, Result, message_result
from tenure.cli.sandbox.background import detach_from_parent, run_in_background, tenure_command
from tenure.cli.sandbox.worker_process import RBAC, aws_arguments
from tenure.kube.client.client import MERGE_PATCH, KubeClient, connect
from tenure.model.errors import NotFound
from tenure.sandbox.controlplane.versions import DEFAULT_MINOR, SELECTED, Minor
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import DirectoryInUse, NoPort, SandboxError
from tenure.sandbox.processes import is_alive
from tenure.sandbox.spec import CRDS, PARTS, Plan
from tenure.sandbox.state_file import Record, owner_of

_EVERY_PART = ",".join(PARTS)
SECONDS_TO_STOP = 30.0
CHECK_INTERVAL_SECONDS = 0.5
POLL_INTERVAL_SECONDS = 0.05

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Directory = Annotated[Path | None, typer.Option("--dir", help="Directory for state and logs.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Port (default: a free port).")]
Retain = Annotated[bool, typer.Option("--keep", help="Keep the state; a later start with the same --dir restores it.")]
Detach = Annotated[bool, typer.Option("--detach", help="Run in the background.")]
Parts = Annotated[str, typer.Option(help="Parts to start, separated by commas.")]
ClusterName = Annotated[str, typer.Option(envvar="CLUSTER_NAME", help="Cluster name.")]
BootSeconds = Annotated[float, typer.Option(min=0, help="Seconds from a running instance to its Node.")]
KubernetesVersion = Annotated[Minor, typer.Option("--kubernetes", envvar=SELECTED, help="Kubernetes version.")]
TemporalNamespace = Annotated[str, typer.Option(envvar="TEMPORAL_NAMESPACE", help="Temporal namespace.")]
ClusterConfig = Annotated[
    Path, typer.Option(envvar="KUBECONFIG", exists=True, help="Kubeconfig of the cluster to join.")
]
AwsEndpoint = Annotated[str, typer.Option(envvar="AWS_ENDPOINT_URL", help="AWS endpoint that has the instances.")]
More = Annotated[list[str] | None, typer.Argument(help="Arguments for the part, after `--`.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the Deployment.")]
Replicas = Annotated[int, typer.Argument(min=0, help="Number of replicas.")]
ExitCodeFd = Annotated[int, typer.Option(hidden=True)]


@app.callback()
def sandbox() -> None:
    """Run a Kubernetes cluster, Temporal and a simulated AWS on this machine."""


@app.command()
def up(
    directory: Directory = None,
    retain: Retain = False,
    detach: Detach = False,
    parts: Parts = _EVERY_PART,
    cluster_name: ClusterName = Plan.cluster_name,
    boot_seconds: BootSeconds = 2.0,
    version: KubernetesVersion = DEFAULT_MINOR,
    output: Output = "table",
    tell: ExitCodeFd = -1,
) -> int:
    """Start the parts and print their addresses."""
    directory = (directory or default_directory()).absolute()
    if detach and tell < 0:
        flags = [f"--dir={directory}", f"--parts={parts}", f"--cluster-name={cluster_name}"]
        flags += [f"--boot-seconds={boot_seconds}", f"--kubernetes={version}", "--detach", f"--output={output}"]
        flags += ["--keep"] if retain else []
        return run_in_background(tenure_command("sandbox", "up", *flags))
    plan = build_plan(
        parts=tuple(filter(None, parts.split(","))),
        retain_data=retain,
        cluster_name=cluster_name,
        node_arguments=(f"--boot-seconds={boot_seconds:g}",),
        aws_arguments=aws_arguments(),
        manifests=(CRDS, RBAC),
        kubernetes=version,
    )
    return _run_until_stopped(Sandbox(directory, plan=plan, reports_progress=True), output, tell)


@app.command()
@command
def status(directory: Directory = None) -> Result:
    """List the running parts and their addresses. Exit code 1 if none runs or one has exited."""
    directory = find_directory(directory)
    record = _record_in(directory)
    if record is None:
        return message_result(_not_running_message(directory), FAILED)
    parts = {name: {"pid": pid, "runs": is_alive(pid)} for name, pid in record.processes.items()}
    lines = [f"{name:<26} {'runs' if one['runs'] else 'EXITED'}  pid {one['pid']}" for name, one in parts.items()]
    data = {"processes": parts, "reach": dict(record.reach), "environment": dict(record.environment)}
    code = DONE if all(one["runs"] for one in parts.values()) else FAILED
    return Result(data, [*lines, *_format_lines(record.reach, record.environment)], code)


@app.command()
@command
async def scale(
    deployment: str, replicas: Replicas, directory: Directory = None, namespace: Namespace = "default"
) -> Result:
    """Scale a Deployment in the sandbox's cluster, so that nodes are launched or deleted."""
    directory = find_directory(directory)
    record = _record_in(directory)
    if record is None:
        raise UsageError(f"sandbox scale: {_not_running_message(directory)}")
    if "KUBECONFIG" not in record.environment:
        raise UsageError(f"sandbox scale: the sandbox in {directory} has no cluster; `tenure sandbox up` starts one")
    client = await connect(record.environment["KUBECONFIG"])
    try:
        await _patch_scale(client, f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment, replicas)
    finally:
        await client.close()
    message = f"Deployment {namespace}/{deployment} scaled to {replicas} replicas; `tenure get` lists the nodes"
    return message_result(message, deployment=deployment, namespace=namespace, replicas=replicas)


async def _patch_scale(client: KubeClient, collection_path: str, deployment: str, replicas: int) -> None:
    body = {"spec": {"replicas": replicas}}
    try:
        await client.request("PATCH", f"{collection_path}/{deployment}/scale", body=body, content_type=MERGE_PATCH)
    except NotFound:
        found = await client.request("GET", collection_path)
        known = ", ".join(one["metadata"]["name"] for one in found["items"]) or "none"
        raise UsageError(f"sandbox scale {deployment}: no such Deployment in this namespace; found {known}") from None


@app.command()
@command
def down(directory: Directory = None) -> Result:
    """Stop a running sandbox."""
    directory = find_directory(directory)
    owner = owner_of(directory)
    if owner is None:
        return message_result(_not_running_message(directory))
    os.kill(owner, signal.SIGTERM)
    until = time.monotonic() + SECONDS_TO_STOP
    while owner_of(directory) == owner or _has_not_exited(owner):
        if time.monotonic() > until:
            raise CommandFailed(
                f"process {owner} did not stop within {SECONDS_TO_STOP:g} s; see {directory / 'logs'}, "
                f"and stop it with kill -9 {owner}"
            )
        time.sleep(POLL_INTERVAL_SECONDS)
    return message_result(f"stopped the sandbox in {directory}")


@app.command()
def aws(
    port: Port = None, directory: Directory = None, retain: Retain = False, more: More = None, output: Output = "table"
) -> int:
    """Start only the AWS stand-in."""
    plan = build_plan(parts=("aws",), retain_data=retain, aws_arguments=(*aws_arguments(), *(more or ())))
    return _run_single_part(plan, directory, {"aws": port}, output)


@app.command()
def kubernetes(
    port: Port = None,
    directory: Directory = None,
    retain: Retain = False,
    version: KubernetesVersion = DEFAULT_MINOR,
    output: Output = "table",
) -> int:
    """Start only a Kubernetes control plane with the CRDs. `--port` is the port of the API server."""
    plan = build_plan(parts=("kubernetes",), retain_data=retain, manifests=(CRDS, RBAC), kubernetes=version)
    return _run_single_part(plan, directory, {"apiserver": port}, output)


@app.command()
def temporal(
    port: Port = None,
    ui_port: Port = None,
    namespace: TemporalNamespace = "default",
    directory: Directory = None,
    retain: Retain = False,
    output: Output = "table",
) -> int:
    """Start only a Temporal dev server, with its UI and the search attributes."""
    plan = build_plan(parts=("temporal",), retain_data=retain, namespace=namespace)
    return _run_single_part(plan, directory, {"temporal": port, "temporal-ui": ui_port}, output)


@app.command()
def nodes(
    kubeconfig: ClusterConfig,
    aws_endpoint: AwsEndpoint,
    port: Port = None,
    directory: Directory = None,
    more: More = None,
    output: Output = "table",
) -> int:
    """Start only the node simulator, for any cluster and AWS endpoint."""
    plan = build_plan(
        parts=("nodes",), kubeconfig=kubeconfig.absolute(), aws_endpoint=aws_endpoint, node_arguments=tuple(more or ())
    )
    return _run_single_part(plan, directory, {"nodes": port}, output)


def default_directory() -> Path:
    """`tenure/sandbox` in the XDG state folder."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "tenure" / "sandbox"


def demo_directory() -> Path:
    """The directory of `tenure demo --keep`."""
    return default_directory().with_name("demo")


def find_directory(directory: Path | None) -> Path:
    """`directory` if given; else that of `up`, or of `demo --keep` if only that runs."""
    if directory:
        return directory
    candidates = (default_directory(), demo_directory())
    return next((one for one in candidates if owner_of(one) is not None), candidates[0])


def build_plan(**options: object) -> Plan:
    """Raises `UsageError` for an invalid plan."""
    try:
        return Plan(**options)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"--parts: {error}") from error


def _record_in(directory: Path) -> Record | None:
    """None if no sandbox runs: a stopped sandbox leaves its record behind."""
    return Record.read(directory) if owner_of(directory) is not None else None


def _not_running_message(directory: Path) -> str:
    return f"no sandbox runs in {directory}; start one: tenure sandbox up --dir {directory}"


def _run_single_part(plan: Plan, directory: Path | None, ports: Mapping[str, int | None], output: str) -> int:
    chosen_ports = {name: port for name, port in ports.items() if port}
    return _run_until_stopped(
        Sandbox(directory.absolute() if directory else None, plan=plan, ports=chosen_ports), output
    )


def _run_until_stopped(sandbox: Sandbox, output: str, exit_code_fd: int = -1) -> int:
    """Runs until an interrupt, or until a part exits."""
    received_signals = end_like_ctrl_c()
    try:
        with sandbox:
            reach, environment = sandbox.locations(), sandbox.environment()
            lines = [*_format_lines(reach, environment), *(["Stop with Ctrl-C."] if exit_code_fd < 0 else [])]
            Result({"reach": reach, "environment": environment}, lines).print(output)
            if exit_code_fd >= 0 and not detach_from_parent(exit_code_fd, DONE, sandbox.logs / "sandbox.log"):
                return DONE
            while not received_signals:
                sandbox.check()
                time.sleep(CHECK_INTERVAL_SECONDS)
    except KeyboardInterrupt:
        pass
    except (NoPort, DirectoryInUse) as error:
        raise UsageError(str(error)) from error
    except SandboxError as error:
        raise CommandFailed(str(error)) from error
    return DONE


def _format_lines(reach: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Addresses, then `export` lines for a shell."""
    addresses = [f"{name:<26} {where}" for name, where in reach.items()]
    return [*addresses, *format_exports(environment)]


def format_exports(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]


def _has_not_exited(owner: int) -> bool:
    """A process may still run briefly after it released the directory. A zombie has exited."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{owner}/status").read_text()
    except OSError:
        return False
