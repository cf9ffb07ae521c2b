"""The path for a new cluster on the page of the installation, run in bash with programs that record their arguments."""

import json
import re
import shlex
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure.apis.ec2nodeclass import EC2NodeClass
from tests.support.aws.commands import find_mistake
from tests.support.paths import ROOT
from tests.unit.deploy.stacks import read_template
from tests.unit.repository.test_documents import DOCS

PAGE = (DOCS / "getting-started" / "install.md").read_text()
(SECTION,) = re.findall(r"^## New cluster\n(.*?)^## ", PAGE, flags=re.M | re.S)
CODE = "\n".join(map(textwrap.dedent, re.findall(r"^ *```bash\n(.*?)^ *```$", SECTION, flags=re.M | re.S)))
STACKS = ROOT / "deploy" / "cloudformation"
ROLE_ARN = "arn:aws:iam::123456789012:role/worker"
VPC = {"subnetIds": ["subnet-1", "subnet-2"], "clusterSecurityGroupId": "sg-1", "securityGroupIds": []}
RECORD = r"""
set -euo pipefail
record() { printf '%s\n' "$*" >> "$RECORDED"; }
eksctl() { record eksctl "$@"; }
helm() { record helm "$@"; }
kubectl() { record kubectl "$@"; if [[ " $* " == *" -f - "* ]]; then cat > "$RECORDED.yaml"; fi; }
aws() { record aws "$@"; case "$2" in describe-cluster) echo "$VPC" ;; describe-stacks) echo "$ROLE_ARN" ;; esac; }
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of the section, with the values of all variables. `kubectl apply` writes its input beside them."""
    if not shutil.which("jq"):
        pytest.skip("jq is not on the PATH")
    file = tmp_path_factory.mktemp("install") / "commands"
    variables = {"RECORDED": str(file), "VPC": json.dumps(VPC), "ROLE_ARN": ROLE_ARN}
    script = RECORD + CODE.replace("ACCOUNT", "123456789012")
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return file


def commands(recorded: Path, program: str) -> list[str]:
    return [line for line in recorded.read_text().splitlines() if line.startswith(f"{program} ")]


def test_every_command_has_all_of_its_values(recorded: Path) -> None:
    lines = recorded.read_text().splitlines()
    assert {line.partition(" ")[0] for line in lines} == {"eksctl", "aws", "helm", "kubectl"}
    assert [line for line in lines if re.search(r"\$|=( |$)|\b(ACCOUNT|REGISTRY|CLUSTER)\b", line)] == []


def test_aws_accepts_every_command(recorded: Path) -> None:
    found = commands(recorded, "aws")
    assert len(found) == 6
    # The operators of JMESPath would end a command of the shell.
    plain = [re.sub(r"--query (Stacks\S+)", lambda match: f"--query {shlex.quote(match[1])}", one) for one in found]
    assert [mistake for one in plain if (mistake := find_mistake(one))] == []
    assert (
        "create-tags --region eu-west-1 --tags Key=karpenter.sh/discovery,Value=prod --resources subnet-1 subnet-2 sg-1"
        in found[1]
    )


def test_stacks_depend_on_each_other(recorded: Path) -> None:
    deployed = [one for one in commands(recorded, "aws") if " cloudformation deploy " in one]
    assert [Path(re.findall(r"--template-file (\S+)", one)[0]).stem for one in deployed] == ["role", "nodes", "events"]
    assert f"WorkerRoleArn={ROLE_ARN}" in deployed[1]
    for one in deployed:
        (file,) = re.findall(r"--template-file (\S+)", one)
        assert read_template(ROOT / file)["Parameters"].keys() >= set(re.findall(r"(\w+)=", one))
        assert "ClusterName=prod" in one and "CAPABILITY_NAMED_IAM" in one


def test_nodes_of_the_applied_class_may_join(recorded: Path) -> None:
    """The role of the stack and the tag of the subnets."""
    (document,) = yaml.safe_load_all(Path(f"{recorded}.yaml").read_text())
    node_class = EC2NodeClass.from_object(document)
    role: Any = read_template(STACKS / "nodes.yaml")["Resources"]["NodeRole"]["Properties"]["RoleName"]
    assert node_class.spec.role == "KarpenterNodeRole-prod"
    assert "KarpenterNodeRole-${ClusterName}" in json.dumps(role)
    tags = {"karpenter.sh/discovery": "prod"}
    assert [one.tags for one in node_class.spec.subnet_selector_terms] == [tags]
    assert [one.tags for one in node_class.spec.security_group_selector_terms] == [tags]


def test_worker_uses_the_created_queue_and_the_workload_needs_nodes(recorded: Path) -> None:
    (installed,) = [one for one in commands(recorded, "helm") if " deploy/charts/tenure " in one]
    assert "settings.INTERRUPTION_QUEUE=prod" in installed and "settings.CLUSTER_NAME=prod" in installed
    queue = read_template(STACKS / "events.yaml")["Resources"]["Queue"]["Properties"]["QueueName"]
    assert "ClusterName" in json.dumps(queue)
    workload = yaml.safe_load((ROOT / "examples" / "deployment.yaml").read_text())
    scaled = [one for one in commands(recorded, "kubectl") if one.startswith("kubectl scale")]
    assert workload["spec"]["replicas"] == 0
    assert scaled == [f"kubectl scale deployment {workload['metadata']['name']} --replicas 5"]
