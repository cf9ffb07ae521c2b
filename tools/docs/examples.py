"""Example outputs and manifests in README.md and docs.

A page contains an output in a code block after `<!-- example: NAME -->`, and a manifest after `<!-- file: PATH -->`.
Outputs in JSON keep their line breaks.
`python -m tools.generate` writes the text: outputs are rendered by the product's code from example objects, so they
follow every change of a message. Manifests are copied from the repository, whose tests use the files.
"""

import json
import logging
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from activities.nodeclaim.hook_client import KEY as IDEMPOTENCY_KEY
from tenure.cli.nodes.timeline import ActivityCall, NodeExplanation
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.controller.log_format import build_formatter
from tenure.model.disruption.drain import DrainState, DrainStatus, EvictionBlocker
from tenure.model.disruption.pod_budgets import PodBudgetIndex
from tenure.model.facts import Expression, PodDisruptionBudgetFact
from tenure.model.hooks import AwsEvent, HookSubject
from tenure.model.launch import LaunchedInstance
from tenure.model.nodeclaim.history import Step
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimState, Phase
from tenure.model.provider_results import DrainPod, Eviction
from tenure.policy.drain.blockers import budget_blocker
from tenure.policy.hooks.messages import request_body, run_key
from workflows import ids
from workflows.current_details import explain_nodeclaim
from workflows.phases.node_log import step_line

ROOT: Final = Path(__file__).parents[2]
_EXAMPLE: Final = re.compile(r"(<!-- example: ([\w-]+) -->\n```(text|json|http)\n).*?(```\n)", re.DOTALL)
_FILE: Final = re.compile(r"(<!-- file: (\S+) -->\n```yaml\n).*?(```\n)", re.DOTALL)
_CREATED: Final = datetime(2026, 6, 1, 9, 14, 2, tzinfo=UTC)
_DELETED: Final = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
_WIDTH: Final = 110
_NAME: Final = "web-x7k2p"
_NODE: Final = "ip-10-0-3-7.us-west-2.compute.internal"


def render_files() -> dict[Path, str]:
    """Text by path of the pages with examples. Raises KeyError for an unknown name, OSError for a missing file."""
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    texts = {page: page.read_text() for page in pages}
    found = {page: text for page, text in texts.items() if _EXAMPLE.search(text) or _FILE.search(text)}
    return {page: _FILE.sub(_copy_file, _EXAMPLE.sub(_render_example, text)) for page, text in found.items()}


def _render_example(found: "re.Match[str]") -> str:
    lines = _EXAMPLES[found[2]]().splitlines()
    text = "\n".join(map(_wrap, lines) if found[3] == "text" else lines)
    return f"{found[1]}{text}\n{found[4]}"


def _copy_file(found: "re.Match[str]") -> str:
    return f"{found[1]}{(ROOT / found[2]).read_text()}{found[3]}"


def _wrap(line: str) -> str:
    """Wrap like a terminal of that width, with the values in one column."""
    indent = " " * (14 if line.startswith("  ") else 2)
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _explain_blocked_drain() -> str:
    """`tenure why` for a drifted node whose drain is blocked by a PodDisruptionBudget."""
    state = NodeClaimState(
        identity=NodeClaimIdentity(cluster="prod", name=_NAME, uid="5d0c7a1e", created=_CREATED),
        phase=Phase.DRAIN,
        disruption="Drifted",
        drain=DrainState(status=DrainStatus(eviction_blockers=(_block_eviction(),), pods=1)),
        history=tuple(_list_steps()),
    )
    return NodeExplanation(_summarize(), explain_nodeclaim(state), calls=(_drain_call(),)).format_text()


def _summarize() -> NodeClaimSummary:
    return NodeClaimSummary(
        ids.nodeclaim("prod", _NAME, "5d0c7a1e"),
        _NAME,
        Phase.DRAIN.value,
        since=_DELETED,
        deadline=_DELETED + timedelta(hours=1),
        overdue=True,
        instance_id="i-0d3f5a1b2c4e6f708",
        instance_type="m6i.large",
        capacity_type="on-demand",
        zone="us-west-2a",
        price=0.096,
        node_name=_NODE,
    )


