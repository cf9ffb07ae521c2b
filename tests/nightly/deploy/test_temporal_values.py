"""The values for Temporal's own chart: their names exist in the chart, and they meet Tenure's requirements.

The chart itself is not in this repository. The last test renders it if its repository can be reached.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tenure.apis.quantity import cpu_millis, parse_quantity
from tenure.controller.temporal.doctor import TESTED_VERSIONS
from tests.nightly.deploy.charts import BUILD_SECONDS, Document, run_helm
from tests.support.paths import ROOT

pytestmark = pytest.mark.timeout(BUILD_SECONDS)
FILES: Final = tuple(ROOT / "deploy" / "charts" / f"temporal-values{one}.yaml" for one in ("", "-minimal"))
INSTALL: Final = (ROOT / "docs" / "getting-started" / "install.md").read_text()
UNMANAGED: Final = {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}
SERVICES: Final = ("frontend", "history", "matching", "worker")
OTHERS: Final = ("web", "admintools")
STORE: Final = (
    *("createDatabase", "manageSchema", "pluginName", "driverName", "databaseName", "user"),
    *("connectAddr", "connectProtocol", "existingSecret", "secretKey", "tls.enabled", "tls.enableHostVerification"),
    *("maxConns", "maxIdleConns", "maxConnLifetime"),
)
CHARTS_NAMES: Final = {
    *("shims.dockerize", "shims.elasticsearchTool"),
    *(f"server.config.persistence.{one}" for one in ("defaultStore", "visibilityStore", "numHistoryShards")),
    *(
        f"server.config.persistence.datastores.{store}.sql.{one}"
        for store in ("default", "visibility")
        for one in STORE
    ),
    *(f"server.config.namespaces.{one}" for one in ("create", "namespace")),
    *(
        f"server.{service}.{one}"
        for service in SERVICES
        for one in ("replicaCount", "podDisruptionBudget", "resources", "topologySpreadConstraints")
    ),
    *(f"{part}.resources" for part in OTHERS),
    *(f"{part}.affinity" for part in ("server", *OTHERS)),
}
"""Names of chart 1.x. Look up a new name in the chart's templates before you add it."""
OBJECTS: Final = ("affinity", "podDisruptionBudget", "resources")
"""Values that Kubernetes defines."""
DATABASES: Final = {"db.t4g.medium": 4, "db.t4g.small": 2}
"""Memory in GiB of instance classes."""
BYTES_PER_CONNECTION: Final = 9531392
"""max_connections of RDS for PostgreSQL is the memory of the instance divided by this."""


def merged(first: Any, second: Any) -> Any:
    """As Helm merges two files: the second one takes precedence."""
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return second
    return {**first, **{name: merged(first.get(name), value) for name, value in second.items()}}


PRODUCTION: Final[dict[str, Any]] = yaml.safe_load(FILES[0].read_text())
MINIMAL: Final[dict[str, Any]] = merged(PRODUCTION, yaml.safe_load(FILES[1].read_text()))
SETUPS = pytest.mark.parametrize(("name", "values"), [("production", PRODUCTION), ("minimal", MINIMAL)])


def test_every_value_is_a_known_name_of_the_chart() -> None:
    assert set(paths_of(PRODUCTION)) == set(paths_of(MINIMAL)) == CHARTS_NAMES


def paths_of(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """Dotted paths down to lists and to objects that Kubernetes defines."""
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and name not in OBJECTS:
            yield from paths_of(value, f"{path}.")
        else:
            yield path


def test_each_service_has_a_budget_and_enough_replicas_for_it() -> None:
    for name in SERVICES:
        service = PRODUCTION["server"][name]
        assert service["replicaCount"] > service["podDisruptionBudget"]["maxUnavailable"] > 0
        (spread,) = service["topologySpreadConstraints"]
        assert spread["topologyKey"] == "kubernetes.io/hostname"
        assert spread["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == name


@SETUPS
def test_documented_size_is_that_of_the_values(name: str, values: dict[str, Any]) -> None:
    (row,) = re.findall(rf"^\| {name}.*\|$", INSTALL, flags=re.M)
    pods = [
        values["server"][one]["resources"] for one in SERVICES for _ in range(values["server"][one]["replicaCount"])
    ]
    requests = [one["requests"] for one in (*pods, *(values[other]["resources"] for other in OTHERS))]
    cores = sum(cpu_millis(one["cpu"]) for one in requests) / 1000
    memory = sum(parse_quantity(one["memory"]) for one in requests) / 2**30
    assert f"| {len(requests)}: {cores:.1f} cores, {memory:.1f} GiB |" in row
    ((kind, gib),) = [(kind, gib) for kind, gib in DATABASES.items() if kind in row]
    stores = values["server"]["config"]["persistence"]["datastores"].values()
    connections = len(pods) * sum(one["sql"]["maxConns"] for one in stores)
    assert connections < 0.9 * gib * 2**30 / BYTES_PER_CONNECTION, kind


@SETUPS
def test_temporal_avoids_managed_nodes_and_keeps_histories_30_days(name: str, values: dict[str, Any]) -> None:
    server = values["server"]
    for part in (server, *(values[other] for other in OTHERS)):
        required = part["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert [UNMANAGED in term["matchExpressions"] for term in required["nodeSelectorTerms"]] == [True]
    stores = server["config"]["persistence"]["datastores"]
    names = {store: one["sql"]["databaseName"] for store, one in stores.items()}
    assert names == {"default": "temporal", "visibility": "temporal_visibility"}
    assert not [one for one in stores.values() if "password" in one["sql"]]
    assert [one["retention"] for one in server["config"]["namespaces"]["namespace"]] == ["30d"]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Temporal's chart, by the repository and the version of the documented command."""
    (repository, version), *others = set(re.findall(r"--repo (\S+) --version (\S+)", INSTALL + FILES[0].read_text()))
    assert not others
    folder = tmp_path_factory.mktemp("chart")
    pulled = run_helm(
        "pull", "temporal", "--repo", repository, "--version", version, "--untar", "--untardir", str(folder)
    )
    if pulled.returncode:
        pytest.skip(f"no chart: {pulled.stderr.strip()}")
    return folder / "temporal"


def test_chart_renders_the_services_of_both_setups(chart: Path) -> None:
    metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert metadata["appVersion"] in TESTED_VERSIONS
    for files, replicas in ((FILES[:1], 2), (FILES, 1)):
        documents = render(chart, files)
        deployments = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "Deployment"}
        assert {f"temporal-{one}" for one in (*SERVICES, *OTHERS)} == deployments.keys()
        assert [deployments[f"temporal-{one}"]["replicas"] for one in SERVICES] == [replicas] * 4
        assert all("karpenter.sh/nodepool" in yaml.safe_dump(one["template"]) for one in deployments.values())
        budgets = [one for one in documents if one["kind"] == "PodDisruptionBudget"]
        assert len(budgets) == (4 if replicas > 1 else 0)
        (config,) = [one for one in documents if one["metadata"]["name"] == "temporal-config"]
        (text,) = config["data"].values()
        assert PRODUCTION["server"]["config"]["persistence"]["datastores"]["default"]["sql"]["connectAddr"] in text
        assert "temporal_visibility" in text and "numHistoryShards: 512" in text


def render(chart: Path, files: tuple[Path, ...]) -> list[Document]:
    values = [part for file in files for part in ("--values", file)]
    result = run_helm("template", "temporal", chart, "--namespace", "temporal", *values)
    assert result.returncode == 0, result.stderr
    return [one for one in yaml.safe_load_all(result.stdout) if one]
