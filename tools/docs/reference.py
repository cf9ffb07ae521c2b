"""Render docs/reference from the registries: metrics, events, search attributes, conditions, annotations."""

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tenure.apis import labels
from tenure.controller.temporal.namespace import create_commands
from tenure.kube.client.event_reasons import EVENT_REASONS, EventReason
from tenure.metrics import METRICS
from tenure.model.blockers import BLOCKERS, INELIGIBILITIES, NEEDS_ATTENTION, PENDING_PODS
from tools.docs import reasons as reason_pages
from tools.metrics.catalog import KARPENTER_ONLY, TEMPORALS
from workflows import search_attributes

WIDTH: Final = 100
FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"
WRITTEN: Final = "<!-- Written by `python -m tools.generate`: change {source}, not this page. -->\n"

ATTRIBUTES: Final = {
    "TenureNodePool": "NodePool; `-` for a NodeClaim without one",
    "TenurePhase": "Launch, Registration, Initialization, Ready, Drain or Termination; for a command, its step",
    "TenureBlockedBy": "the [code](reasons.md) of the blocker; the details have the message",
    "TenureInstanceType": "set after launch",
    "TenureZone": "set after launch",
    "TenureCapacityType": "spot, on-demand or reserved; set after launch",
    "TenureNodeName": "set after registration",
    "TenureInstanceId": "set after launch",
    "TenureOverdue": "true past the deadline of the phase",
    "TenurePaused": "true during a pause; otherwise absent",
    "TenurePhaseSince": "start of the phase",
    "TenurePrice": "US dollars per hour at launch; absent if unknown",
    "TenureDeadline": "time at which the phase becomes overdue or a wait ends",
}
QUERIES: Final = (
    ("overdue nodes", "TenureOverdue = true AND ExecutionStatus = 'Running'"),
    ("draining nodes", "TenurePhase = 'Drain' AND ExecutionStatus = 'Running'"),
    (
        "nodes of a NodePool",
        "TenureNodePool = 'general' AND WorkflowType = 'NodeClaim' AND ExecutionStatus = 'Running'",
    ),
    (
        "starting nodes",
        "TenurePhase IN ('Launch', 'Registration', 'Initialization') AND ExecutionStatus = 'Running'",
    ),
    (
        "items that need attention",
        f"(TenureOverdue = true OR TenureBlockedBy IN {NEEDS_ATTENTION}) AND ExecutionStatus = 'Running'",
    ),
    ("paused items", "TenurePaused = true AND ExecutionStatus = 'Running'"),
    ("the node of an instance, also after its deletion", "TenureInstanceId = 'i-0123456789abcdef0'"),
)
CONDITIONS: Final[Mapping[str, Iterable[tuple[str, str]]]] = {
    "NodePool": (
        (labels.VALIDATION_SUCCEEDED, "the spec is valid"),
        (labels.NODECLASS_READY, "its EC2NodeClass is Ready"),
        (labels.NODE_REGISTRATION_HEALTHY, "its latest nodes joined; does not affect Ready"),
    ),
    "NodeClaim": (
        (labels.LAUNCHED, "an instance was launched"),
        (labels.REGISTERED_CONDITION, "its Node joined"),
        (labels.INITIALIZED_CONDITION, "the Node is Ready, without startup taints, with all resources"),
        (labels.CONSOLIDATABLE, "it may be consolidated; False gives the reason why an empty node is kept"),
        (labels.DRIFTED, "it differs from its NodePool or EC2NodeClass; the reason names the difference"),
        (labels.DRAINED, "its pods are evicted; Unknown names the remaining pods"),
        (labels.VOLUMES_DETACHED, "volumes are detached; Unknown names the attached volumes"),
        (labels.INSTANCE_TERMINATING, "termination of the instance was requested from EC2"),
        (labels.CONSISTENT_STATE_FOUND, "the Node has the resources that the NodeClaim requested"),
        (labels.DISRUPTION_REASON, "the node is being disrupted; the reason gives the cause"),
        (labels.REBOOTING, "repair reboots its instance; False gives the outcome"),
        (labels.NEEDS_ATTENTION, "its blocker does not clear by itself; the reason is its code. The Node has it too"),
    ),
    "Node": (
        (labels.DRAIN_IN_PROGRESS, "it is being drained"),
        (labels.DRAINED, "its pods and volumes have left"),
        (labels.MAINTENANCE_PLANNED, "AWS has announced maintenance of its instance"),
        (labels.MAINTENANCE_IN_PROGRESS, "its instance is stopped for that maintenance"),
        (labels.GRACEFUL_SHUTDOWN, "its instance is being stopped"),
    ),
    "EC2NodeClass": (
        *((one, "that part was resolved") for one in labels.NODECLASS_CONDITIONS if one != labels.VALIDATION_SUCCEEDED),
        (labels.VALIDATION_SUCCEEDED, "a dry-run launch was allowed, and kubelet settings and user data are valid"),
        (labels.CAPACITY_RESERVATIONS_READY, "reservations were resolved, with the gate ReservedCapacity"),
        (labels.AWS_REACHABLE, "False while an AWS call for a part fails; does not affect Ready"),
        (labels.IMAGES_PINNED, "a failed rollout keeps the last good image; does not affect Ready"),
    ),
    "LifecyclePolicy": ((labels.VALIDATION_SUCCEEDED, "it is valid, and does not conflict with another policy"),),
    "NodeOverlay": ((labels.VALIDATION_SUCCEEDED, "it is valid, and does not conflict with another overlay"),),
    "CapacityBuffer": (
        (labels.READY_FOR_PROVISIONING, "the referenced objects exist"),
        (labels.PROVISIONING, "its capacity exists, or is being launched"),
    ),
    "Pod": ((labels.NOMINATED, "with `NOMINATE_PODS`: the node that a plan assigned"),),
}


