"""Manifests and instance types for simulations."""

import json
from pathlib import Path
from typing import Any

import yaml
from _pytest.capture import CaptureFixture

from tenure.cli.main import main

Json = dict[str, Any]
ZONES = ("a", "b", "c")


def offering(zone: str, capacity_type: str, price: float) -> Json:
    labels = {"topology.kubernetes.io/zone": zone, "karpenter.sh/capacity-type": capacity_type}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"Price": price, "Available": True, "Requirements": requirements}


def instance_type(name: str, cpu: int, gpus: int = 0) -> Json:
    resources = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": "58"} | (
        {"nvidia.com/gpu": str(gpus)} if gpus else {}
    )
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": resources,
        "overhead": {"cpu": "100m", "memory": "512Mi"},
        "offerings": [
            offering(zone, kind, cpu * price + gpus)
            for zone in ZONES
            for kind, price in (("on-demand", 0.05), ("spot", 0.02))
        ],
    }


TYPES = [instance_type("m5.large", 2), instance_type("m5.2xlarge", 8), instance_type("g5.xlarge", 4, gpus=1)]


def pool(*requirements: Json, name: str = "general") -> Json:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"nodeClassRef": reference, "requirements": list(requirements)}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": spec}},
    }


def pod(name: str, **requests: str) -> Json:
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def deployment(replicas: int, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {**pod("x", cpu="1")["spec"], **spec}}
    return {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": replicas, "template": template}}


def overlay(name: str, **spec: Any) -> Json:
    requirements = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.2xlarge"]}]
    kind = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}}
    return {**kind, "spec": {"requirements": requirements, **spec}}


class Files:
    """Manifests for `tenure simulate`, initially a NodePool and a pod, and runs of the command."""

    def __init__(self, folder: Path, capsys: CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.write("pools.yaml", pool())
        self.write("pods.yaml", pod("one", cpu="1"))
        (folder / "types.json").write_text(json.dumps(TYPES))

    def write(self, name: str, *objects: Json) -> None:
        (self.folder / name).write_text(yaml.safe_dump_all(objects))

    def arguments(self, *more: str) -> list[str]:
        files = {"nodepools": "pools.yaml", "pods": "pods.yaml", "instance-types": "types.json"}
        file_options = [part for option, name in files.items() for part in (f"--{option}", str(self.folder / name))]
        return ["simulate", *file_options, *more]

    def run(self, *more: str) -> Json:
        assert main(self.arguments("-o", "json", *more)) == 0
        found: Json = json.loads(self._capsys.readouterr().out)
        return found

    def table(self) -> str:
        assert main(self.arguments()) == 0
        return self._capsys.readouterr().out

    def usage_error(self, *more: str) -> str:
        """Expect one line on stderr and an empty stdout."""
        assert main(self.arguments(*more)) == 2
        captured = self._capsys.readouterr()
        (line,) = captured.err.splitlines()
        assert captured.out == ""
        return line
