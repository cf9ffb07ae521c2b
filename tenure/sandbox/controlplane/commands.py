"""Command lines and files of the control plane's components, for `kubernetes.py`.

They are tuned for one small machine: no leader election, no fsync unless the state is kept, high client rate limits.
The node monitor removes the not-ready taint shortly after a Node becomes Ready. `lease_seconds` scales what
every Node costs: kwok renews its Lease four times in this time, and the monitor reads it 160 times.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tenure.sandbox.certificates import Certificates
from tenure.sandbox.controlplane import Binaries
from tenure.sandbox.kube_client import write_kubeconfig

COMPONENTS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok-nodes", "kwok-pods")

SERVICE_RANGE = "10.100.0.0/16"
"""The range of EKS, and of eks:DescribeCluster of the AWS stand-in."""
POD_RANGE = "10.244.0.1/16"
RATE = 5000
"""Client rate limit of the components in requests per second; never reached on one machine."""

MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1, 10
"""Longest delay before kube-scheduler tries an unschedulable pod again: its minimum and its default."""
LEASE_SECONDS = 40
"""The default of kubelets. The node monitor then updates not-ready taints every 250 ms. The 5 s of real clusters would
only cost time."""
_MONITORED_PER_LEASE = 160
_GRACE_FACTOR = 1.25
"""Grace period of the node monitor, in multiples of the Lease; 50 s by default."""
RUNS_PODS = "sandbox.tenure.sh/runs-pods"
KUBELET = "sandbox.tenure.sh/kubelet"
"""Label on a Node: `record_progress` lets its Lease lapse; Kubernetes finds the node Unknown after its grace period
(50 s)."""

UNUSED_CONTROLLERS = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "horizontal-pod-autoscaler-controller",
    "storageversion-garbage-collector-controller",
    "ttl-controller",
)


ETCD_QUOTA_BYTES = 8 << 30
"""etcd's default of 2 GiB rejects writes with about 100,000 NodeClaims."""
EVICTION_REQUESTS = ("--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true")


@dataclass(frozen=True)
class Layout:
    """Files and ports of one control plane."""

    folder: Path
    certificates: Certificates
    ports: Mapping[str, int]
    binaries: Binaries
    kubeconfig: Path
    durable: bool
    lease_seconds: int = LEASE_SECONDS
    eviction_requests: bool = False
    quick: bool = False
    watch_cache: bool = True

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    @property
    def scheduler_config(self) -> Path:
        return self.folder / "scheduler.yaml"

    def write_files(self, token: str, server: str) -> None:
        self.tokens.touch(mode=0o600)
        self.tokens.write_text(f'{token},sandbox-admin,sandbox-admin,"system:masters"\n')
        write_kubeconfig(self.kubeconfig, server=server, token=token, authority=self.certificates.authority)
        backoff = MIN_BACKOFF_SECONDS if self.quick else MAX_BACKOFF_SECONDS
        self.scheduler_config.write_text(_SCHEDULER.format(kubeconfig=self.kubeconfig, rate=RATE, backoff=backoff))

    def health_url(self, name: str) -> str:
        match name:
            case "etcd":
                return f"http://127.0.0.1:{self.ports['etcd']}/health"
            case "kube-apiserver":
                return f"https://127.0.0.1:{self.ports['apiserver']}/readyz"
            case "kwok-nodes" | "kwok-pods":
                return f"http://127.0.0.1:{self.ports[name]}/healthz"
            case _:
                return f"https://127.0.0.1:{self.ports[name.removeprefix('kube-')]}/healthz"


_SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: "{kubeconfig}", qps: {rate}, burst: {rate}}}
podMaxBackoffSeconds: {backoff}
enableProfiling: false
"""


def command_of(name: str, layout: Layout) -> list[str]:
    """The command line of a component."""
    match name:
        case "etcd":
            return _etcd(layout)
        case "kube-apiserver":
            return _apiserver(layout)
        case "kube-scheduler":
            return _scheduler(layout)
        case "kube-controller-manager":
            return _controller_manager(layout)
        case "kwok-nodes":
            return _kwok(layout, name, "nodes.yaml", f"{KUBELET}!=stopped", layout.lease_seconds)
        case "kwok-pods":
            return _kwok(layout, name, "pods.yaml", f"{RUNS_PODS}=true,{KUBELET}!=stopped", 0)
        case _:
            raise ValueError(f"unknown component {name}")


def _etcd(layout: Layout) -> list[str]:
    client, peer = (f"http://127.0.0.1:{layout.ports[port]}" for port in ("etcd", "etcd-peer"))
    return [
        str(layout.binaries["etcd"]),
        "--name=sandbox",
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=sandbox={peer}",
        "--log-level=warn",
        f"--quota-backend-bytes={ETCD_QUOTA_BYTES}",
        *([] if layout.durable else ["--unsafe-no-fsync=true"]),
    ]


def _apiserver(layout: Layout) -> list[str]:
    files = layout.certificates
    return [
        str(layout.binaries["kube-apiserver"]),
        f"--etcd-servers=http://127.0.0.1:{layout.ports['etcd']}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports['apiserver']}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--tls-cert-file={files.serving_certificate}",
        f"--tls-private-key-file={files.serving_key}",
        f"--client-ca-file={files.authority}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={files.service_account_key}",
        f"--service-account-key-file={files.service_account_public}",
        "--allow-privileged=true",
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
        "--profiling=false",
        *(EVICTION_REQUESTS if layout.eviction_requests else ()),
        *(() if layout.watch_cache else ("--watch-cache=false",)),
    ]


def _scheduler(layout: Layout) -> list[str]:
    return [
        str(layout.binaries["kube-scheduler"]),
        f"--config={layout.scheduler_config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports['scheduler']}",
        f"--cert-dir={layout.folder / 'scheduler'}",
        "--authentication-skip-lookup=true",
    ]


def _controller_manager(layout: Layout) -> list[str]:
    return [
        str(layout.binaries["kube-controller-manager"]),
        f"--kubeconfig={layout.kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports['controller-manager']}",
        f"--cert-dir={layout.folder / 'controller-manager'}",
        "--authentication-skip-lookup=true",
        "--leader-elect=false",
        f"--root-ca-file={layout.certificates.authority}",
        f"--service-account-private-key-file={layout.certificates.service_account_key}",
        f"--controllers=*,{','.join(f'-{name}' for name in UNUSED_CONTROLLERS)}",
        f"--node-monitor-period={1000 * layout.lease_seconds // _MONITORED_PER_LEASE}ms",
        f"--node-monitor-grace-period={_GRACE_FACTOR * layout.lease_seconds:.0f}s",
        f"--kube-api-qps={RATE}",
        f"--kube-api-burst={RATE}",
        "--concurrent-gc-syncs=10",
        "--profiling=false",
    ]


def _kwok(layout: Layout, name: str, stages: str, nodes: str, lease_seconds: int) -> list[str]:
    with resources.as_file(resources.files("tenure.sandbox") / "stages" / stages) as path:
        config = Path(path)
    return [
        str(layout.binaries["kwok"]),
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={config}",
        f"--manage-nodes-with-label-selector={nodes}",
        f"--node-lease-duration-seconds={lease_seconds}",
        f"--server-address=127.0.0.1:{layout.ports[name]}",
        f"--cidr={POD_RANGE}",
        "--node-ip=",
    ]