def render_pages() -> Mapping[Path, str]:
    """Text by path."""
    return {
        FOLDER / "metrics.md": _metrics_page(),
        FOLDER / "events.md": _events_page(),
        FOLDER / "search-attributes.md": _search_attributes_page(),
        FOLDER / "reasons.md": _reasons_page(),
        **reason_pages.render_pages(FOLDER),
        FOLDER / "conditions.md": _conditions_page(),
        FOLDER / "annotations.md": _annotations_page(),
    }


def _metrics_page() -> str:
    ours = markdown_table(
        ("Metric", "Type", "Labels", "Meaning"),
        ((f"`{one.name}`", one.kind, " ".join(f"`{name}`" for name in one.labels), one.description) for one in METRICS),
    )
    temporals = markdown_table(("Metric", "Type", "Meaning"), ((f"`{name}`", *rest) for name, *rest in TEMPORALS))
    absent = "\n".join(f"- {one}" for one in KARPENTER_ONLY)
    return (
        WRITTEN.format(source="tenure/metrics.py")
        + "# Metrics\n\nEvery worker serves `/metrics` on `METRICS_PORT` ([settings](settings.md)). "
        "The chart [exposes](../operating/security.md#connections) the port only if a value requests it. "
        "Metrics with the prefix `karpenter_` have Karpenter's meaning. Only the worker that hosts the watch reports "
        "gauges of nodes and pools; others report 0 or nothing, so use `max` over workers. "
        "[Alerts](../operating/runbooks/alerts.md) are in [deploy/alerts](../../deploy/alerts/tenure.yaml), "
        "a Grafana dashboard in [deploy/dashboards/tenure.json](../../deploy/dashboards/tenure.json). Tests check its "
        "fields with Grafana's models, its queries with promtool, and that its panels have data in a Prometheus that "
        "scrapes a worker, except for pods not bound. It has not been loaded into Grafana.\n\n"
        "![Nodes by phase, by NodePool and by cost, launches and terminations, and times of phases]"
        "(../pictures/dashboard.png)\n\nThe first panels with data while pods come and go, drawn with the dashboard's "
        "queries. Grafana draws them in its own style."
        f"\n\n{ours}\n"
        "## Metrics of the Temporal SDK\nThe same port serves [all SDK metrics]"
        "(https://docs.temporal.io/references/sdk-metrics), with times in seconds. These are the most useful:\n\n"
        f"{temporals}\n## Karpenter metrics without an equivalent\nWithout the prefix `karpenter_`:\n\n{absent}\n"
    )


def _events_page() -> str:
    rows = markdown_table(
        ("Reason", "Type", "Object", "When", "Action", "Since", "Example"),
        (
            (f"`{name}`", _event_type(one), one.objects, one.description, one.todo, one.since, f"`{one.example}`")
            for name, one in sorted(EVENT_REASONS.items())
        ),
    )
    return (
        WRITTEN.format(source="tenure/kube/client/event_reasons.toml")
        + "# Events\n\n`kubectl describe` and `kubectl get events` show these events, with the component `karpenter`. "
        "A repeated event of an object is published once in two minutes. A launch that EC2 rejects also has EC2's "
        "reason, such as `Unauthorized`. A drifted node has its reason, such as `AMIDrift`. "
        f"A [condition](conditions.md) that changes has an event of its type.\n\n{rows}"
    )


