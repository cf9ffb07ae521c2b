"""The worker's role as a CloudFormation stack, deploy/cloudformation/role.yaml: the policies of deploy/iam as managed
policies, and the trust policy.

Fn::Sub applies to the whole text of a policy, because names of condition keys contain placeholders too.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.resources import HERE, IAM_FILES

FILE: Final = HERE / "cloudformation" / "role.yaml"
_ROLE: Final = "WorkerRole"
_CLUSTER: Final = "arn:${AWS::Partition}:eks:${AWS::Region}:${AWS::AccountId}:cluster/${ClusterName}"
_HEADER: Final = """\
# Written by `python -m tools.generate` from deploy/iam: change the policies there, or tools/cloudformation_role.py.
#
# The role of Tenure's worker, with the policies of deploy/iam, for EKS Pod Identity and for IRSA.
#
#   aws cloudformation deploy --template-file role.yaml --stack-name tenure-role-CLUSTER \\
#     --region REGION --capabilities CAPABILITY_IAM --parameter-overrides ClusterName=CLUSTER
#
# One stack for each cluster, in the cluster's region. Parameters disable optional policies.
"""
OPTIONAL: Final = {
    "interruption": ("Interruption", "true", "Read the interruption queue."),
    "zonal-shift": ("ZonalShift", "true", "Read zonal shifts of the cluster, for ENABLE_ZONAL_SHIFT."),
    "node-repair": ("NodeRepair", "false", "Reboot instances, where a LifecyclePolicy sets repair.steps reboot."),
    "stop-start": ("StopStart", "false", "Stop and start instances, where a LifecyclePolicy sets action stopStart."),
}
"""Policies that can be omitted: the parameter, its default and its description."""
_DEFAULT_NAMES: Final[Mapping[str, Any]] = {
    "NodeRoleName": {"Fn::Sub": "KarpenterNodeRole-${ClusterName}"},
    "InterruptionQueueName": {"Ref": "ClusterName"},
}
"""Values of placeholders whose parameter is empty."""
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "ClusterName": {
        "Type": "String",
        "Description": "Name of the EKS cluster, as in CLUSTER_NAME.",
        "AllowedPattern": "^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$",
        "ConstraintDescription": "an EKS cluster name, such as prod; letters, digits, - and _, at most 100",
    },
    "NodeRoleName": {
        "Type": "String",
        "Default": "",
        "Description": "The role of the nodes, as in EC2NodeClasses. Empty - KarpenterNodeRole-CLUSTER.",
        "AllowedPattern": "^[0-9A-Za-z+=,.@_/-]{0,128}$",
        "ConstraintDescription": "an IAM role name, such as KarpenterNodeRole-prod, with its path if it has one",
    },
    "InterruptionQueueName": {
        "Type": "String",
        "Default": "",
        "Description": "Name of the interruption queue, as in INTERRUPTION_QUEUE. Empty - the cluster's name.",
        "AllowedPattern": "^[0-9A-Za-z_-]{0,80}$",
        "ConstraintDescription": "an SQS queue name, such as prod; letters, digits, - and _, at most 80",
    },
    "Namespace": {
        "Type": "String",
        "Default": "tenure",
        "Description": "Namespace of the worker.",
        "AllowedPattern": "^[0-9a-z][0-9a-z-]{0,62}$",
    },
    "ServiceAccount": {
        "Type": "String",
        "Default": "tenure",
        "Description": "Service account of the worker.",
        "AllowedPattern": "^[0-9a-z][0-9a-z.-]{0,252}$",
    },
    "OidcProvider": {
        "Type": "String",
        "Default": "",
        "Description": "For IRSA - the cluster's OIDC provider without https://. Empty - only EKS Pod Identity.",
        "AllowedPattern": "^([0-9a-z.-]+/id/[0-9A-Z]+)?$",
        "ConstraintDescription": "such as oidc.eks.eu-west-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
    },
}
_POD_IDENTITY: Final = """\
    {
      "Sid": "AllowPodIdentity",
      "Effect": "Allow",
      "Principal": {"Service": "pods.eks.amazonaws.com"},
      "Action": ["sts:AssumeRole", "sts:TagSession"],
      "Condition": {
        "StringEquals": {
          "aws:RequestTag/eks-cluster-arn": "%s",
          "aws:RequestTag/kubernetes-namespace": "${Namespace}",
          "aws:RequestTag/kubernetes-service-account": "${ServiceAccount}"
        }
      }
    }"""
_IRSA: Final = """\
    {
      "Sid": "AllowServiceAccount",
      "Effect": "Allow",
      "Principal": {"Federated": "arn:${AWS::Partition}:iam::${AWS::AccountId}:oidc-provider/${OidcProvider}"},
      "Action": "sts:AssumeRoleWithWebIdentity",
      "Condition": {
        "StringEquals": {
          "${OidcProvider}:aud": "sts.amazonaws.com",
          "${OidcProvider}:sub": "system:serviceaccount:${Namespace}:${ServiceAccount}"
        }
      }
    }"""


class _Text(str):
    """Written as a literal block."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    _Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")
)


