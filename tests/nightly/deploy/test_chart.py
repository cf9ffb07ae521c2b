"""The worker's chart, rendered by Helm: permissions, settings, placement, and rejected values."""

import re
import shutil
import urllib.request
from asyncio import to_thread
from pathlib import Path

import pytest
import yaml

from deploy.commands import associate_role
from deploy.resources import OPTIONAL_RBAC, rbac_documents
from tenure.apis.feature_gates import FeatureGate
from tenure.cli.main import load_command
from tenure.controller.process import Health
from tenure.sandbox.ports import Ports
from tenure.settings import AWS_GATES, GATES, Settings, load
from tenure.worker.temporal_workers import GRACE
from tests.nightly.deploy.charts import (
    ALL_VALUES,
    BUILD_SECONDS,
    CHART,
    CLOUD_VALUES,
    CRD_CHART,
    MINIMAL_VALUES,
    Document,
    environment_of,
    pod_of,
    rejection_message,
    render_chart,
    render_crds,
    run_helm,
    single_document,
    worker_container,
)
from tests.support.paths import ROOT
from tools.docs.settings import NOT_VALUES

pytestmark = pytest.mark.timeout(BUILD_SECONDS)
UNMANAGED = {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}
HELM_LABELS = ("helm.sh/", "app.kubernetes.io/")
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount", "Namespace")
INSTALL = (ROOT / "docs" / "getting-started" / "install.md").read_text()
WORKERS_PER_PROCESS = 3
"""Workers that one process stops in sequence, each within GRACE: launches, drains, all others."""


def without_helm_labels(documents: list[Document]) -> dict[tuple[str, str, str], Document]:
    """Documents by kind, namespace and name, without the labels that Helm adds."""
    found = {}
    for one in documents:
        meta = dict(one["metadata"])
        labels = {name: value for name, value in meta.pop("labels", {}).items() if not name.startswith(HELM_LABELS)}
        key = (one["kind"], meta.get("namespace", ""), meta["name"])
        found[key] = {**one, "metadata": meta | ({"labels": labels} if labels else {})}
    return found


@pytest.mark.parametrize("values", [MINIMAL_VALUES, CLOUD_VALUES, ALL_VALUES], ids=lambda path: path.stem)
def test_chart_has_no_lint_error(values: Path) -> None:
    result = run_helm("lint", "--strict", CHART, "--values", values)
    assert result.returncode == 0, result.stdout


def test_crd_chart_has_no_lint_error() -> None:
    assert run_helm("lint", "--strict", CRD_CHART).returncode == 0


def test_chart_has_the_shipped_rbac() -> None:
    rendered = without_helm_labels([one for one in render_chart() if one["kind"] in RIGHTS])
    shipped = without_helm_labels(rbac_documents())
    del shipped["Namespace", "", "tenure"]  # Helm creates the release's namespace.
    assert rendered == shipped


@pytest.mark.parametrize("setting", OPTIONAL_RBAC)
def test_setting_grants_its_optional_right(setting: str) -> None:
    gates = {one.value: f"{one.variable}.{one.value}" for one in FeatureGate}
    is_text = setting not in gates and Settings.model_fields[setting].annotation is str
    flags = ("--set-string" if is_text else "--set", f"settings.{gates.get(setting, setting.upper())}=true")
    rendered = without_helm_labels([one for one in render_chart(MINIMAL_VALUES, *flags) if one["kind"] in RIGHTS])
    shipped = without_helm_labels(rbac_documents([setting]))
    del shipped["Namespace", "", "tenure"]
    assert rendered == shipped and len(shipped) == len(rbac_documents()) + 1
    without = render_chart(MINIMAL_VALUES, *flags, "--set", "rbac.create=false")
    assert not [one for one in without if one["kind"].startswith("ClusterRole")]


