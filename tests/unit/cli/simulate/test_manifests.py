"""Manifests of `tenure simulate`: defaults like the API server, and rejections where it would reject them."""

import json
from typing import Any

import pytest

from tests.unit.cli.simulate.builders import TYPES, Files, Json, deployment, instance_type, offering, pod, pool


def pod_with_spec(name: str = "one", **spec: Any) -> Json:
    made = pod(name, cpu="1")
    return {**made, "spec": {**made["spec"], **spec}}


def affinity(kind: str, *, required: Any = None, preferred: Any = None) -> Json:
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    return {"affinity": {kind: {key: value for key, value in terms.items() if value is not None}}}


def node_terms(*expressions: Json) -> Json:
    return affinity("nodeAffinity", required={"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]})


def container(**resources: Any) -> Json:
    return {"name": "main", "image": "none", "resources": resources}


ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "9"}


def scheduled_pods(found: Json) -> list[str]:
    """Names of pods on new nodes."""
    return sorted(name for node in found["nodes"] for name in node["pods"])


# --- defaults of the API server ---


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ({"containers": [container(limits={"nvidia.com/gpu": 1, "cpu": "1"})]}, ["g5.xlarge"]),
        ({"containers": [container()], "resources": {"limits": {"cpu": "7"}}}, ["m5.2xlarge"]),
        (
            {"containers": [container(requests={"cpu": "1"})], "resources": {"limits": {"cpu": "7"}}},
            ["m5.large", "m5.2xlarge", "g5.xlarge"],
        ),
        ({"containers": [container(requests={"cpu": 7.5, "memory": 1073741824})]}, ["m5.2xlarge"]),
    ],
    ids=["limit without a request", "limit of the pod only", "limit of the pod with a request", "plain numbers"],
)
def test_requests_are_defaulted_like_api_server(files: Files, spec: Json, types: list[str]) -> None:
    files.write("pods.yaml", pod_with_spec(**spec))
    assert files.run()["nodes"][0]["instanceTypes"] == types


def test_null_fields_are_absent(files: Files) -> None:
    """`kubectl create --dry-run=client -o yaml` writes such fields."""
    made = deployment(2, affinity=None, nodeName=None)
    made["metadata"]["creationTimestamp"] = None
    made["spec"]["template"]["metadata"]["creationTimestamp"] = None
    files.write("pods.yaml", {**made, "status": {}})
    assert scheduled_pods(files.run()) == ["web-0", "web-1"]


def test_unquoted_dates_are_accepted(files: Files) -> None:
    one = "kind: Pod\nmetadata: {name: a, creationTimestamp: 2024-01-01T00:00:00Z}\nspec: {containers: [{name: a}]}\n"
    (files.folder / "pods.yaml").write_text(one + "---\n" + one.replace("name: a,", "name: b,"))
    assert scheduled_pods(files.run()) == ["a", "b"]


def test_workloads_with_equal_names_are_all_planned(files: Files) -> None:
    job = {**deployment(1), "kind": "Job"}
    job["spec"] = {**job["spec"], "parallelism": 3, "completions": 2}
    files.write("pods.yaml", deployment(2), job, pod("web-0", cpu="1"))
    assert scheduled_pods(files.run()) == [
        "Deployment/default/web-0",
        "Deployment/default/web-1",
        "Job/default/web-0",
        "Job/default/web-1",
        "Pod/default/web-0",
    ]


def test_cron_job_is_planned_as_one_job(files: Files) -> None:
    job = {"spec": {"parallelism": 2, "template": deployment(1)["spec"]["template"]}}
    files.write("pods.yaml", {"kind": "CronJob", "metadata": {"name": "tick"}, "spec": {"jobTemplate": job}})
    assert scheduled_pods(files.run()) == ["tick-0", "tick-1"]


def test_unplanned_pods_have_a_reason(files: Files) -> None:
    ours = {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}
    files.write(
        "pods.yaml",
        pod_with_spec("gated", schedulingGates=[{"name": "wait"}]),
        pod_with_spec("elsewhere", **node_terms(ours)),
        {**pod("done", cpu="1"), "status": {"phase": "Succeeded"}},
    )
    found = files.run()
    assert "schedulingGates" in found["unschedulable"]["gated"] and "NodePool" in found["unschedulable"]["elsewhere"]
    assert found["nodes"] == [] and len(found["unschedulable"]) == 2


