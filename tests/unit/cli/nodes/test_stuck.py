"""`tenure stuck` and `tenure startup-times`: overdue nodes with the next action, slow nodes, slowest first."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from tenure.cli.nodes.startups import as_json as startup_json
from tenure.cli.nodes.startups import sort_slowest_first, startup_times_table
from tenure.cli.nodes.stuck import (
    NEEDING_ATTENTION,
    SLOW_ONES,
    PausedObject,
    RegistrationState,
    StuckItem,
    nodeclass_item,
    nodepool_item,
    not_ready_item,
    pending_pod_item,
    stuck_result,
)
from tenure.cli.nodes.workflows import MAX_QUERIES, NodeClaimSummary, query_states, with_verdict
from tenure.model.blockers import BACKOFF, NO_NODEPOOL_FITS, PENDING_PODS, Verdict
from tenure.model.errors import InvalidObject
from tenure.model.facts import NodeClaimFact
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import Registrations, StartupOutcome
from tenure.model.operator_requests import PendingPodGroup
from tenure.model.plan import FIRST_BACKOFF, ProvisioningBackoff
from tenure.model.workflow_states import NodeClassState
from tenure.policy.lifecycle.verdict import verdict_of
from tests.unit.policy.builders import node

NOW = datetime.now(UTC)


def make_nodeclaim(name: str, **more: Any) -> NodeClaimSummary:
    fields: dict[str, Any] = {"phase": "Initialization", "pool": "gpu", "since": NOW - timedelta(hours=1), **more}
    return NodeClaimSummary(workflow_id=f"demo/nodeclaim/{name}/u", name=name, **fields)


def capture_stuck(
    overdue: list[NodeClaimSummary],
    slow: list[NodeClaimSummary],
    follows: dict[str, str],
    items: Sequence[StuckItem] = (),
) -> tuple[int, str]:
    result = stuck_result(overdue, slow, follows, (), items, NOW)
    return result.code, "\n".join(map(str, result.parts))


def test_overdue_node_shows_deadline_action_and_blocker() -> None:
    late = make_nodeclaim("a", overdue=True, deadline=NOW - timedelta(minutes=30), blocked_by="needs attention: fix it")
    code, output = capture_stuck([late], [], {late.workflow_id: "alarm"})
    assert code == 1
    for part in ("gpu", "Initialization", "1h00m ago", "30m", "late", "alarm", "needs attention: fix it"):
        assert part in output


def test_known_pages_of_nodes_follow_their_tables() -> None:
    url = "https://ui/namespaces/default/workflows/demo%2Fnodeclaim%2Fa%2Fu"
    nodes = [make_nodeclaim("a", url=url, overdue=True), make_nodeclaim("b", overdue=True)]
    result = stuck_result(nodes, (), {}, (), (), NOW)
    assert f"a  {url}" in result.parts and not any("b  " in str(one) for one in result.parts[1:])
    assert [one["workflowUrl"] for one in cast(dict[str, Any], result.data)["overdue"]] == [url, None]


def test_slow_nodes_are_listed_separately_without_failure() -> None:
    code, output = capture_stuck(
        [], [make_nodeclaim("b", deadline=NOW + timedelta(minutes=5), blocked_by="slow: NodeNotReady")], {}
    )
    assert code == 0
    assert output.index("No node needs attention") < output.index("Slow") < output.index("slow: NodeNotReady")


def test_invalid_objects_are_listed_with_problem() -> None:
    invalid = InvalidObject(kind="Pod", name="default/a", reason="InvalidField", message="spec: expected an object")
    result = stuck_result([], [], {}, (), (), NOW, [invalid])
    output = "\n".join(map(str, result.parts))
    assert all(part in output for part in ("Invalid objects", "default/a", "spec: expected an object"))
    assert result.code == 1


def test_nodeclass_that_is_not_ready_is_listed_with_its_message() -> None:
    state = NodeClassState(cluster="demo", name="gpu", ready="False", message="SubnetsReady: no subnet matches")
    code, output = capture_stuck([], [], {}, [nodeclass_item(state)])
    assert code == 1 and "EC2NodeClass gpu" in output and "SubnetsReady: no subnet matches" in output


def test_nodepool_whose_validation_failed_is_listed() -> None:
    item = not_ready_item("gpu", {"ValidationSucceeded": "spec.template.spec.expireAfter: invalid"})
    code, output = capture_stuck([], [], {}, [item])
    assert code == 1 and item.code == "NodePoolNotReady" and "NodePool gpu" in output
    assert item.blocked_by == "ValidationSucceeded: spec.template.spec.expireAfter: invalid"


def test_blockers_that_do_not_clear_by_themselves_are_selected() -> None:
    assert "'PodDisruptionBudgetAllowsNone'" in NEEDING_ATTENTION and "'PodDisruptionBudget'" not in NEEDING_ATTENTION


def test_pod_whose_nodes_do_not_help_is_listed_with_the_message_of_kube_scheduler() -> None:
    backoff = ProvisioningBackoff(
        pod_group="g",
        pod="shop/web",
        pods=2,
        unused_nodes=4,
        nodeclaims=("a", "b", "c", "d"),
        since=NOW - timedelta(hours=1),
        last_unused_at=NOW,
        scheduler_message="0/4 nodes are available: 4 Insufficient cpu.",
    )
    item = pending_pod_item(make_pod_group(pods=2, code=BACKOFF, sentence=backoff.describe()))
    assert (item.what, item.since) == ("pod shop/web and 1 more", backoff.since)
    for part in (
        "4 nodes were launched",
        "(b, c, d)",
        "4 Insufficient cpu.",
        f"{NOW + 2 * FIRST_BACKOFF:%H:%M:%S} UTC",
    ):
        assert part in item.blocked_by
    assert capture_stuck([], [], {}, [item])[0] == 1


def make_pod_group(pods: int = 1, code: str = NO_NODEPOOL_FITS, sentence: str = "pool gpu: arm64") -> PendingPodGroup:
    verdict = Verdict(
        code=code,
        sentence=sentence,
        since=NOW - timedelta(hours=1),
        clears_by_itself=False,
        remedy=PENDING_PODS[code].remedy,
        deadline=None,
    )
    return PendingPodGroup(pod="shop/web", pods=pods, verdict=verdict)


def test_pod_without_a_possible_node_is_listed_with_code_and_remedy() -> None:
    item = pending_pod_item(make_pod_group())
    result = stuck_result([], [], {}, (), [item], NOW)
    found = result.data["late"][0]
    assert result.code == 1 and (found["code"], found["sentence"]) == ("NoNodePoolFits", "pool gpu: arm64")
    assert item.what == "pod shop/web"
    assert item.blocked_by.startswith("needs attention: change the pod's node selector")
    assert item.blocked_by.endswith("; NoNodePoolFits: pool gpu: arm64")


def test_pending_pods_that_could_not_be_checked_are_a_failure() -> None:
    result = stuck_result([], [], {}, (), (), NOW, pods_unknown="no worker responded")
    assert result.code == 1 and "Pending pods are unknown: no worker responded" in result.parts


OVERDUE = make_nodeclaim("a", overdue=True)
INVALID = InvalidObject(kind="Pod", name="default/a", reason="InvalidField", message="spec: expected an object")


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    ("sections", "key", "code"),
    [
        pytest.param({}, "", 0, id="nothing"),
        pytest.param({"overdue": [OVERDUE]}, "overdue", 1, id="overdue"),
        pytest.param({"slow": [OVERDUE]}, "slow", 0, id="slow"),
        pytest.param({"paused": [PausedObject("NodePool web")]}, "paused", 0, id="paused"),
        pytest.param({"items": [StuckItem("command 12ab", "Undo", None, "-")]}, "late", 1, id="command"),
        pytest.param({"invalid": [INVALID]}, "invalidObjects", 1, id="invalid"),
        pytest.param({"pods_unknown": "no worker responded"}, "podsUnknown", 1, id="pods unknown"),
        *(
            pytest.param({"items": [pending_pod_item(make_pod_group(code=code))]}, "late", 1, id=code)
            for code, reason in PENDING_PODS.items()
            if not reason.clears_by_itself
        ),
    ],
)
def test_exit_code_is_1_if_a_section_that_needs_attention_is_not_empty(
    capsys: pytest.CaptureFixture[str], sections: dict[str, Any], key: str, code: int, output: str
) -> None:
    empty: dict[str, Any] = {"overdue": (), "slow": (), "follows": {}, "paused": (), "items": ()}
    assert stuck_result(**{**empty, **sections}, now=NOW).print(output) == code
    printed = capsys.readouterr().out
    if output == "json":
        assert [name for name, listed in json.loads(printed).items() if listed] == [key] * bool(key)
    else:
        assert printed.strip()


def test_overdue_node_has_code_and_sentence_of_its_verdict() -> None:
    state = node(
        phase=Phase.DRAIN, overdue=True, blocked_by="PodDisruptionBudget web", blocked_code="PodDisruptionBudget"
    )
    verdict, late = verdict_of(state), make_nodeclaim("a", overdue=True, blocked_by="DrainOverdue")
    late = with_verdict(late, verdict)
    result = stuck_result([late], [], {}, (), (), NOW)
    assert "PodDisruptionBudget: needs attention" in str(result.parts[0])
    (found,) = result.data["overdue"]
    assert verdict and (found["code"], found["sentence"]) == (verdict.code, verdict.sentence)
    assert found["blockedBy"] == verdict.message


async def test_states_of_more_objects_than_are_queried_at_once_are_read() -> None:
    names = [f"class-{number}" for number in range(2 * MAX_QUERIES + 1)]
    client = Mock(get_workflow_handle=lambda name: Mock(query=AsyncMock(return_value=name)))
    assert await query_states(client, names, NodeClassState) == {name: name for name in names}


def test_nodepool_whose_nodes_do_not_start_is_listed() -> None:
    failed = [StartupOutcome(uid=str(number), at=NOW, registered=False, message="no AMI") for number in range(9)]
    found = nodepool_item(RegistrationState(name="web", registrations=Registrations(outcomes=tuple(failed))))
    assert found and found.what == "NodePool web" and "failed to start, the last: no AMI" in found.blocked_by
    assert nodepool_item(RegistrationState(name="web")) is None


def test_no_overdue_node_is_one_line() -> None:
    assert capture_stuck([], [], {}) == (0, "No node needs attention.")


def test_overdue_rollouts_and_commands_are_listed() -> None:
    late = [
        StuckItem("rollout of NodePool web", "-", None, "needs attention: tenure approve web-3f2a9c"),
        StuckItem("command 12ab", "Undo", NOW - timedelta(minutes=20), "the API server does not answer"),
    ]
    code, output = capture_stuck([], [], {}, late)
    assert code == 1
    for part in ("rollout of NodePool web", "tenure approve web-3f2a9c", "command 12ab", "Undo", "20m00s ago"):
        assert part in output


def test_queries_select_running_workflows_only() -> None:
    assert all("ExecutionStatus = 'Running'" in one for one in (NEEDING_ATTENTION, SLOW_ONES))


def make_claim_fact(name: str, *ends: float | None, **more: Any) -> NodeClaimFact:
    """`ends` are the seconds from creation to launch, registration and initialization."""
    born = NOW - timedelta(seconds=1000)
    times = [born + timedelta(seconds=one) if one is not None else None for one in ends]
    names = ("launched_at", "registered_at", "initialized_at")
    fields: dict[str, Any] = {"uid": name, "created": born, "pool": "gpu", "initialized": times[2] is not None}
    return NodeClaimFact(name=name, **{**fields, **dict(zip(names, times, strict=True)), **more})


def test_slowest_node_is_first_and_running_phase_counts_until_now() -> None:
    claims = [
        make_claim_fact("quick", 5, 35, 60),
        make_claim_fact("under-way", 5, None, None),
        make_claim_fact("slow", 5, 40, 500),
    ]
    found = sort_slowest_first(claims, NOW)
    assert [(one.claim.name, one.running) for one in found] == [
        ("under-way", "registration"),
        ("slow", ""),
        ("quick", ""),
    ]
    assert found[1].lengths["initialization"] == timedelta(seconds=460) and "initialization" not in found[0].lengths
    assert "16m35s so far" in str(startup_times_table(found))


def test_node_deleted_before_ready_has_no_startup_time() -> None:
    assert sort_slowest_first([make_claim_fact("a", 5, None, None, deleting=True)], NOW) == []


def test_json_has_action_and_null_for_unknown_values() -> None:
    late = make_nodeclaim("a", overdue=True, deadline=NOW, blocked_by="mend it")
    other = make_nodeclaim("b", overdue=True)
    paused, items = [PausedObject("NodePool web")], [StuckItem("x", "-", None, "y")]
    found = stuck_result([late, other], [], {late.workflow_id: "alarm"}, paused, items, NOW).data
    assert [(one["nodeClaim"], one["action"]) for one in found["overdue"]] == [("a", "alarm"), ("b", None)]
    assert found["overdue"][0]["deadline"] == NOW.isoformat()
    assert found["paused"] == [{"what": "NodePool web", "pause": None}]
    assert found["late"][0] == {
        "what": "x",
        "step": "-",
        "since": None,
        "blockedBy": "y",
        "code": "",
        "sentence": "y",
    }
    json.dumps(found)


def test_startup_json_has_seconds_and_null_for_future_phases() -> None:
    (found,) = sort_slowest_first([make_claim_fact("under-way", 5, None, None)], NOW)
    result = startup_json(found)
    assert (
        result["launchSeconds"] == 5 and result["initializationSeconds"] is None and result["running"] == "registration"
    )
    json.dumps(result)