def test_rbac_uses_the_namespace_of_the_release() -> None:
    documents = render_chart(ALL_VALUES, namespace="nodes-of-prod")
    for binding in (one for one in documents if one["kind"].endswith("Binding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "node-worker", "namespace": "nodes-of-prod"}]
    names = {(one["kind"], one["metadata"]["name"]) for one in documents if one["kind"] in ("ClusterRole", "Role")}
    assert {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in documents if "roleRef" in one} <= names
    (pause,) = [one for one in documents if one["kind"] == "Role" and one["metadata"]["name"] == "nodes-pause"]
    assert pause["metadata"]["namespace"] == "nodes-of-prod"
    assert pause["rules"][0]["resourceNames"] == ["nodes-of-prod"]


def test_crd_chart_has_the_shipped_crds_and_keeps_them() -> None:
    shipped = [yaml.safe_load(file.read_text()) for file in sorted((ROOT / "deploy" / "crds").glob("*.yaml"))]
    found = {one["metadata"]["name"]: one for one in render_crds()}
    assert set(found) == {one["metadata"]["name"] for one in shipped}
    for one in shipped:
        chart = found[one["metadata"]["name"]]
        assert chart["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert chart == one


@pytest.mark.parametrize("values", [MINIMAL_VALUES, ALL_VALUES], ids=lambda path: path.stem)
def test_worker_is_not_scheduled_on_managed_nodes(values: Path) -> None:
    """Terms are ORed, so each needs the expression."""
    affinity = pod_of(render_chart(values))["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms and all(UNMANAGED in term["matchExpressions"] for term in terms)
    assert len(terms) == (2 if values == ALL_VALUES else 1)


def test_replicas_are_spread_and_one_may_be_unavailable() -> None:
    documents = render_chart()
    deployment, budget = single_document(documents, "Deployment"), single_document(documents, "PodDisruptionBudget")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 2
    assert budget["spec"]["maxUnavailable"] == 1
    spread = pod_of(documents)["topologySpreadConstraints"]
    assert {one["topologyKey"] for one in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    selectors = [one["labelSelector"] for one in spread]
    selectors += [budget["spec"]["selector"], deployment["spec"]["selector"]]
    assert all(one["matchLabels"].items() <= labels.items() for one in selectors)


def test_grace_period_suffices_to_stop_all_workers() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    least = schema["properties"]["terminationGracePeriodSeconds"]["minimum"]
    assert pod_of(render_chart())["terminationGracePeriodSeconds"] > least > WORKERS_PER_PROCESS * GRACE.total_seconds()


@pytest.mark.parametrize("values", [MINIMAL_VALUES, ALL_VALUES], ids=lambda path: path.stem)
async def test_probes_use_the_ports_and_paths_of_the_worker(values: Path) -> None:
    documents = render_chart(values)
    container = worker_container(documents)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    settings = load_with(environment_of(documents))
    assert ports == {"http-metrics": settings.metrics_port, "http-health": settings.health_probe_port}
    port = Ports().reserve()
    health = Health(port, lambda: "")
    await health.start()
    try:
        for probe in ("livenessProbe", "readinessProbe"):
            http_get = container[probe]["httpGet"]
            assert http_get["port"] == "http-health"
            url = f"http://127.0.0.1:{port}{http_get['path']}"
            response = await to_thread(urllib.request.urlopen, url)
            assert response.status == 200
    finally:
        await health.close()


MONITORING = "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus"


@pytest.mark.parametrize(
    "flag",
    ["metrics.service.enabled=true", "metrics.serviceMonitor.enabled=true", MONITORING],
    ids=lambda one: one[:24],
)
def test_value_exposes_the_metrics_port(flag: str) -> None:
    documents = render_chart(MINIMAL_VALUES, "--set", flag)
    (port,) = single_document(documents, "Service")["spec"]["ports"]
    (rule,) = single_document(documents, "NetworkPolicy")["spec"]["ingress"]
    assert (port["port"], port["targetPort"], rule["ports"]) == (8080, "http-metrics", [{"port": "http-metrics"}])
    assert ("from" in rule) is (flag == MONITORING)


def test_metrics_port_is_not_exposed_by_default() -> None:
    documents = render_chart(MINIMAL_VALUES)
    assert not [one for one in documents if one["kind"] == "Service"]
    policy = single_document(documents, "NetworkPolicy")["spec"]
    assert (policy["policyTypes"], policy["ingress"]) == (["Ingress", "Egress"], [])


def test_metrics_port_0_removes_the_container_port() -> None:
    documents = render_chart(MINIMAL_VALUES, "--set", "settings.METRICS_PORT=0")
    container = worker_container(documents)
    assert [one["name"] for one in container["ports"]] == ["http-health"]
    assert load_with(environment_of(documents)).metrics_port == 0


def load_with(variables: dict[str, str]) -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        for name in Settings.model_fields:
            patch.delenv(name.upper(), raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        return load()


def test_values_become_settings_of_the_worker() -> None:
    settings = load_with(environment_of(render_chart(ALL_VALUES)))
    assert settings.feature_gates["NodeRepair"] and not settings.feature_gates["ReservedCapacity"]
    assert settings.kube_client_burst == 2_000_000
    assert settings.node_cost == 0.01
    assert settings.batch_idle_duration.total_seconds() == 0
    assert settings.drain_timeout.total_seconds() == 5400
    assert settings.temporal_tls


def test_every_setting_is_a_value_with_the_same_default(tmp_path: Path) -> None:
    """Writing out the defaults changes nothing."""
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]["settings"]
    names = {name.upper() for name in Settings.model_fields} - NOT_VALUES
    assert set(schema["properties"]) == names
    defaults = {name: one["default"] for name, one in schema["properties"].items() if "default" in one}
    defaults |= {"FEATURE_GATES": GATES, "AWS_FEATURE_GATES": AWS_GATES}
    more = tmp_path / "defaults.yaml"
    more.write_text(yaml.safe_dump({"settings": defaults}))
    variables = environment_of(render_chart(MINIMAL_VALUES, "--values", str(more)))
    assert set(variables) - NOT_VALUES == names
    assert load_with(variables) == load_with(environment_of(render_chart(MINIMAL_VALUES)))


def test_secrets_are_referenced_and_not_rendered() -> None:
    cloud, mutual = render_chart(CLOUD_VALUES), render_chart(ALL_VALUES)
    container = worker_container(cloud)
    (key,) = [one["secret"] for one in pod_of(cloud)["volumes"] if one["name"] == "temporal-key"]
    (mount,) = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == "temporal-key"]
    assert (key["secretName"], [one["key"] for one in key["items"]]) == ("temporal-cloud", ["token"])
    assert environment_of(cloud)["TEMPORAL_API_KEY_PATH"] == f"{mount}/{key['items'][0]['path']}"
    paths = {name: value for name, value in environment_of(mutual).items() if name.endswith("_PATH")}
    (volume,) = [one["secret"] for one in pod_of(mutual)["volumes"] if "secret" in one]
    container = worker_container(mutual)
    (mount,) = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == "temporal"]
    assert set(paths.values()) == {f"{mount}/{item['path']}" for item in volume["items"]}
    assert len(paths) == 3 and volume["secretName"] == "tenure-temporal"
    assert not [one for one in cloud + mutual if one["kind"] == "Secret"]


DIGEST = "sha256:0123456789abcdef" + 48 * "0"


@pytest.mark.parametrize(
    ("flag", "build"),
    [("image.tag=v7", "v7"), (f"image.digest={DIGEST}", "0.2.0+0123456789ab"), ("workerVersioning=false", None)],
)
def test_build_id_derives_from_the_image(flag: str, build: str | None) -> None:
    documents = render_chart(MINIMAL_VALUES, "--set", flag)
    assert environment_of(documents).get("TEMPORAL_WORKER_BUILD_ID") == build


def promotion_jobs(documents: list[Document]) -> tuple[Document, Document]:
    """The Job of each release, and that of a rollback."""
    promotion, rollback = sorted(
        (one for one in documents if one["kind"] == "Job"), key=lambda one: "-rollback" in one["metadata"]["name"]
    )
    return promotion, rollback


@pytest.mark.parametrize("values", [MINIMAL_VALUES, CLOUD_VALUES, ALL_VALUES], ids=lambda path: path.stem)
def test_promotion_has_the_permissions_and_the_connection_of_the_worker(values: Path) -> None:
    documents = render_chart(values)
    worker = pod_of(documents)
    container = worker_container(documents)
    for job in promotion_jobs(documents):
        pod = job["spec"]["template"]["spec"]
        own_fields = ("affinity", "containers", "restartPolicy")
        assert {name: value for name, value in pod.items() if name not in own_fields} == {
            name: value
            for name, value in worker.items()
            if name not in (*own_fields, "terminationGracePeriodSeconds", "topologySpreadConstraints")
        }
        assert pod["affinity"]["nodeAffinity"] == worker["affinity"]["nodeAffinity"]
        (own,) = pod["containers"]
        same = ("env", "envFrom", "image", "imagePullPolicy", "securityContext", "volumeMounts")
        assert {name: own.get(name) for name in same} == {name: container.get(name) for name in same}


def test_only_the_network_policy_selects_pods_of_a_promotion() -> None:
    documents = render_chart(ALL_VALUES)
    worker = single_document(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    policy = single_document(documents, "NetworkPolicy")["spec"]["podSelector"]
    (names,) = policy["matchExpressions"]
    for job in promotion_jobs(documents):
        labels = job["spec"]["template"]["metadata"]["labels"]
        for one in (labels, worker):
            assert policy["matchLabels"].items() <= one.items() and one[names["key"]] in names["values"]
        selectors = [
            single_document(documents, kind)["spec"]["selector"] for kind in ("Deployment", "PodDisruptionBudget")
        ]
        selectors = [one["matchLabels"] for one in selectors] + [
            single_document(documents, "Service")["spec"]["selector"]
        ]
        assert not [one for one in selectors if one.items() <= labels.items()]


def test_arguments_of_a_promotion_are_options_of_the_command() -> None:
    for job in promotion_jobs(render_chart(MINIMAL_VALUES, "--set", "image.tag=v7")):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        group, command, *options = container["args"]
        assert group == "build" and "--build=v7" in options
        parameters = load_command("build").commands[command].params
        known = {flag for one in parameters for flag in one.opts}
        assert {one.partition("=")[0] for one in options} <= known


def test_each_revision_has_its_own_promotion_and_the_rollback_is_a_hook() -> None:
    promotion, rollback = promotion_jobs(render_chart())
    assert "annotations" not in promotion["metadata"]
    assert rollback["metadata"]["annotations"]["helm.sh/hook"] == "post-rollback"
    changed, _ = promotion_jobs(render_chart(MINIMAL_VALUES, "--set", "image.tag=v7"))
    upgraded, _ = promotion_jobs(render_chart(MINIMAL_VALUES, "--set", "settings.LOG_LEVEL=debug"))
    assert len({one["metadata"]["name"] for one in (promotion, changed, upgraded)}) == 3
    longest, _ = promotion_jobs(render_chart(MINIMAL_VALUES, "--set", f"fullnameOverride={'n' * 60}"))
    assert len(longest["metadata"]["name"]) <= 63


@pytest.mark.parametrize("flag", ["promotion.enabled=false", "workerVersioning=false"])
def test_promotion_is_optional(flag: str) -> None:
    assert not [one for one in render_chart(MINIMAL_VALUES, "--set", flag) if one["kind"] == "Job"]


def test_network_policy_allows_ports_of_the_settings() -> None:
    egress = single_document(render_chart(ALL_VALUES), "NetworkPolicy")["spec"]["egress"]
    ports = {port["port"] for rule in egress for port in rule["ports"]}
    assert ports == {53, 443, 3128, 4318, 9090, 80, 8443}
    assert 7233 in {
        port["port"]
        for rule in single_document(render_chart(), "NetworkPolicy")["spec"]["egress"]
        for port in rule["ports"]
    }


def test_alerts_link_to_the_runbooks_of_the_documentation_site() -> None:
    rendered = render_chart(ALL_VALUES, "--set", "metrics.rules.docsUrl=https://docs.example.com/tenure/")
    (found, *_) = single_document(rendered, "PrometheusRule")["spec"]["groups"][0]["rules"]
    assert found["annotations"]["runbook_url"] == ("https://docs.example.com/tenure/operating/runbooks/node-overdue/")


def test_chart_has_the_shipped_alerts() -> None:
    shipped = [
        group
        for file in sorted((ROOT / "deploy" / "alerts").glob("*.yaml"))
        for group in yaml.safe_load(file.read_text())["groups"]
    ]
    assert single_document(render_chart(ALL_VALUES), "PrometheusRule")["spec"]["groups"] == shipped
    monitor, service = (
        single_document(render_chart(ALL_VALUES), "ServiceMonitor"),
        single_document(render_chart(ALL_VALUES), "Service"),
    )
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert not [one for one in render_chart() if one["apiVersion"].startswith("monitoring")]


def test_temporal_namespace_label_is_renamed() -> None:
    """The Prometheus operator adds the label `namespace` of the pod and renames that of the series."""
    (endpoint,) = single_document(render_chart(ALL_VALUES), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["metricRelabelings"][:2] == [
        {"sourceLabels": ["exported_namespace"], "targetLabel": "temporal_namespace"},
        {"action": "labeldrop", "regex": "exported_namespace"},
    ]


def test_chart_has_the_shipped_dashboards() -> None:
    shipped = {one.name: one.read_text().rstrip() for one in (ROOT / "deploy" / "dashboards").glob("*.json")}
    maps = [one for one in render_chart(ALL_VALUES) if one["kind"] == "ConfigMap"]
    assert {name: text.rstrip() for one in maps for name, text in one["data"].items()} == shipped
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in maps)
    assert not [one for one in render_chart() if one["kind"] == "ConfigMap"]


REJECTED_VALUES = [
    (["--set", "settings.CLUSTER_NAME=null"], "'/settings': missing property 'CLUSTER_NAME'"),
    (["--set", "settings.CLUSTER_NAME=a/b"], "/settings/CLUSTER_NAME': 'a/b' does not match pattern"),
    (["--set", "settings.TEMPORAL_ADDRESS=temporal"], "/settings/TEMPORAL_ADDRESS': 'temporal' does not match pattern"),
    (["--set", "settings.DRAIN_TIMOUT=1h"], "'/settings': additional properties 'DRAIN_TIMOUT' not allowed"),
    (["--set", "settings.DRAIN_TIMEOUT=10 min"], "/settings/DRAIN_TIMEOUT': '10 min' does not match pattern"),
    (["--set", "settings.LOG_LEVEL=loud"], "/settings/LOG_LEVEL': value must be one of 'debug', 'info', 'error'"),
    (["--set", "settings.RESERVED_ENIS=-1"], "/settings/RESERVED_ENIS': minimum: got -1, want 0"),
    (["--set", "settings.VM_MEMORY_OVERHEAD_PERCENT=1"], "exclusiveMaximum: got 1, want 1"),
    (["--set-string", "settings.ISOLATED_VPC=yes"], "/settings/ISOLATED_VPC': got string, want boolean"),
    (["--set", "settings.METRICS_PORT=-1"], "/settings/METRICS_PORT': minimum: got -1, want 0"),
    (["--set", "settings.HEALTH_PROBE_PORT=0"], "/settings/HEALTH_PROBE_PORT': minimum: got 0, want 1"),
    (
        ["--set", "settings.METRICS_PORT=0,metrics.service.enabled=true"],
        "METRICS_PORT: 0 disables the metrics",
    ),
    (["--set", "settings.FEATURE_GATES.NodeRepare=true"], "additional properties 'NodeRepare' not allowed"),
    (["--set", "settings.TEMPORAL_API_KEY=secret"], "additional properties 'TEMPORAL_API_KEY' not allowed"),
    (["--set", "image.repository="], "'/image/repository': minLength: got 0, want 1"),
    (["--set", "image.digest=latest"], "'/image/digest': 'latest' does not match pattern"),
    (["--set", "serviceAccount.roleArn=tenure"], "'/serviceAccount/roleArn': 'tenure' does not match pattern"),
    (["--set", "terminationGracePeriodSeconds=10"], "'/terminationGracePeriodSeconds': minimum: got 10, want 70"),
    (["--set", "podDisruptionBudget.maxUnavailable=0"], "'/podDisruptionBudget/maxUnavailable'"),
    (["--set", "promotion.rampPercentage=101"], "'/promotion/rampPercentage': maximum: got 101, want 100"),
    (["--set", "replica=3"], "additional properties 'replica' not allowed"),
]


@pytest.mark.parametrize(("flags", "expected_error"), REJECTED_VALUES, ids=[flags[1] for flags, _ in REJECTED_VALUES])
def test_invalid_value_is_rejected_by_name(flags: list[str], expected_error: str) -> None:
    assert expected_error in rejection_message(*flags)


NAMED = sorted(set(re.findall(r"`((?:temporal|metrics|networkPolicy)\.[a-zA-Z.]+)`", INSTALL)))


@pytest.mark.parametrize("name", NAMED)
def test_install_page_names_existing_values(name: str) -> None:
    found = yaml.safe_load((CHART / "values.yaml").read_text())
    for part in name.split("."):
        assert part in found, name
        found = found[part]


def test_chart_accepts_the_values_of_the_install_page(tmp_path: Path) -> None:
    (block,) = [one for one in re.findall(r"```yaml\n(.*?)```", INSTALL, flags=re.S) if "settings:" in one]
    values = tmp_path / "values.yaml"
    values.write_text(block)
    assert environment_of(render_chart(values))["CLUSTER_NAME"] == "prod"


def test_chart_accepts_the_flags_of_the_install_page(tmp_path: Path) -> None:
    flags = [part for one in re.findall(r"--set [\w.]+=\S+", INSTALL) for part in one.split()]
    flags = [one.replace("$CLUSTER", "prod").replace("$REGION", "eu-west-1") for one in flags]
    values = tmp_path / "values.yaml"
    values.write_text("{}")
    variables = environment_of(render_chart(values, *flags))
    assert set(variables) >= {"CLUSTER_NAME", "AWS_REGION", "INTERRUPTION_QUEUE", "TEMPORAL_ADDRESS"}


def test_install_page_names_every_crd() -> None:
    assert {one["metadata"]["name"] for one in render_crds()} <= set(re.findall(r"[a-z0-9]+(?:\.[a-z0-9-]+)+", INSTALL))


def test_notes_have_the_command_of_pod_identity_unless_a_role_is_set(tmp_path: Path) -> None:
    """`helm template` prints no notes, so a copy of the chart includes them in a document."""
    chart = tmp_path / "tenure"
    shutil.copytree(CHART, chart)
    include = '{{ include (print $.Template.BasePath "/NOTES.txt") . | indent 2 }}'
    (chart / "templates" / "notes.yaml").write_text(f"kind: Notes\ntext: |\n{include}\n")
    command = associate_role("demo", region="eu-west-1")
    region = ("--set", "settings.AWS_REGION=eu-west-1,settings.CLUSTER_NAME=demo")
    notes = single_document(render_chart(MINIMAL_VALUES, *region, chart=chart), "Notes")["text"]
    assert command in " ".join(notes.replace("\\\n", " ").split())
    role = ("--set", "serviceAccount.roleArn=arn:aws:iam::123456789012:role/tenure")
    assert "pod-identity" not in single_document(render_chart(MINIMAL_VALUES, *role, chart=chart), "Notes")["text"]
