"""The Terraform module has the resources of the CloudFormation stacks: policies, trust, rules, queues, parameters."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import hcl2
import pytest
from hcl2 import SerializationOptions

from deploy.resources import EVENTS_STACK, IAM_FILES
from tests.support.paths import ROOT
from tests.unit.deploy.stacks import read_template
from tools import cloudformation_role

MODULE = ROOT / "deploy" / "terraform"
NODES_STACK = EVENTS_STACK.with_name("nodes.yaml")
STACKS = (EVENTS_STACK, NODES_STACK, cloudformation_role.FILE)
Block = dict[str, Any]
OPTIONS = SerializationOptions(with_comments=False, explicit_blocks=False, strip_string_quotes=True)
NOT_VARIABLES = {"ControllerRoleName", "WorkerRoleArn"}
"""One module creates both sides: it attaches the queue's policy to the role, and associates the role."""


@cache
def read_module() -> dict[str, Any]:
    """Blocks by their address in expressions, such as `aws_sqs_queue.interruption` or `var.namespace`."""
    found: dict[str, Any] = {}
    for file in sorted(MODULE.glob("*.tf")):
        parsed = hcl2.loads(file.read_text(), serialization_options=OPTIONS)
        found |= {f"var.{name}": body for one in parsed.get("variable", []) for name, body in one.items()}
        found |= {f"local.{name}": value for one in parsed.get("locals", []) for name, value in one.items()}
        for prefix in ("data", "resource"):
            for one in parsed.get(prefix, []):
                ((kind, named),) = one.items()
                ((name, body),) = named.items()
                found[f"data.{kind}.{name}" if prefix == "data" else f"{kind}.{name}"] = body
    return found


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


@cache
def parameters() -> dict[str, Block]:
    return {name: body for stack in STACKS for name, body in read_template(stack)["Parameters"].items()}


def terraform_expression(value: str) -> str:
    """An expression of the module in the notation of CloudFormation, such as `${AWS::Region}` or `${Namespace}`."""
    names = {
        "local.partition": "AWS::Partition",
        "local.region": "AWS::Region",
        "local.account_id": "AWS::AccountId",
        "aws_sqs_queue.interruption[0].arn": "Queue.Arn",
        "aws_iam_role.node[0].arn": "NodeRole.Arn",
        **{f"var.{snake_case(name)}": name for name in parameters()},
    }
    value = value.replace("${local.cluster}", read_module()["local.cluster"])
    return re.sub(r"\$\{([^}]+)\}", lambda match: f"${{{names[match[1]]}}}", value)


def stack_expression(value: Any) -> Any:
    """A value of a template without functions: `Fn::Sub` as its text, references as `${...}`."""
    match value:
        case {"Fn::Sub": text}:
            return text
        case {"Ref": name}:
            return f"${{{name}}}"
        case {"Fn::GetAtt": [resource, attribute]}:
            return f"${{{resource}.{attribute}}}"
        case {"Fn::GetAtt": str(text)}:
            return f"${{{text}}}"
        case dict():
            return {name: stack_expression(one) for name, one in value.items()}
        case list():
            return [stack_expression(one) for one in value]
    return value


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def normalized_statement(statement: Block) -> Block:
    """A statement of a policy document with every value as a list."""
    principal = statement.get("Principal", {})
    principal = {"*": ["*"]} if principal == "*" else {kind: as_list(one) for kind, one in principal.items()}
    condition = {
        test: {variable: as_list(one) for variable, one in tests.items()}
        for test, tests in statement.get("Condition", {}).items()
    }
    return {
        "Sid": statement.get("Sid", ""),
        "Effect": statement["Effect"],
        "Principal": principal,
        "Action": as_list(statement["Action"]),
        "Resource": as_list(statement.get("Resource", [])),
        "Condition": condition,
    }


def terraform_statement(block: Block) -> Block:
    """A `statement` of `aws_iam_policy_document`, as `normalized_statement` returns it."""
    condition: dict[str, dict[str, list[str]]] = {}
    for one in block.get("condition", []):
        values = [terraform_expression(value) for value in one["values"]]
        condition.setdefault(one["test"], {})[terraform_expression(one["variable"])] = values
    return {
        "Sid": block.get("sid", ""),
        "Effect": block.get("effect", "Allow"),
        "Principal": {
            one["type"]: [terraform_expression(value) for value in one["identifiers"]]
            for one in block.get("principals", [])
        },
        "Action": block["actions"],
        "Resource": [terraform_expression(value) for value in block.get("resources", [])],
        "Condition": condition,
    }