def test_nodes_file_may_have_nodes_nodeclaims_pods_and_namespaces(files: Files) -> None:
    node = {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": ALLOCATABLE}}
    claim = {
        "kind": "NodeClaim",
        "metadata": {"name": "coming", "labels": {"karpenter.sh/nodepool": "general"}},
        "spec": {"nodeClassRef": {"name": "default"}, "resources": {"requests": ALLOCATABLE}, "requirements": []},
    }
    files.write(
        "nodes.yaml", node, claim, pod_with_spec("there", nodeName="n1", containers=[container(limits={"cpu": 4})])
    )
    found = files.run("--nodes", str(files.folder / "nodes.yaml"))
    assert (found["existing"], found["nodes"]) == ({"coming": ["one"]}, [])


@pytest.mark.parametrize(
    "node",
    [
        {"spec": {"unschedulable": True}, "status": {}},
        {
            "metadata": {"creationTimestamp": "2024-12-01T00:00:00Z"},
            "status": {
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"}]
            },
        },
    ],
    ids=["cordoned", "not ready for long"],
)
def test_unschedulable_or_not_ready_node_gets_no_pods(files: Files, node: Json) -> None:
    status = {"allocatable": ALLOCATABLE, **node["status"]}
    named = {"kind": "Node", **node, "metadata": {"name": "n1", **node.get("metadata", {})}, "status": status}
    files.write("nodes.yaml", named)
    assert files.run("--nodes", str(files.folder / "nodes.yaml"))["existing"] == {}


def test_namespaces_are_selected_by_label(files: Files) -> None:
    """The pods of the anti-affinity term are in a namespace that only its label selects."""
    term = {
        "topologyKey": "topology.kubernetes.io/zone",
        "labelSelector": {"matchLabels": {"app": "noisy"}},
        "namespaceSelector": {"matchLabels": {"team": "red"}},
    }
    noisy = pod_with_spec("noisy", nodeSelector={"topology.kubernetes.io/zone": "a"}, priority=1)
    noisy["metadata"] |= {"namespace": "other", "labels": {"app": "noisy"}}
    quiet = pod_with_spec("quiet", **affinity("podAntiAffinity", required=[term]))
    namespace = {"kind": "Namespace", "metadata": {"name": "other", "labels": {"team": "red"}}}
    files.write("pods.yaml", namespace, noisy, quiet)
    found = files.run()
    zones = {node["pods"][0]: node["zones"] for node in found["nodes"] if len(node["pods"]) == 1}
    assert zones["noisy"] == ["a"] and zones["quiet"] != ["a"] and len(zones["quiet"]) == 1


@pytest.mark.parametrize("kind", ["high", "system-node-critical", ""])
def test_priority_comes_from_priority_class(files: Files, kind: str) -> None:
    classes = [
        {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9},
        {"kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 5, "globalDefault": True},
    ]
    first = pod_with_spec("first", **({"priorityClassName": kind} if kind else {"priority": 6}))
    limited = pool()
    limited["spec"]["limits"] = {"nodes": "1"}
    files.write("pools.yaml", limited)
    files.write("pods.yaml", *classes, pod_with_spec("other", containers=[container(requests={"cpu": "7"})]), first)
    found = files.run()
    assert scheduled_pods(found) == ["first"] and list(found["unschedulable"]) == ["other"]


def test_min_values_are_relaxed_with_best_effort_policy(files: Files) -> None:
    requirement = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 5}
    files.write("pools.yaml", pool(requirement))
    assert "minValues" in files.run()["unschedulable"]["one"]
    assert files.run("--min-values-policy", "BestEffort")["unschedulable"] == {}


@pytest.mark.parametrize(("count", "reserved"), [({}, 1), ({"ReservationCapacity": 2}, 2)])
def test_reserved_capacity_is_used_first_up_to_its_count(files: Files, count: dict[str, int], reserved: int) -> None:
    reserved_offering = offering("a", "reserved", 0.001)
    key = "karpenter.k8s.aws/capacity-reservation-id"
    reserved_offering["Requirements"].append({"key": key, "operator": "In", "values": ["cr-1"]})
    large = instance_type("m5.2xlarge", 8)
    large["offerings"].append({**reserved_offering, **count})
    (files.folder / "types.json").write_text(json.dumps([large]))
    files.write("pods.yaml", *(pod(f"p{n}", cpu="7") for n in range(3)))
    found = files.run()
    kinds = [node["capacityTypes"] for node in found["nodes"]]
    assert kinds.count(["reserved"]) == reserved and len(kinds) == 3
    assert sorted(node["price"] for node in found["nodes"])[0] == 0.001


def test_types_without_pods_resource_use_kubelet_default(files: Files) -> None:
    kind = instance_type("m5.large", 2)
    kind["resources"].pop("pods")
    (files.folder / "types.json").write_text(json.dumps([kind]))
    assert files.run()["unschedulable"] == {}


def test_table_keeps_text_in_brackets(files: Files) -> None:
    files.write("pods.yaml", pod_with_spec("far", nodeSelector={"topology.kubernetes.io/zone": "mars"}), pod("one"))
    assert "topology.kubernetes.io/zone In [mars]" in files.table()


def test_table_shows_usage_of_every_requested_resource(files: Files) -> None:
    kind = instance_type("x1.large", 2)
    kind["resources"]["example.com/dongle"] = "4"
    (files.folder / "types.json").write_text(json.dumps([kind]))
    files.write("pods.yaml", pod("one", **{"example.com/dongle": "3"}))
    assert "example.com/dongle 75%" in files.table()


# --- rejected manifests ---

ZONE_TERM = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}}
SPREAD = {**ZONE_TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
NEAR = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["x"]}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"containers": [container(requests={"cpu": "1.5.2"})]},
            "spec.containers[main].resources.requests.cpu: '1.5.2'",
        ),
        ({"containers": [container(requests={"cpu": "-1"})]}, "spec.containers[main].resources.requests.cpu: '-1'"),
        ({"containers": [container(requests={"cpu": True})]}, "'True'"),
        ({"containers": [container(requests={"cpu": "2"}, limits={"cpu": "1"})]}, "limit '1'"),
        ({"containers": []}, "spec.containers"),
        ({"containers": "main"}, "spec.containers: 'main'"),
        ({"containers": [{"image": "x"}]}, "spec.containers[0].name"),
        ({"overhead": {"memory": "lots"}}, "spec.overhead.memory: 'lots'"),
        (node_terms({"key": "team", "operator": "Near", "values": ["x"]}), "operator 'Near'"),
        (node_terms({"key": "cpu", "operator": "Gt", "values": ["many"]}), "many"),
        (affinity("nodeAffinity", required={"nodeSelectorTerms": []}), "nodeSelectorTerms: missing"),
        (affinity("nodeAffinity", preferred=[{"weight": 500, "preference": {}}]), "weight: 500"),
        (affinity("podAffinity", preferred=[{"weight": 0, "podAffinityTerm": ZONE_TERM}]), "weight: 0"),
        (affinity("podAffinity", required=[{**ZONE_TERM, "labelSelector": NEAR}]), "operator 'Near'"),
        (affinity("podAntiAffinity", required=[{**ZONE_TERM, "namespaceSelector": NEAR}]), "namespaceSelector"),
        (affinity("podAffinity", required=[{"labelSelector": {}}]), "topologyKey"),
        ({"topologySpreadConstraints": [{**SPREAD, "labelSelector": NEAR}]}, "operator 'Near'"),
        ({"topologySpreadConstraints": [{**SPREAD, "maxSkew": 0}]}, "maxSkew: 0"),
        ({"topologySpreadConstraints": [{**SPREAD, "minDomains": -1}]}, "minDomains: -1"),
        ({"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "Never"}]}, "whenUnsatisfiable: 'Never'"),
        ({"topologySpreadConstraints": [{**SPREAD, "nodeTaintsPolicy": "Maybe"}]}, "nodeTaintsPolicy: 'Maybe'"),
        (affinity("podAffinity", required={"topologyKey": "a"}), "DuringExecution: {'topologyKey': 'a'} is not a list"),
        ({"tolerations": ["all"]}, "spec.tolerations[0]: 'all' is not an object"),
        ({"volumes": ["data"]}, "spec.volumes[0]: 'data' is not an object"),
        ({"tolerations": [{"key": "a", "operator": "Like"}]}, "operator: 'Like'"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "effect: 'Never'"),
        ({"containers": [{"name": "a", "ports": [{"hostPort": 70000}]}]}, "hostPort: 70000"),
        ({"nodeSelector": {"team": True}}, "node_selector.team"),
    ],
)
def test_invalid_pod_is_rejected(files: Files, spec: Json, expected: str) -> None:
    files.write("pods.yaml", pod("fine", cpu="1"), pod_with_spec("odd", **spec))
    line = files.usage_error()
    assert expected in line and "pods.yaml: Pod odd:" in line
    template = {**deployment(1)["spec"]["template"], "spec": pod_with_spec("odd", **spec)["spec"]}
    daemons = {"kind": "DaemonSet", "metadata": {"name": "odd"}, "spec": {"template": template}}
    files.write("pods.yaml", pod("fine", cpu="1"))
    files.write("daemons.yaml", daemons)
    if "topologySpreadConstraints" not in spec and "pod" not in str(spec):
        line = files.usage_error("--daemonsets", str(files.folder / "daemons.yaml"))
        assert "DaemonSet odd:" in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: Pod\nspec: {containers: [{name: a}]}\n", "metadata.name: missing"),
        ("kind: Pod\nmetadata:\nspec: {containers: [{name: a}]}\n", "metadata.name: missing"),
        ("kind: Pod\nmetadata: here\n", "metadata: 'here'"),
        ("kind: Pod\nmetadata: {name: a, labels: web}\n", "metadata.labels: 'web' is not an object, expected e.g. {"),
        ("kind: Node\nmetadata: {name: a, annotations: [web]}\n", "metadata.annotations: ['web'] is not an object"),
        ("kind: PriorityClass\nmetadata: {name: [a]}\nvalue: 1\n", "metadata.name: ['a'] is not a string"),
        (
            "kind: Pod\nmetadata: {name: a, ownerReferences: [web]}\n",
            "ownerReferences: ['web'] is not a list of objects",
        ),
        ("kind: Pod\nmetadata: {name: a}\n", "spec.containers"),
        ("kind: Pod\nmetadata: {name: a}\nspec: none\n", "spec: 'none'"),
        ("kind: Pod\nmetadata: {name: a, creationTimestamp: soon}\nspec: {containers: [{name: a}]}\n", "'soon'"),
        ("kind: Service\nmetadata: {name: a}\n", "no objects found; expected Pod or Deployment"),
        ("kind: Pod\n  metadata: {\n", "neither YAML nor JSON"),
        ("kind: Pod\nmetadata: {name: a}\nspec: !!python/object:os.system {}\n", "neither YAML nor JSON"),
        ("{", "neither YAML nor JSON"),
        ("", "no object"),
        ("---\n---\n", "no object"),
        ("just words", "'just words': invalid document"),
        ("- 5", "'5': invalid list item"),
        ("&a [*a]", "nested too deeply"),
        (2 * "---\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}]}\n", "occurs 2 times"),
    ],
)
def test_file_without_pods_is_rejected(files: Files, text: str, expected: str) -> None:
    (files.folder / "pods.yaml").write_text(text)
    line = files.usage_error()
    assert expected in line and "pods.yaml" in line


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("web", "metadata: 'web'"),
        ({"labels": "web"}, "metadata.labels: 'web'"),
        ({"annotations": []}, "annotations: []"),
    ],
)
def test_template_with_invalid_metadata_is_rejected(files: Files, kind: str, metadata: Json, expected: str) -> None:
    template = {**deployment(1)["spec"]["template"], "metadata": metadata}
    files.write("pods.yaml", pod("one"), {**deployment(1), "kind": kind, "spec": {"template": template}})
    line = files.usage_error()
    assert f"pods.yaml: {kind} web: spec.template.metadata" in line and f"{expected} is not an object" in line


