"""Settings of the AWS adapters; `tenure/worker/settings.py` fills them from its own settings."""

from tenure.apis.feature_gates import FeatureGate
from tenure.model.base import Value


class AwsSettings(Value):
    """The cluster and the region. Empty fields are read from eks:DescribeCluster when needed."""

    cluster_name: str
    region: str
    cluster_endpoint: str = ""
    cluster_ca_bundle: str = ""
    """Base64 of the PEM, as EKS returns it."""
    kubernetes_version: str = ""
    """Major and minor, such as 1.34."""
    cluster_dns: str = ""
    """Address of kube-dns. An IPv6 address means an IPv6 cluster."""
    endpoint_url: str = ""
    """Endpoint of all AWS services. If empty, boto3 reads AWS_ENDPOINT_URL."""
    vm_memory_overhead_percent: float = 0.075
    reserved_enis: int = 0
    isolated_vpc: bool = False
    ami_refresh_seconds: float = 60
    subnet_refresh_seconds: float = 60
    security_group_refresh_seconds: float = 60
    """Seconds for which resolved selectors are cached."""
    zonal_shift: bool = False
    feature_gates: dict[str, bool] = {}
    disable_dry_run: bool = False
    pool_size: int = 16
    """Number of threads and of connections per AWS service."""

    def is_gate_enabled(self, gate: FeatureGate) -> bool:
        return self.feature_gates.get(gate, False)

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.cluster_dns