def _list_steps() -> Iterator[Step]:
    yield Step(phase=Phase.LAUNCH, at=_CREATED, cause="created")
    yield Step(phase=Phase.REGISTRATION, at=_CREATED + timedelta(seconds=3), cause="m6i.large on-demand in us-west-2a")
    yield Step(phase=Phase.INITIALIZATION, at=_CREATED + timedelta(seconds=39), cause=f"{_NODE} joined")
    yield Step(phase=Phase.READY, at=_CREATED + timedelta(seconds=52), cause="initialized")
    yield Step(phase=Phase.DRAIN, at=_DELETED, cause="Drifted")


def _drain_call() -> ActivityCall:
    return ActivityCall(_DELETED, f"drain_node (drain {_NODE})")


def _block_eviction() -> EvictionBlocker:
    web = Expression(key="app", operator="In", values=("web",))
    budget = PodDisruptionBudgetFact(
        namespace="default", name="web", selector=(web,), min_available="2", expected=2, desired=2, current=2
    )
    pod = DrainPod(
        uid="1",
        namespace="default",
        name="web-7c9-x2",
        waits=True,
        evictable=True,
        group=0,
        reschedulable=True,
        owner_kind="ReplicaSet",
        owner_name="web-7c9",
        labels={"app": "web"},
    )
    blocker = budget_blocker(pod, Eviction(pod="default/web-7c9-x2", accepted=False), PodBudgetIndex([budget]))
    return blocker.model_copy(update={"since": _DELETED + timedelta(seconds=3)})


def _log_registration() -> str:
    """The log line of a registered node."""
    identity = NodeClaimIdentity(cluster="prod", name=_NAME, pool="web", uid="5d0c7a1e", created=_CREATED)
    state = NodeClaimState(
        identity=identity,
        phase=Phase.REGISTRATION,
        since=_CREATED + timedelta(seconds=3),
        node_name=_NODE,
        launched=LaunchedInstance(
            claim_uid="5d0c7a1e",
            image_id="ami-0abc",
            provider_id="aws:///us-west-2a/i-0d3f5a1b2c4e6f708",
            instance_type="m6i.large",
            zone="us-west-2a",
            capacity_type="on-demand",
        ),
    )
    registered_at = _CREATED + timedelta(seconds=34, milliseconds=412)
    message, fields = step_line(state, Phase.INITIALIZATION, f"{_NODE} joined", registered_at)
    record = logging.makeLogRecord(
        {
            "name": "temporalio.workflow",
            "levelname": "INFO",
            "msg": message,
            "temporal_workflow": {"workflow_id": ids.nodeclaim("prod", _NAME, "5d0c7a1e")},
            **fields,
        }
    )
    line = json.loads(build_formatter("json").format(record))
    return json.dumps({**line, "time": registered_at.isoformat().replace("+00:00", "Z")})


def _call_hook() -> str:
    """Header and body of a call before a drain for a spot interruption."""
    subject = HookSubject(
        cluster="prod",
        pool="web",
        claim=_NAME,
        node=_NODE,
        provider_id="aws:///us-west-2a/i-0d3f5a1b2c4e6f708",
        instance_id="i-0d3f5a1b2c4e6f708",
        point="beforeDrain",
        hook="announce",
        reason="spot_interrupted",
        event=AwsEvent(kind="spotInterruption", code="terminate"),
    )
    key = run_key("5d0c7a1e-8a1c-4f0e-9d52-6c1f2b7e9a34", subject.point, subject.hook, number=1)
    return f"{IDEMPOTENCY_KEY}: {key}\n\n{json.dumps(request_body(subject), indent=2)}"


_EXAMPLES: Final[Mapping[str, Callable[[], str]]] = {
    "tenure-why": _explain_blocked_drain,
    "hook-call": _call_hook,
    "log-line": _log_registration,
}