def test_file_with_nodepools_of_another_api_group_is_rejected(files: Files) -> None:
    files.write("pools.yaml", {**pool(), "apiVersion": "container.cnrm.cloud.google.com/v1beta1"})
    expected = (
        "pools.yaml: no objects found; expected NodePool, found 1 NodePool container.cnrm.cloud.google.com/v1beta1"
    )
    assert expected in files.usage_error()


def test_non_utf8_file_is_rejected(files: Files) -> None:
    (files.folder / "pods.yaml").write_bytes(b"kind: Pod\xff\xfe")
    assert "UTF-8" in files.usage_error()


@pytest.mark.parametrize(
    ("requirements", "spec", "expected"),
    [
        (
            [{"key": "team", "operator": "In", "values": ["a"]}, {"key": "team", "operator": "In", "values": ["b"]}],
            {},
            "team",
        ),
        (
            [
                {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["8"]},
                {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["4"]},
            ],
            {},
            "instance-cpu exclude each other",
        ),
        (
            [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["only-b"]},
            ],
            {},
            "no instance type in",
        ),
        ([{"key": "team", "operator": "Gt", "values": ["-1"]}], {}, '"-1"'),
        ([{"key": "team", "operator": "Exists", "minValues": 0}], {}, "minValues: 0"),
        ([{"key": "team", "operator": "In", "values": ["a"], "minValues": 2}], {}, '"minValues": 2'),
        ([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["cheap"]}], {}, "cheap"),
        ([{"key": "karpenter.sh/nodepool", "operator": "Exists"}], {}, "karpenter.sh/nodepool"),
        ([{"key": "team", "operator": "Near", "values": ["x"]}], {}, "Near"),
        ([{"key": "kubernetes.io/arch", "operator": "In", "values": ["riscv64"]}], {}, "riscv64"),
        ([], {"limits": {"cpu": "ten"}}, "'ten'"),
        ([], {"limits": {"cpu": "-1"}}, "spec.limits.cpu: '-1'"),
        ([], {"weight": 101}, "spec.weight: 101"),
    ],
)
def test_invalid_nodepool_is_rejected(files: Files, requirements: list[Json], spec: Json, expected: str) -> None:
    only_b = {**instance_type("only-b", 2), "offerings": [offering("b", "spot", 0.1)]}
    (files.folder / "types.json").write_text(json.dumps([*TYPES, only_b]))
    made = pool(*requirements)
    files.write("pools.yaml", {**made, "spec": {**made["spec"], **spec}})
    line = files.usage_error()
    assert expected in line and "NodePool general:" in line


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ("{", "not JSON"),
        ([], "no instance types"),
        ([TYPES[0], TYPES[0]], "occurs twice"),
        ([{**TYPES[0], "resources": {"cpu": "-2"}}], "resources.cpu"),
        ([{**TYPES[0], "resources": {"cpu": "2 cores"}}], "m5.large"),
        ([{key: value for key, value in TYPES[0].items() if key != "offerings"}], "'offerings'"),
        (["m5.large"], "number 0"),
        ([{**TYPES[0], "offerings": [{**TYPES[0]["offerings"][0], "Price": float("nan")}]}], "Price"),
        ([{**TYPES[0], "offerings": [{**TYPES[0]["offerings"][0], "Price": "cheap"}]}], "'cheap'"),
        ([{**TYPES[0], "offerings": [{**TYPES[0]["offerings"][0], "Available": "perhaps"}]}], "perhaps"),
    ],
)
def test_invalid_instance_types_are_rejected(files: Files, types: list[Any] | str, expected: str) -> None:
    (files.folder / "types.json").write_text(types if isinstance(types, str) else json.dumps(types))
    line = files.usage_error()
    assert expected in line and "types.json" in line