def document_statements(name: str) -> list[Block]:
    document = read_module()[f"data.aws_iam_policy_document.{name}"]
    blocks = list(document["statement"])
    for dynamic in document.get("dynamic", []):
        blocks += dynamic["statement"]["content"]
    return [terraform_statement(one) for one in blocks]


def stack_statements(document: Any) -> list[Block]:
    document = stack_expression(document)
    document = json.loads(document) if isinstance(document, str) else document
    return [normalized_statement(one) for one in document["Statement"]]


def resource(stack: Path, name: str) -> Block:
    found: Block = read_template(stack)["Resources"][name]["Properties"]
    return found


def test_queue_policy_has_the_statements_of_the_stack() -> None:
    assert document_statements("queue") == stack_statements(resource(EVENTS_STACK, "QueuePolicy")["PolicyDocument"])


def test_role_of_the_nodes_is_trusted_as_in_the_stack() -> None:
    found = stack_statements(resource(NODES_STACK, "NodeRole")["AssumeRolePolicyDocument"])
    assert document_statements("node_trust") == found


def test_role_of_the_worker_is_trusted_as_in_the_stack() -> None:
    """With IRSA; the statement of Pod Identity stands in both."""
    _, irsa, pod_identity = resource(cloudformation_role.FILE, "WorkerRole")["AssumeRolePolicyDocument"]["Fn::If"]
    statements = document_statements("worker_trust")
    assert statements == stack_statements(irsa)
    assert statements[:1] == stack_statements(pod_identity)
    (dynamic,) = read_module()["data.aws_iam_policy_document.worker_trust"]["dynamic"]
    assert dynamic["statement"]["for_each"] == '${var.oidc_provider != "" ? [var.oidc_provider] : []}'


def test_role_of_the_worker_has_the_policies_of_the_stack() -> None:
    """The module reads deploy/iam, so its statements are equal. Conditions are the variables of the same name."""
    optional = {file: f"${{var.{snake_case(name)}}}" for file, (name, *_) in cloudformation_role.OPTIONAL.items()}
    assert read_module()["local.policies"] == {file.stem: optional.get(file.stem, True) for file in IAM_FILES}
    assert 'file("${path.module}/../iam/${name}.json")' in read_module()["local.parts"]
    assert read_module()["aws_iam_policy.worker"]["for_each"] == "${local.documents}"


def test_every_placeholder_of_the_policies_has_a_value() -> None:
    used = {name for file in IAM_FILES for name in re.findall(r"\$\{[^}]+\}", file.read_text())}
    placeholders = {name.replace("$$", "$"): value for name, value in read_module()["local.placeholders"].items()}
    assert set(placeholders) == used
    defaults = {"${NodeRoleName}": "${local.node_role_name}", "${InterruptionQueueName}": "${local.queue_name}"}
    for name, value in placeholders.items():
        assert defaults.get(name) == value if name in defaults else terraform_expression(value) == name


def test_role_of_the_nodes_has_the_managed_policies_of_the_stack() -> None:
    expected: dict[str, Any] = {}
    for one in resource(NODES_STACK, "NodeRole")["ManagedPolicyArns"]:
        condition, arn = (one["Fn::If"][0], one["Fn::If"][1]) if "Fn::If" in one else ("", one)
        variable = f"${{var.{snake_case(condition.removeprefix('Has'))}}}" if condition else True
        expected[stack_expression(arn).rpartition("/")[2]] = variable
    assert read_module()["local.node_policies"] == expected
    attachment = read_module()["aws_iam_role_policy_attachment.node"]["policy_arn"]
    assert attachment == "arn:${local.partition}:iam::aws:policy/${each.key}"


def test_rules_have_the_patterns_of_the_stack() -> None:
    template = read_template(EVENTS_STACK)["Resources"]
    expected = {
        name.removesuffix("Rule"): {
            "wanted": f"${{var.{snake_case(name.removesuffix('Rule'))}}}",
            "description": stack_expression(one["Properties"]["Description"]),
            "pattern": one["Properties"]["EventPattern"],
        }
        for name, one in template.items()
        if one["Type"] == "AWS::Events::Rule"
    }
    found = {
        name: {**one, "description": terraform_expression(one["description"])}
        for name, one in read_module()["local.rules"].items()
    }
    assert found == expected
    (target,) = template["SpotInterruptionRule"]["Properties"]["Targets"]
    assert read_module()["aws_cloudwatch_event_target.interruption"]["target_id"] == target["Id"]


