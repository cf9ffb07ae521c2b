"""Access entries of EKS clusters, which moto lacks: the IAM principals that a cluster's API server authenticates."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from moto.eks.models import eks_backends

from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.services.eks import CREATED_AT
from tenure.sandbox.aws.settings import SimSettings
from tenure.sandbox.aws.wire.responses import AwsError, Response, json_response

NODE_GROUPS: Final = ("system:nodes",)
_GROUPS: Final = {"EC2_LINUX": NODE_GROUPS, "EC2_WINDOWS": (*NODE_GROUPS, "eks:kube-proxy-windows")}
"""By type of the entry. EKS sets them, and the user's name, for types of nodes."""


def create(fake_aws: FakeAws, call: AwsCall) -> Response:
    """Raises ResourceInUseException for a principal that has an entry."""
    body: dict[str, Any] = call.http.json()
    entries, principal = _entries(fake_aws, call), str(body.get("principalArn", ""))
    if principal in entries:
        message = "The specified access entry resource is already in use on this cluster."
        raise AwsError("ResourceInUseException", message, 409)
    entries[principal] = build_entry(fake_aws.settings, call.path_argument, principal, body.get("type", "STANDARD"))
    return json_response({"accessEntry": entries[principal]})


def describe(fake_aws: FakeAws, call: AwsCall) -> Response:
    return json_response({"accessEntry": _find(fake_aws, call)})


def list_all(fake_aws: FakeAws, call: AwsCall) -> Response:
    """One page."""
    return json_response({"accessEntries": sorted(_entries(fake_aws, call))})


def delete(fake_aws: FakeAws, call: AwsCall) -> Response:
    del _entries(fake_aws, call)[_find(fake_aws, call)["principalArn"]]
    return json_response({})


def seed(fake_aws: FakeAws) -> None:
    """Only the entry of the initial node role. EKS creates it for the roles of managed node groups."""
    settings = fake_aws.settings
    principal = f"arn:aws:iam::{settings.account}:role/{settings.node_role()}"
    entry = build_entry(settings, settings.cluster_name, principal, "EC2_LINUX")
    fake_aws.access_entries.clear()
    fake_aws.access_entries[settings.cluster_name] = {principal: entry}


def build_entry(settings: SimSettings, cluster: str, principal: str, kind: str) -> dict[str, Any]:
    name = principal.rpartition("/")[2]
    arn = f"arn:aws:eks:{settings.region}:{settings.account}:access-entry/{cluster}/role/{settings.account}/{name}/1"
    return {
        "clusterName": cluster,
        "principalArn": principal,
        "accessEntryArn": arn,
        "type": kind,
        "kubernetesGroups": list(_GROUPS.get(kind, ())),
        "username": "system:node:{{EC2PrivateDNSName}}" if kind in _GROUPS else principal,
        "createdAt": CREATED_AT,
        "modifiedAt": CREATED_AT,
        "tags": {},
    }


def _entries(fake_aws: FakeAws, call: AwsCall) -> dict[str, dict[str, Any]]:
    """By principal. Raises ResourceNotFoundException for an unknown cluster."""
    settings, cluster = fake_aws.settings, call.path_argument
    if cluster != settings.cluster_name and cluster not in eks_backends[settings.account][settings.region].clusters:
        raise AwsError("ResourceNotFoundException", f"No cluster found for name: {cluster}.", 404)
    return fake_aws.access_entries.setdefault(cluster, {})


def _find(fake_aws: FakeAws, call: AwsCall) -> dict[str, Any]:
    principal = unquote(call.http.path.rpartition("/")[2])
    found = _entries(fake_aws, call).get(principal)
    if found is None:
        message = f"The specified principalArn could not be found: {principal}."
        raise AwsError("ResourceNotFoundException", message, 404)
    return found
