"""The parts of a sandbox and their settings, which the caller of `environment.py` chooses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tenure.sandbox.controlplane.commands import LEASE_SECONDS
from tenure.sandbox.controlplane.tools import TEMPORAL
from tenure.sandbox.controlplane.versions import find_release, selected_minor
from tenure.sandbox.temporal.dev_server import REQUESTS_PER_SECOND
from workflows.search_attributes import ALL as SEARCH_ATTRIBUTES

Temporals = Literal["dev", "postgres"]
PARTS = ("temporal", "kubernetes", "aws", "nodes")
CRDS = Path(__file__).parents[2] / "deploy" / "crds"


@dataclass(frozen=True)
class Plan:
    """`manifests`: files or folders that are applied at start, in order. `retain_data`: keep the data of all parts.

    `examples/` select subnets by the default cluster name. Arguments for the AWS stand-in and the node simulator are
    passed through. `kubeconfig` and `aws_endpoint` are for nodes without these parts. `temporal`: the dev server, or a
    server version of `tools.py` with PostgreSQL, whose data is never kept. `encrypted`: encrypt payloads.
    `temporal_requests_per_second`: limit of the dev server.
    `kubernetes`: a minor version of `versions.py`; by default that of `TENURE_KUBERNETES`.
    `eviction_requests`: serve EvictionRequests, which Kubernetes 1.37 has as alpha, and run their controller.
    `lease_seconds`: duration of the Leases of Nodes; a longer one lets one machine host thousands of Nodes.
    `quick`: for few pods and no measurements: kube-scheduler tries a pod again after at most one second, and the dev
    server's timers may be shorter than a second.
    `watch_cache`: without it, the API server reads each list from etcd, and 100,000 NodeClaims fit into its memory.
    """

    parts: tuple[str, ...] = PARTS
    retain_data: bool = False
    manifests: tuple[Path, ...] = (CRDS,)
    cluster_name: str = "demo"
    region: str = "us-west-2"
    namespace: str = "default"
    temporal: Temporals = "dev"
    temporal_version: str = TEMPORAL
    encrypted: bool = False
    temporal_requests_per_second: int = REQUESTS_PER_SECOND
    search_attributes: Mapping[str, str] = field(default_factory=lambda: SEARCH_ATTRIBUTES)
    aws_arguments: tuple[str, ...] = ()
    node_arguments: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    aws_endpoint: str | None = None
    lease_seconds: int = LEASE_SECONDS
    kubernetes: str = field(default_factory=selected_minor)
    eviction_requests: bool = False
    quick: bool = False
    watch_cache: bool = True

    def __post_init__(self) -> None:
        if unknown := set(self.parts) - set(PARTS):
            raise ValueError(f"unknown part: {', '.join(sorted(unknown))} (expected {', '.join(PARTS)})")
        find_release(self.kubernetes)
        if self.retain_data and self.temporal != "dev":
            raise ValueError("the data of a Temporal server with PostgreSQL cannot be kept; use the dev server")
        if "nodes" in self.parts and not ("kubernetes" in self.parts or self.kubeconfig):
            raise ValueError("nodes: requires the part kubernetes or a kubeconfig")
        if "nodes" in self.parts and not ("aws" in self.parts or self.aws_endpoint):
            raise ValueError("nodes: requires the part aws or its endpoint")