def text() -> str:
    return _HEADER + yaml.dump(build_template(), Dumper=_Dumper, width=120, sort_keys=False)


def build_template() -> dict[str, Any]:
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Tenure - role of the worker",
        "Parameters": {**_PARAMETERS, **{name: _boolean_parameter(*rest) for name, *rest in OPTIONAL.values()}},
        "Conditions": {
            **{f"Names{name}": _is_not(name, "") for name in (*_DEFAULT_NAMES, "OidcProvider")},
            **{f"Wants{name}": _is_not(name, "false") for name, _, _ in OPTIONAL.values()},
        },
        "Resources": {_ROLE: _role_resource(), **{_logical_id(file): _policy_resource(file) for file in IAM_FILES}},
        "Outputs": {
            "RoleArn": {
                "Description": "For the Pod Identity association, or serviceAccount.roleArn of the chart.",
                "Value": {"Fn::GetAtt": [_ROLE, "Arn"]},
            },
            "RoleName": {"Value": {"Ref": _ROLE}},
        },
    }


def _boolean_parameter(default: str, description: str) -> dict[str, Any]:
    return {"Type": "String", "Default": default, "AllowedValues": ["true", "false"], "Description": description}


def _is_not(parameter: str, value: str) -> dict[str, Any]:
    return {"Fn::Not": [{"Fn::Equals": [{"Ref": parameter}, value]}]}


def _role_resource() -> dict[str, Any]:
    pods, both = _trust_policy(_POD_IDENTITY % _CLUSTER), _trust_policy(_POD_IDENTITY % _CLUSTER, _IRSA)
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "Description": {"Fn::Sub": "${ClusterName}: Tenure worker"},
            "AssumeRolePolicyDocument": {"Fn::If": ["NamesOidcProvider", {"Fn::Sub": both}, {"Fn::Sub": pods}]},
        },
    }


def _trust_policy(*statements: str) -> _Text:
    inside = ",\n".join(statements)
    return _Text(f'{{\n  "Version": "2012-10-17",\n  "Statement": [\n{inside}\n  ]\n}}\n')


def _policy_resource(file: Path) -> dict[str, Any]:
    condition = {"Condition": f"Wants{OPTIONAL[file.stem][0]}"} if file.stem in OPTIONAL else {}
    return {
        "Type": "AWS::IAM::ManagedPolicy",
        **condition,
        "Properties": {
            "Description": {"Fn::Sub": f"${{ClusterName}}: deploy/iam/{file.name} of Tenure"},
            "Roles": [{"Ref": _ROLE}],
            "PolicyDocument": {"Fn::Sub": _substitute_names(file.read_text())},
        },
    }


def _substitute_names(policy: str) -> Any:
    """The text, with default values for the names whose parameter may be empty."""
    values = {
        name: {"Fn::If": [f"Names{name}", {"Ref": name}, default]}
        for name, default in _DEFAULT_NAMES.items()
        if f"${{{name}}}" in policy
    }
    return [_Text(policy), values] if values else _Text(policy)


def _logical_id(file: Path) -> str:
    """`NodeLifecyclePolicy` for node-lifecycle.json."""
    return "".join(re.findall("[A-Za-z]+", file.stem.title())) + "Policy"