def _event_type(reason: EventReason) -> str:
    return "Warning" if reason.warning else "Normal"


def _search_attributes_page() -> str:
    rows = markdown_table(
        ("Attribute", "Type", "Meaning"),
        ((f"`{name}`", kind, ATTRIBUTES[name]) for name, kind in search_attributes.ALL.items()),
    )
    queries = markdown_table(("Result", "Query"), ((what, f"`{query}`") for what, query in QUERIES))
    return (
        WRITTEN.format(source="workflows/search_attributes.py and tools/docs/reference.py")
        + "# Search attributes\n\nUse these attributes of workflows in the Temporal UI and in "
        "`temporal workflow list --query`. The worker registers missing ones at startup, [if it may](#by-hand). "
        "`tenure doctor` lists missing ones."
        f"\n\n{rows}\n## Queries\n{queries}\n## By hand\n{_by_hand()}"
    )


def _reasons_page() -> str:
    pages = reason_pages.pages_by_code()
    blockers, ineligibilities, pending_pods = (
        markdown_table(
            ("Code", "Meaning", "Needs attention", "Action"),
            (
                (f"[`{code}`]({pages[code]})", one.meaning, "" if one.clears_by_itself else "yes", one.remedy)
                for code, one in reasons.items()
            ),
        )
        for reasons in (BLOCKERS, INELIGIBILITIES, PENDING_PODS)
    )
    return (
        WRITTEN.format(source="tenure/model/blockers.py")
        + "# Codes of nodes and pending pods\n\n`tenure why`, `tenure stuck`, the workflow's details, conditions "
        "and events explain each code in a sentence. The page of a code has its causes and commands."
        "\n\n## Blockers of a workflow\n"
        "These are the values of `TenureBlockedBy`. A node without an instance has the reason of its "
        "condition `Launched` instead, such as `InsufficientCapacityError`. A code that needs attention does not "
        "clear by itself: the condition `tenure.sh/NeedsAttention` has it as its reason at once, and every other code "
        "when a phase is past its deadline."
        f"\n\n{blockers}\n## Why a node is not disrupted\nThese are the causes in `tenure plan`, `tenure why` and "
        f"`tenure_disruption_excluded_nodes{{cause}}`.\n\n{ineligibilities}\n## Why a pod is pending\n"
        "`tenure why POD` and the pod's event `FailedScheduling` have the code and the message. For a pod that fits no "
        "NodePool, the message has the reason of each, the nearest first; a pod that selects NodePools by name has "
        "only their reasons. If several reasons apply, the code is that of the nearest NodePool. "
        "[Pending pods](../operating/runbooks/no-capacity.md) has the commands. The alert of `LimitsExceeded` has the "
        "severity `info`, since the limits of a NodePool may be a quota. A pod that needs attention has the event "
        "within ten seconds, also if its scheduler has not tried it. `NotTried` has the event after a minute.\n\n"
        f"{pending_pods}"
    )


def _by_hand() -> str:
    """Commands with which an administrator creates all search attributes."""
    own, cloud = create_commands("NAMESPACE", search_attributes.ALL)
    return (
        "If the worker may not create them, create them as an administrator. On your own service:\n\n"
        f"    {own}\n\nIn Temporal Cloud (not tested):\n\n    {cloud}\n"
    )


def _conditions_page() -> str:
    parts = (
        f"## {kind}\n{markdown_table(('Condition', 'True when'), ((f'`{n}`', w) for n, w in rows))}"
        for kind, rows in CONDITIONS.items()
    )
    return (
        WRITTEN.format(source="tools/docs/reference.py")
        + "# Conditions\n\nNames and reasons are Karpenter's where it has the condition. "
        "Every kind but Pod has `Ready`, which depends on the other conditions unless noted.\n\n" + "\n".join(parts)
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
        + "# Annotations and labels\n\nKarpenter's annotations and labels have the meaning of its documentation. "
        "Of Tenure's own, only `tenure.sh/pause` is for users ([Pausing disruption](../disruption/pause.md)). "
        f"JSON examples are shortened.\n\n{rows}"
    )


def wrap_page(text: str) -> str:
    """Wrap paragraphs and lists at about 100 characters, like other pages. Tables, code and headings stay."""
    return "".join(_wrap_line(line) for line in text.splitlines(keepends=True))


def _wrap_line(line: str) -> str:
    if len(line) <= WIDTH or line.startswith(("|", "#", "<!--", "    ")):
        return line
    indent = "  " if line.startswith("- ") else ""
    filled = textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return f"{filled}\n"


def markdown_table(head: tuple[str, ...], rows: Iterable[Iterable[str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
