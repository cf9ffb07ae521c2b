"""Planning cases from bug reports and reviews, by their ID: `tests/cases/*/ID.*`."""

from collections import Counter
from pathlib import Path

import pytest
import yaml
from _pytest.capture import CaptureFixture

from tests.support.cases import case_file
from tests.unit.cli.simulate.test_cases import files, simulate


@pytest.mark.parametrize(
    ("case", "cheapest", "existing", "unschedulable"),
    [
        ("dra-claim", [], {}, {"trainer": "spec.resourceClaims: Dynamic Resource Allocation is not supported"}),
        ("resize-infeasible", [], {"node-1": ["new"]}, {}),
        ("daemonset-live-requests", ["c6a.xlarge"], {}, {}),
        (
            "daemonset-host-network",
            [],
            {},
            {"web": "pool general: host port 8080 is taken by a DaemonSet on each instance type that fits"},
        ),
        ("preferred-match-fields", ["c6a.large"], {}, {}),
        ("daemonset-device", ["c6a.large"], {}, {}),
    ],
)
def test_case(
    capsys: CaptureFixture[str],
    case: str,
    cheapest: list[str],
    existing: dict[str, list[str]],
    unschedulable: dict[str, str],
) -> None:
    exit_code, found, err = simulate(capsys, *files(case))
    assert (exit_code, err) == (0, "")
    assert [one["instanceTypes"][0] for one in found["nodes"]] == cheapest
    assert (found["existing"], found["unschedulable"]) == (existing, unschedulable)


def test_preferred_match_fields_are_ignored_with_preferences(capsys: CaptureFixture[str]) -> None:
    _, found, _ = simulate(capsys, *files("preferred-match-fields"), "--preference-policy", "Ignore")
    assert [one["pods"] for one in found["nodes"]] == [["app"]] and not found["unschedulable"]


def test_spread_no_requests(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    """As with `cpu: 1m`: the zone of the full pool counts."""
    _, found, _ = simulate(capsys, *files("spread-no-requests"))
    zones = Counter(zone for one in found["nodes"] for zone in one["zones"] for _ in one["pods"])
    assert zones == {"us-west-2a": 1, "us-west-2b": 1} and len(found["unschedulable"]) == 8


def test_pinned_pod(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    """The node that it is pinned to terminates: the pod ends with it and needs no other node."""
    pinned = yaml.safe_load(case_file("pinned-pod.pod.yaml").read_text().replace("NODE", "node-1"))
    pinned["spec"]["nodeName"], pinned["status"] = "node-1", {"phase": "Running"}
    (node, _) = yaml.safe_load_all(case_file("resize-infeasible.nodes.yaml").read_text())
    node["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["karpenter.sh/termination"]}
    moved = {**pinned, "metadata": {"name": "moved"}, "spec": {**pinned["spec"], "affinity": {}}}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all([node, pinned, moved]))
    waiting = {**moved, "metadata": {"name": "waiting"}, "spec": {**moved["spec"], "nodeName": ""}, "status": {}}
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump(waiting))
    arguments: list[str | Path] = ["--nodepools", case_file("pool.yaml"), "--pods", tmp_path / "pods.yaml", "--nodes"]
    _, found, _ = simulate(capsys, *arguments, tmp_path / "nodes.yaml")
    assert sorted(pod for one in found["nodes"] for pod in one["pods"]) == ["moved", "waiting"]
    assert not found["unschedulable"]


def test_other_scheduler(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    """A pod of another scheduler gets a node, as with Karpenter."""
    arguments: list[str | Path] = [
        "--nodepools",
        case_file("pool.yaml"),
        "--pods",
        case_file("other-scheduler.pod.yaml"),
    ]
    _, found, _ = simulate(capsys, *arguments)
    assert [one["pods"] for one in found["nodes"]] == [["queued"]] and not found["unschedulable"]