def test_queues_have_the_retention_and_encryption_of_the_stack() -> None:
    for name, address in (("Queue", "interruption"), ("DeadLetterQueue", "dead_letter")):
        expected, found = resource(EVENTS_STACK, name), read_module()[f"aws_sqs_queue.{address}"]
        retention = stack_expression(expected["MessageRetentionPeriod"])
        actual = found["message_retention_seconds"]
        assert (terraform_expression(actual) if isinstance(actual, str) else actual) == retention
        assert found["sqs_managed_sse_enabled"] is expected["SqsManagedSseEnabled"]
        assert found["tags"] == "${local.tags}"
    receives = resource(EVENTS_STACK, "Queue")["RedrivePolicy"]["maxReceiveCount"]
    assert f"maxReceiveCount = {receives}" in read_module()["aws_sqs_queue.interruption"]["redrive_policy"]


def test_alarm_is_that_of_the_stack() -> None:
    expected, found = (
        resource(EVENTS_STACK, "DeadLetterAlarm"),
        read_module()["aws_cloudwatch_metric_alarm.dead_letter"],
    )
    for name in ("Namespace", "MetricName", "Statistic", "Period", "EvaluationPeriods", "Threshold"):
        assert found[snake_case(name)] == expected[name], name
    for name in ("ComparisonOperator", "TreatMissingData"):
        assert found[snake_case(name)] == expected[name], name


def test_access_entry_and_association_have_the_fields_of_the_stack() -> None:
    expected = stack_expression(resource(NODES_STACK, "NodeAccessEntry"))
    found = read_module()["aws_eks_access_entry.node"]
    assert [terraform_expression(found[name]) for name in ("cluster_name", "principal_arn", "type")] == [
        expected[name] for name in ("ClusterName", "PrincipalArn", "Type")
    ]
    expected = stack_expression(resource(NODES_STACK, "WorkerIdentity"))
    found = read_module()["aws_eks_pod_identity_association.worker"]
    for name in ("ClusterName", "Namespace", "ServiceAccount"):
        assert terraform_expression(found[snake_case(name)]) == expected[name], name


@pytest.mark.parametrize("name", sorted(parameters()))
def test_each_parameter_is_a_variable_with_the_same_default(name: str) -> None:
    if name in NOT_VARIABLES:
        assert f"var.{snake_case(name)}" not in read_module()
        return
    parameter, variable = parameters()[name], read_module()[f"var.{snake_case(name)}"]
    default = parameter.get("Default")
    expected = default == "true" if default in ("true", "false") else default
    assert variable.get("default") == expected
    assert variable["type"] == {bool: "bool", int: "number"}.get(type(expected), "string")
    if "AllowedPattern" in parameter:
        (validation,) = variable["validation"]
        assert f'regex("{parameter["AllowedPattern"]}"' in validation["condition"]
    elif not isinstance(expected, bool):
        (validation,) = variable["validation"]
        allowed = parameter.get("AllowedValues", [parameter.get("MinValue"), parameter.get("MaxValue")])
        assert all(str(one) in validation["condition"] for one in allowed)


def test_terraform_accepts_the_module(tmp_path: Path) -> None:
    """Validation needs the provider from Terraform's registry; the format needs Terraform alone."""
    if not shutil.which("terraform"):
        pytest.skip("terraform is not on the PATH")
    assert run_terraform(ROOT / "deploy", "fmt", "-check", "-recursive", "terraform").returncode == 0
    shutil.copytree(ROOT / "deploy" / "iam", tmp_path / "iam")
    shutil.copytree(MODULE, tmp_path / "terraform")
    if run_terraform(tmp_path / "terraform", "init", "-backend=false", "-input=false").returncode:
        pytest.skip("no provider: Terraform's registry cannot be reached")
    result = run_terraform(tmp_path / "terraform", "validate", "-no-color")
    assert result.returncode == 0, result.stdout + result.stderr


def run_terraform(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["terraform", f"-chdir={folder}", *arguments], capture_output=True, text=True)
