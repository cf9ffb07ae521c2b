"""Writes docs/reference from the tables and the code: metrics, events, search attributes, conditions, annotations."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tenure.apis import labels
from tenure.controller.temporal.namespace import create_commands
from tenure.kube.client.event_reasons import EVENT_REASONS, EventReason
from tenure.metrics import METRICS
from tenure.model.blockers import BLOCKERS, INELIGIBILITIES, NEEDS_ATTENTION
from tools.metrics.catalog import KARPENTER_ONLY, TEMPORALS
from workflows import search_attributes

FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"
WRITTEN: Final = "<!-- Written by `python -m tools.generate`: change {source}, not this page. -->\n"

ATTRIBUTES: Final = {
    "TenureNodePool": "NodePool; `-` for a NodeClaim without one",
    "TenurePhase": "Launch, Registration, Initialization, Ready, Drain or Termination; of a command its step",
    "TenureBlockedBy": "the [code](reasons.md) of what it waits for; the sentence is in the details",
    "TenureInstanceType": "once launched",
    "TenureZone": "once launched",
    "TenureCapacityType": "spot, on-demand or reserved, once launched",
    "TenureNodeName": "once a Node joined",
    "TenureInstanceId": "once launched",
    "TenureOverdue": "true past the deadline of the phase",
    "TenurePaused": "true while a pause holds; else absent",
    "TenurePhaseSince": "when the phase began",
    "TenurePrice": "US dollars an hour, as the node was launched; absent where no price was known",
    "TenureDeadline": "when the phase is overdue, or what is waited for is due",
}
QUERIES: Final = (
    ("nodes that are overdue", "TenureOverdue = true AND ExecutionStatus = 'Running'"),
    ("nodes that drain", "TenurePhase = 'Drain' AND ExecutionStatus = 'Running'"),
    (
        "nodes of a NodePool",
        "TenureNodePool = 'general' AND WorkflowType = 'NodeClaim' AND ExecutionStatus = 'Running'",
    ),
    (
        "nodes that start",
        "TenurePhase IN ('Launch', 'Registration', 'Initialization') AND ExecutionStatus = 'Running'",
    ),
    (
        "what waits for a person",
        f"(TenureOverdue = true OR TenureBlockedBy IN {NEEDS_ATTENTION}) AND ExecutionStatus = 'Running'",
    ),
    ("what is paused", "TenurePaused = true AND ExecutionStatus = 'Running'"),
    ("the node of an instance, also a gone one", "TenureInstanceId = 'i-0123456789abcdef0'"),
)
CONDITIONS: Final[Mapping[str, Iterable[tuple[str, str]]]] = {
    "NodePool": (
        (labels.VALIDATION_SUCCEEDED, "the spec makes sense"),
        (labels.NODECLASS_READY, "its EC2NodeClass is Ready"),
        (labels.NODE_REGISTRATION_HEALTHY, "its latest nodes joined; does not feed Ready"),
    ),
    "NodeClaim": (
        (labels.LAUNCHED, "an instance was launched"),
        (labels.REGISTERED_CONDITION, "its Node joined"),
        (labels.INITIALIZED_CONDITION, "the Node is Ready, without startup taints, with all resources"),
        (labels.CONSOLIDATABLE, "it may be consolidated; False says why an empty node stays"),
        (labels.DRIFTED, "it differs from its NodePool or EC2NodeClass; the reason says in what"),
        (labels.DRAINED, "pods have left; Unknown says who has not"),
        (labels.VOLUMES_DETACHED, "volumes are detached; Unknown says which are not"),
        (labels.INSTANCE_TERMINATING, "EC2 was told to end the instance"),
        (labels.CONSISTENT_STATE_FOUND, "the Node has what the NodeClaim asked for"),
        (labels.DISRUPTION_REASON, "why it goes"),
        (labels.OVERDUE, "a phase is past its deadline; the reason is the phase"),
    ),
    "EC2NodeClass": (
        *((one, "that part was resolved") for one in labels.NODECLASS_CONDITIONS if one != labels.VALIDATION_SUCCEEDED),
        (labels.VALIDATION_SUCCEEDED, "a trial launch was allowed, and kubelet and user data make sense"),
        (labels.CAPACITY_RESERVATIONS_READY, "reservations were resolved, with the gate ReservedCapacity"),
        (labels.AWS_REACHABLE, "False while a part cannot be asked of AWS; does not feed Ready"),
        (labels.IMAGES_PINNED, "a failed roll-out keeps the last good image; does not feed Ready"),
    ),
    "LifecyclePolicy": ((labels.VALIDATION_SUCCEEDED, "it makes sense, and no other claims its NodePools"),),
    "NodeOverlay": ((labels.VALIDATION_SUCCEEDED, "it makes sense, and conflicts with none"),),
    "CapacityBuffer": (
        (labels.READY_FOR_PROVISIONING, "what it refers to was found"),
        (labels.PROVISIONING, "where its room is, or is to be bought"),
    ),
    "Pod": ((labels.NOMINATED, "with `NOMINATE_PODS`: the node on which a plan expects it"),),
}


def render_pages() -> Mapping[Path, str]:
    """Path to text."""
    return {
        FOLDER / "metrics.md": _metrics_page(),
        FOLDER / "events.md": _events_page(),
        FOLDER / "search-attributes.md": _search_attributes_page(),
        FOLDER / "reasons.md": _reasons_page(),
        FOLDER / "conditions.md": _conditions_page(),
        FOLDER / "annotations.md": _annotations_page(),
    }


def _metrics_page() -> str:
    ours = markdown_table(
        ("Metric", "Type", "Labels", "What it tells"),
        ((f"`{one.name}`", one.kind, " ".join(f"`{name}`" for name in one.labels), one.description) for one in METRICS),
    )
    temporals = markdown_table(("Metric", "Type", "What it tells"), ((f"`{name}`", *rest) for name, *rest in TEMPORALS))
    absent = "\n".join(f"- {one}" for one in KARPENTER_ONLY)
    return (
        WRITTEN.format(source="tenure/metrics.py")
        + "# Metrics\n\nAt `/metrics` on `METRICS_PORT` of every worker ([settings](../settings.md)); the chart "
        "[exposes](../security.md#connections) the port where a value asks for it. Names that begin with "
        "`karpenter_` are Karpenter's, and mean the same. Gauges of nodes and pools are told by the one worker that "
        "hosts the watch; others say 0 or nothing, so take `max` over workers. Alerts are in "
        "[deploy/alerts](../../deploy/alerts/tenure.yaml), a dashboard for Grafana is "
        "[deploy/dashboards/tenure.json](../../deploy/dashboards/tenure.json). Tests check the dashboard's fields, and "
        "its queries against the metrics here and by Prometheus' own tool; it was not loaded into a Grafana."
        f"\n\n{ours}\n"
        "## Of Temporal's SDK\nOn the same port; these are [all of Temporal's]"
        "(https://docs.temporal.io/references/sdk-metrics), with times in seconds.\n\n"
        f"{temporals}\n## Karpenter's that there are none of\nWithout `karpenter_`:\n\n{absent}\n"
    )


def _events_page() -> str:
    rows = markdown_table(
        ("Reason", "Type", "Object", "When", "What to do", "Since", "Example"),
        (
            (f"`{name}`", _event_type(one), one.objects, one.description, one.todo, one.since, f"`{one.example}`")
            for name, one in sorted(EVENT_REASONS.items())
        ),
    )
    return (
        WRITTEN.format(source="tenure/kube/client/event_reasons.toml")
        + "# Events\n\nFrom the component `karpenter`, in `kubectl describe` and `kubectl get events`. "
        "The same event about the same object is published once in two minutes. A launch that EC2 refuses has EC2's "
        "reason too, such as `Unauthorized`, and a node that drifts its reason, such as `AMIDrift`. "
        f"A [condition](conditions.md) that changes has an event of its type.\n\n{rows}"
    )


def _event_type(reason: EventReason) -> str:
    return "Warning" if reason.warning else "Normal"


def _search_attributes_page() -> str:
    rows = markdown_table(
        ("Attribute", "Type", "What it says"),
        ((f"`{name}`", kind, ATTRIBUTES[name]) for name, kind in search_attributes.ALL.items()),
    )
    queries = markdown_table(("To find", "Query"), ((what, f"`{query}`") for what, query in QUERIES))
    return (
        WRITTEN.format(source="workflows/search_attributes.py and tools/docs/reference.py")
        + "# Search attributes\n\nOf the workflows, in Temporal's UI and `temporal workflow list --query`. The worker "
        "registers what is missing at its start, [where it may](#by-hand); `tenure doctor` says which are missing."
        f"\n\n{rows}\n## Queries\n{queries}\n## By hand\n{_by_hand()}"
    )


def _reasons_page() -> str:
    blockers, ineligibilities = (
        markdown_table(
            ("Code", "Meaning", "What to do"), ((f"`{code}`", one.meaning, one.remedy) for code, one in reasons.items())
        )
        for reasons in (BLOCKERS, INELIGIBILITIES)
    )
    return (
        WRITTEN.format(source="tenure/model/blockers.py")
        + "# Blockers and ineligibility reasons\n\nThe sentence that goes with a code is in `tenure why`, "
        "`tenure stuck`, the workflow's details, conditions and events.\n\n## What a workflow waits for\n"
        "`TenureBlockedBy`. A node that EC2 gives no instance for has the reason of its "
        "condition `Launched`, such as `InsufficientCapacityError`."
        f"\n\n{blockers}\n## Why a node is not disrupted\nBy `tenure plan`, `tenure why` and "
        f"`tenure_disruption_excluded_nodes{{cause}}`.\n\n{ineligibilities}"
    )


def _by_hand() -> str:
    """How an administrator makes all of them, for workers that may not."""
    own, cloud = create_commands("NAMESPACE", search_attributes.ALL)
    return (
        "A worker that may not make them runs with those that somebody else made. On a service of your own:\n\n"
        f"    {own}\n\nIn Temporal Cloud, where it was not tried:\n\n    {cloud}\n"
    )


def _conditions_page() -> str:
    parts = (
        f"## {kind}\n{markdown_table(('Condition', 'True when'), ((f'`{n}`', w) for n, w in rows))}"
        for kind, rows in CONDITIONS.items()
    )
    return (
        WRITTEN.format(source="tools/docs/reference.py")
        + "# Conditions\n\nNames and reasons are Karpenter's where it has them. "
        "`Ready` stands on every kind but Pod, and is fed by those that this page does not except.\n\n"
        + "\n".join(parts)
    )


def _annotations_page() -> str:
    rows = markdown_table(
        ("Name", "Object", "Meaning", "Example", "Since"),
        (
            (f"`{one.name}`", one.objects, one.description, f"`{one.example}`", one.since)
            for one in sorted(labels.OWN_NAMES)
        ),
    )
    return (
        WRITTEN.format(source="tenure/apis/labels.py")
        + "# Annotations and conditions of Tenure\n\nKarpenter's are as in its manual. Of Tenure's own, only "
        f"`tenure.sh/pause` is for you to write ([pause](../pause.md)). JSON examples are shortened.\n\n{rows}"
    )


def markdown_table(head: tuple[str, ...], rows: Iterable[Iterable[str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
