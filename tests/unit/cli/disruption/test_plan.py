"""`tenure plan`, and the part of `tenure why` that explains why a node or pod is kept."""

from datetime import UTC, datetime

from tenure.cli.disruption.plan import format_status
from tenure.cli.nodes.timeline import NodeExplanation
from tenure.cli.nodes.why import as_json, format_disruption_status
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.model.disruption.decision import Ineligibility, NodeVerdict
from tenure.model.operator_requests import CommandPreview, DisruptionStatus

SINGLE = CommandPreview(
    reason="Underutilized",
    nodes=("n1",),
    replacements=("general: m.large or 4 more",),
    pods=3,
    price_before=0.4,
    price_after=0.1,
    why="n1: 3 pods get 1 new nodes",
)
EMPTY = CommandPreview(reason="Empty", nodes=("n2", "n3", "n4", "n5"), price_before=0.8, why="no pod has to move")


def render_text(found: DisruptionStatus) -> str:
    return "\n".join(map(str, format_status(found)))


def test_plan_is_a_table_with_savings() -> None:
    output = render_text(
        DisruptionStatus(commands=(SINGLE, EMPTY), more=2, nodes=9, eligible=5, ineligible={"Paused": 3, "Resting": 1})
    )
    assert "general: m.large or 4 more" in output and "n2, n3, n4 and 1 more" in output and "0.3000" in output
    assert "and 2 more\n9 nodes, 5 eligible; blocked: Paused 3, Resting 1" in output
    assert "5 nodes deleted, 1 launched: saves 1.1 $/h, 803 $/month." in output


def test_empty_plan_lists_ineligibility_reasons() -> None:
    output = render_text(DisruptionStatus(nodes=2, ineligible={"Paused": 2}))
    nothing = "No node would be disrupted now; `tenure why NODE` shows what blocks a node."
    assert output == f"2 nodes, 0 eligible; blocked: Paused 2\n{nothing}"
    assert render_text(DisruptionStatus(blocked="no worker responded")) == "no plan available: no worker responded"


def test_plan_json_is_complete() -> None:
    found = as_json(DisruptionStatus(at=datetime(2026, 1, 1, tzinfo=UTC), commands=(SINGLE,), nodes=1))
    assert found["commands"][0]["price_after"] == 0.1 and found["at"] == "2026-01-01T00:00:00Z"


def test_node_lists_all_ineligibility_reasons() -> None:
    exclusion = Ineligibility(cause="Paused", message="it is paused: audit", methods=("Empty", "Drifted"))
    verdict = NodeVerdict(
        claim="c1", node="n1", excluded=(exclusion,), eligible=("Underutilized",), rejected=("too dear",)
    )
    lines = format_disruption_status(DisruptionStatus(verdicts=(verdict,), messages=("first",)))
    assert lines == [
        "first",
        "not disrupted (Paused; blocks Empty, Drifted): it is paused: audit",
        "eligible for Underutilized",
        "still blocked: too dear",
    ]
    nodeclaim = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready")
    assert (
        "  disruption  eligible for Underutilized"
        in NodeExplanation(nodeclaim, disruption=lines).format_text().splitlines()
    )
    assert (
        format_disruption_status(DisruptionStatus(commands=(SINGLE,)))[0]
        == "would be disrupted now (Underutilized): n1: 3 pods get 1 new nodes"
    )
    assert format_disruption_status(DisruptionStatus(blocked="caches are too old")) == ["unknown: caches are too old"]
