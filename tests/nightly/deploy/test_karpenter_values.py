"""The counterparts of the values of Karpenter's chart, and their effect when Helm renders Tenure's."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.nightly.deploy.charts import (
    ALL_VALUES,
    BUILD_SECONDS,
    CHART,
    MINIMAL_VALUES,
    Document,
    pod_of,
    rejection_message,
    render_chart,
    single_document,
)
from tests.support.paths import ROOT

pytestmark = pytest.mark.timeout(BUILD_SECONDS)
PAGE = (ROOT / "docs" / "reference" / "karpenter-chart.md").read_text()
ROWS = re.findall(r"^\| `([\w.]+)` \| (?:`([\w.]+)`|not needed) \|", PAGE, flags=re.M)
KARPENTER_VALUES = """
additionalAnnotations additionalClusterRoleRules additionalLabels affinity.nodeAffinity affinity.podAffinity
affinity.podAntiAffinity controller.containerName controller.env controller.envFrom controller.extraVolumeMounts
controller.healthProbe.port controller.image.digest controller.image.repository controller.image.tag
controller.metrics.port controller.resources controller.securityContext controller.sidecarContainer
controller.sidecarVolumeMounts dnsConfig dnsPolicy extraVolumes fullnameOverride hostNetwork imagePullPolicy
imagePullSecrets initContainers logErrorOutputPaths logLevel logOutputPaths nameOverride nodeSelector podAnnotations
podDisruptionBudget.maxUnavailable podDisruptionBudget.name podLabels podSecurityContext priorityClassName replicas
revisionHistoryLimit schedulerName service.annotations serviceAccount.annotations serviceAccount.create
serviceAccount.name serviceMonitor.additionalLabels serviceMonitor.enabled serviceMonitor.endpointConfig
serviceMonitor.metricRelabelings serviceMonitor.relabelings serviceMonitor.sampleLimit settings.amiRefreshInterval
settings.awsFeatureGates settings.batchIdleDuration settings.batchMaxDuration settings.clusterCABundle
settings.clusterEndpoint settings.clusterName settings.disableClusterStateObservability settings.disableDryRun
settings.eksControlPlane settings.enableDRA settings.enableZonalShift settings.featureGates settings.ignoreDRARequests
settings.interruptionQueue settings.isolatedVPC settings.legacyNodeRepair settings.minValuesPolicy
settings.preferencePolicy settings.reservedENIs settings.securityGroupRefreshInterval settings.subnetRefreshInterval
settings.vmMemoryOverheadPercent strategy terminationGracePeriodSeconds tolerations topologySpreadConstraints
"""
"""charts/karpenter/values.yaml of aws/karpenter-provider-aws 1.15.1, which test_karpenter_source.py reads."""


def test_page_lists_each_value_of_karpenters_chart() -> None:
    assert [name for name, _ in ROWS] == KARPENTER_VALUES.split()


def test_each_counterpart_is_a_value_of_the_chart() -> None:
    """Helm rejects unknown values, so the schema has every value and each has a default, except settings."""
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for name in (counterpart for _, counterpart in ROWS if counterpart):
        first, *others = name.split(".")
        found, value = schema["properties"][first], defaults[first]
        for one in others:
            found = found["properties"][one]
            value = value if first == "settings" else value[one]
        assert found, name


def workload_pods(documents: list[Document]) -> list[Document]:
    """Pod specs of the Deployment and of the Jobs."""
    return [one["spec"]["template"]["spec"] for one in documents if one["kind"] in ("Deployment", "Job")]


POD_VALUES: dict[str, Any] = {
    "schedulerName": "custom-scheduler",
    "dnsPolicy": "Default",
    "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
    "hostNetwork": True,
    "initContainers": [
        {
            "name": "proxy",
            "image": "registry.example/proxy:1",
            "restartPolicy": "Always",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}


@pytest.mark.parametrize("field", POD_VALUES)
def test_pods_of_the_worker_and_of_a_promotion_have_the_field(field: str) -> None:
    pods = workload_pods(render_chart(ALL_VALUES))
    assert [pod[field] for pod in pods] == [POD_VALUES[field]] * 3
    assert all(pod.get(field) in (None, "ClusterFirst") for pod in workload_pods(render_chart()))


def test_security_contexts_are_merged_with_the_defaults() -> None:
    for pod in workload_pods(render_chart(ALL_VALUES)):
        assert pod["securityContext"]["fsGroup"] == 1000 and pod["securityContext"]["runAsNonRoot"]
        own = pod["containers"][0]["securityContext"]
        assert own["appArmorProfile"] == {"type": "RuntimeDefault"} and own["readOnlyRootFilesystem"]


DEPLOYMENT_VALUES: dict[str, Callable[[Document], Any]] = {
    "revisionHistoryLimit": lambda one: one["spec"]["revisionHistoryLimit"] == 3,
    "sidecarContainers": lambda one: (
        [container["name"] for container in one["spec"]["template"]["spec"]["containers"]] == ["worker", "logs"]
    ),
    "lifecycle": lambda one: (
        one["spec"]["template"]["spec"]["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    ),
    "podAffinity": lambda one: (
        set(one["spec"]["template"]["spec"]["affinity"]) == {"nodeAffinity", "podAffinity", "podAntiAffinity"}
    ),
}


@pytest.mark.parametrize("value", DEPLOYMENT_VALUES)
def test_deployment_has_the_value(value: str) -> None:
    assert DEPLOYMENT_VALUES[value](single_document(render_chart(ALL_VALUES), "Deployment"))


def test_sidecars_and_pod_affinity_are_not_in_the_jobs() -> None:
    """A sidecar would keep the Job running, and anti-affinity to workers would keep it pending."""
    for job in (one for one in render_chart(ALL_VALUES) if one["kind"] == "Job"):
        pod = job["spec"]["template"]["spec"]
        assert [one["name"] for one in pod["containers"]] == ["promotion"]
        assert set(pod["affinity"]) == {"nodeAffinity"}


def test_environment_comes_from_further_sources() -> None:
    for pod in workload_pods(render_chart(ALL_VALUES)):
        assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "proxy"}}]


def test_every_object_has_the_additional_labels_and_annotations() -> None:
    documents = render_chart(ALL_VALUES)
    for one in documents:
        assert one["metadata"]["labels"]["cost-center"] == "42", one["kind"]
        assert one["metadata"]["annotations"]["example.com/tier"] == "system", one["kind"]
    account = single_document(documents, "ServiceAccount")["metadata"]["annotations"]
    assert account["example.com/owner"] == "platform"
    assert account["eks.amazonaws.com/role-arn"] == "arn:aws:iam::123456789012:role/tenure"
    assert single_document(documents, "Service")["metadata"]["annotations"]["example.com/scrape"] == "true"
    assert "cost-center" not in single_document(documents, "Deployment")["spec"]["selector"]["matchLabels"]
    assert not [one for one in render_chart() if "example.com" in str(one["metadata"].get("annotations"))]


def test_additional_rules_are_bound_to_the_service_account() -> None:
    documents = render_chart(ALL_VALUES)
    role, binding = (one for one in documents if one["metadata"]["name"] == "nodes-additional")
    assert role["rules"] == [{"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", "nodes-additional")
    assert binding["subjects"][0]["name"] == single_document(documents, "ServiceAccount")["metadata"]["name"]
    without = render_chart(ALL_VALUES, "--set", "rbac.create=false")
    assert not [one for one in without if one["metadata"]["name"] == "nodes-additional"]


def test_service_monitor_has_the_options_of_karpenters_chart() -> None:
    spec = single_document(render_chart(ALL_VALUES), "ServiceMonitor")["spec"]
    (endpoint,) = spec["endpoints"]
    assert (spec["sampleLimit"], endpoint["scrapeTimeout"], endpoint["interval"]) == (50000, "10s", "15s")
    assert endpoint["relabelings"] == [{"action": "labeldrop", "regex": "pod"}]
    assert endpoint["metricRelabelings"][-1]["regex"] == "go_.*" and len(endpoint["metricRelabelings"]) == 3


def test_worker_resolves_names_without_coredns() -> None:
    """Karpenter documents the same policy for CoreDNS on its own nodes."""
    cloud = ("--set", "dnsPolicy=Default,settings.TEMPORAL_ADDRESS=prod.a1b2c.tmprl.cloud:7233")
    assert {pod["dnsPolicy"] for pod in workload_pods(render_chart(MINIMAL_VALUES, *cloud))} == {"Default"}
    assert pod_of(render_chart())["dnsPolicy"] == "ClusterFirst"


@pytest.mark.parametrize(
    ("flag", "expected_error"),
    [
        (
            "dnsPolicy=Default",
            "dnsPolicy: Default does not resolve TEMPORAL_ADDRESS temporal-frontend.temporal.svc:7233",
        ),
        ("dnsPolicy=Node", "'/dnsPolicy': value must be one of 'ClusterFirst'"),
        (
            "podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=kubernetes.io/hostname",
            "missing property 'labelSelector'",
        ),
        ("metrics.serviceMonitor.endpointConfig.interval=1m", "'/metrics/serviceMonitor/endpointConfig/interval'"),
        ("sidecarContainers[0].name=logs", "'/sidecarContainers/0': missing property 'image'"),
    ],
)
def test_value_that_cannot_work_is_rejected(flag: str, expected_error: str) -> None:
    assert expected_error in rejection_message("--set", flag)
