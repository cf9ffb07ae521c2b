"""Settings of the AWS stand-in: account, region, cluster and delays."""

from __future__ import annotations

from dataclasses import dataclass

# The access key of the worker in the sandbox; `--policy` binds it.
WORKER_KEY = "AKIATENUREWORKER0001"
DEFAULT_CA = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCnN0YW5kLWluCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"


@dataclass
class SimSettings:
    """Delays are seconds on the stand-in's clock. Endpoint and certificate are for eks:DescribeCluster.

    Visibility delays: how long EC2 does not know a new instance, launch template or instance profile.
    """

    account: str = "123456789012"
    region: str = "us-west-2"
    cluster_name: str = "demo"
    cluster_endpoint: str = "https://cluster.demo.invalid"
    cluster_ca: str = DEFAULT_CA
    cluster_version: str = "1.34"
    endpoint_private_access: bool = True
    public_access_cidr: str = "0.0.0.0/0"
    service_cidr: str = "10.100.0.0/16"
    ip_family: str = "ipv4"
    service_ipv6_cidr: str = "fd7d:9f7a:1::/108"
    pending_seconds: float = 1.0
    shutting_down_seconds: float = 2.0
    stopping_seconds: float = 2.0
    terminated_visible_seconds: float = 60.0
    visibility_seconds: float = 0.0
    template_visibility_seconds: float = 0.0
    profile_visibility_seconds: float = 0.0
    spot_service_linked_role: bool = True
    zonal_shift_registered: bool = True
    zonal_autoshift: bool = False
    state_change_events: bool = False
    clock_scale: float = 1.0

    def node_role(self) -> str:
        return f"KarpenterNodeRole-{self.cluster_name}"

    def controller_role(self) -> str:
        """The role of the worker's access key."""
        return f"KarpenterControllerRole-{self.cluster_name}"

    def cluster_arn(self) -> str:
        return f"arn:aws:eks:{self.region}:{self.account}:cluster/{self.cluster_name}"
