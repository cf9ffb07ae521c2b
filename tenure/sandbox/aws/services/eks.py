"""EKS clusters: the initial one, with all data for user data of nodes and for the start of a controller, and those that
clients create, which moto stores."""

from __future__ import annotations

from typing import Any

from moto.eks.models import eks_backends

from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.settings import SimSettings
from tenure.sandbox.aws.wire.responses import AwsError, Response, json_response

CREATED_AT = 1735689600.0
"""Of the initial cluster and its access entries."""
MAX_RESULTS = 100
"""The default of ListClusters, and its limit."""


def create_cluster(fake_aws: FakeAws, call: AwsCall) -> Response:
    """Raises ResourceInUseException for the name of a cluster that exists."""
    name = call.http.json().get("name")
    if name == fake_aws.settings.cluster_name:
        raise AwsError("ResourceInUseException", f"Cluster already exists with name: {name}", 409)
    return fake_aws.moto.call(call.http, call.service)


def describe_cluster(fake_aws: FakeAws, call: AwsCall) -> Response:
    """ResourceNotFoundException for an unknown name is moto's."""
    if call.path_argument != fake_aws.settings.cluster_name:
        return fake_aws.moto.call(call.http, call.service)
    return json_response({"cluster": cluster_view(fake_aws)})


def list_clusters(fake_aws: FakeAws, call: AwsCall) -> Response:
    """The token is the number of clusters on the pages before."""
    settings = fake_aws.settings
    created = eks_backends[settings.account][settings.region].clusters
    start = int(call.form.get("nextToken", 0))
    end = start + int(call.form.get("maxResults", MAX_RESULTS))
    names = [settings.cluster_name, *created]
    return json_response({"clusters": names[start:end]} | ({"nextToken": str(end)} if end < len(names) else {}))


def cluster_view(fake_aws: FakeAws) -> dict[str, Any]:
    settings, seeds = fake_aws.settings, fake_aws.default_environment.network
    mine = [s for s in seeds.subnets() if seeds.tags(s.id).get("karpenter.sh/discovery") == settings.cluster_name]
    groups = seeds.backend.groups.get(mine[0].vpc_id, {}).values() if mine else ()
    tagged = [g.id for g in groups if seeds.tags(g.id).get("karpenter.sh/discovery") == settings.cluster_name]
    return {
        "name": settings.cluster_name,
        "arn": settings.cluster_arn(),
        "createdAt": CREATED_AT,
        "version": settings.cluster_version,
        "platformVersion": "eks.12",
        "status": "ACTIVE",
        "endpoint": settings.cluster_endpoint,
        "roleArn": f"arn:aws:iam::{settings.account}:role/eks-cluster-{settings.cluster_name}",
        "certificateAuthority": {"data": settings.cluster_ca},
        "resourcesVpcConfig": {
            "subnetIds": sorted(s.id for s in mine),
            "securityGroupIds": tagged,
            "clusterSecurityGroupId": tagged[0] if tagged else None,
            "vpcId": mine[0].vpc_id if mine else None,
            "endpointPublicAccess": True,
            "endpointPrivateAccess": settings.endpoint_private_access,
            "publicAccessCidrs": [settings.public_access_cidr],
        },
        "kubernetesNetworkConfig": _network_config(settings),
        "identity": {"oidc": {"issuer": f"https://oidc.eks.{settings.region}.amazonaws.com/id/STANDIN"}},
        "logging": {"clusterLogging": [{"types": ["api"], "enabled": False}]},
        "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
        "upgradePolicy": {"supportType": "EXTENDED"},
        "zonalShiftConfig": {"enabled": True},
        "health": {"issues": []},
        "tags": {},
    }


def _network_config(settings: SimSettings) -> dict[str, Any]:
    """A cluster has a service range of only one IP family."""
    ipv6 = settings.ip_family == "ipv6"
    services = {"serviceIpv6Cidr": settings.service_ipv6_cidr} if ipv6 else {"serviceIpv4Cidr": settings.service_cidr}
    return services | {"ipFamily": settings.ip_family, "elasticLoadBalancing": {"enabled": False}}
