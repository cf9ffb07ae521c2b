"""Our own parts as child processes: the AWS stand-in and the node simulator."""

import base64
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenure.sandbox.processes import Process, http_ok

ROOT = Path(__file__).parents[2]


def aws_part(
    log: Path,
    port: int,
    *,
    cluster_name: str,
    region: str,
    cluster_endpoint: str | None = None,
    authority: Path | None = None,
    state: Path | None = None,
    arguments: Sequence[str] = (),
) -> Process:
    """The AWS stand-in, with the cluster for eks:DescribeCluster."""
    command = [sys.executable, "-m", "tenure.sandbox.aws", "--host=127.0.0.1", f"--port={port}"]
    command += [f"--cluster-name={cluster_name}", f"--region={region}"]
    if cluster_endpoint and authority:
        encoded = base64.b64encode(authority.read_bytes()).decode()
        command += [f"--cluster-endpoint={cluster_endpoint}", f"--cluster-ca={encoded}"]
    if state:
        command.append(f"--state-dir={state}")
    health = http_ok(f"http://127.0.0.1:{port}/_sim/health")
    return Process("aws", [*command, *arguments], log=log, health=health, environment=_child_environment())


def nodes_part(
    log: Path, port: int, *, kubeconfig: Path, aws_endpoint: str, region: str, arguments: Sequence[str] = ()
) -> Process:
    """The node simulator for the running instances of the stand-in."""
    command = [sys.executable, "-m", "tenure.sandbox.nodes", f"--kubeconfig={kubeconfig}"]
    command += [f"--aws-endpoint={aws_endpoint}", f"--region={region}", "--host=127.0.0.1", f"--port={port}"]
    health = http_ok(f"http://127.0.0.1:{port}/_sim/health")
    return Process("nodes", [*command, *arguments], log=log, health=health, environment=_child_environment())


def _child_environment() -> Mapping[str, str]:
    found = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{found}" if found else str(ROOT)}
