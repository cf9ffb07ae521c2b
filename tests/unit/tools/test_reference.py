"""docs/reference against the code: metrics, events, attributes and annotations are complete, without extra ones."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, get_args

from tenure import metrics
from tenure.apis import labels
from tenure.kube.client.event_reasons import EVENT_REASONS
from tenure.model.blockers import REASONS
from tenure.model.nodeclaim.state import Phase
from tenure.model.rollout import RolloutEventReason
from tenure.policy.interruption.event_texts import REASONS as INTERRUPTED
from tenure.settings import Settings
from tests.support.paths import ROOT
from tools.docs import reasons
from tools.docs.reference import ATTRIBUTES, CONDITIONS, FOLDER
from tools.docs.settings import OURS
from workflows import search_attributes

PACKAGES = (
    "activities",
    "tenure/aws",
    "tenure/controller",
    "tenure/kube",
    "tenure/policy",
    "tenure/worker",
    "workflows",
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
EVENT_FUNCTIONS = {
    "publish",
    "_publish",
    "_publish_candidate_event",
    "_publish_event",
    "_publish_events",
    "_publish_for",
    "_publish_nodeclaim_event",
    "_write_drift",
    "_write_not_ready_intervals",
    "RolloutEvent",
    "EventText",
    "fail_nodeclaim",
}
"""Functions and classes that take the reason of an event."""
NOT_REASONS = {"Node", "NodeClaim", *labels.NODECLASS_CONDITIONS}
"""Kinds and conditions that occur as arguments of the same calls."""
OVERDUE_REASONS = {f"{phase.value}Overdue" for phase in Phase if phase is not Phase.DELETED}
"""Built from phases in `workflows/phases`."""


@cache
def modules() -> list[tuple[ModuleType, ast.Module]]:
    return [
        (importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)), ast.parse(path.read_text()))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def value(node: ast.expr, module: ModuleType) -> Any:
    try:
        return eval(compile(ast.Expression(node), module.__name__, "eval"), vars(module))
    except (NameError, AttributeError):
        return None


SCRAPE_LABELS = frozenset("job instance namespace pod container service endpoint node le quantile".split())  # noqa: SIM905
"""Labels that Prometheus or the ServiceMonitor of Prometheus Operator sets on each sample."""


def test_no_metric_has_a_label_of_prometheus() -> None:
    assert [one.name for one in metrics.METRICS if SCRAPE_LABELS & set(one.labels)] == []


def test_every_metric_is_recorded() -> None:
    """`Metric.record` rejects undeclared labels."""
    constants = {name for name, found in vars(metrics).items() if isinstance(found, metrics.Metric)}
    used = {
        node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        for _, tree in modules()
        for node in ast.walk(tree)
    }
    used |= set(re.findall(r"metrics\.([A-Z_0-9]+)", (ROOT / "worker.py").read_text()))
    assert constants - used == set()
    assert len({one.name for one in metrics.METRICS}) == len(metrics.METRICS) == len(constants)


def emitted_reasons() -> set[str]:
    found = {*get_args(RolloutEventReason), *INTERRUPTED.values(), *OVERDUE_REASONS}
    for module, tree in modules():
        for call in calls(tree):
            arguments = [one.value for one in call.keywords if one.arg == "event"]
            if called(call) in EVENT_FUNCTIONS:
                arguments += [*call.args, *(one.value for one in call.keywords if one.arg == "reason")]
            values = [value(one, module) for one in arguments]
            found |= {one for one in values if isinstance(one, str) and one[:1].isupper() and one.isalpha()}
    return found - NOT_REASONS


def test_every_event_of_the_code_is_in_the_reference() -> None:
    assert emitted_reasons() - EVENT_REASONS.keys() == set()


def test_every_event_of_the_reference_is_in_the_code() -> None:
    trees = [tree for _, tree in modules()] + [
        ast.parse(path.read_text()) for name in ("apis", "model") for path in (ROOT / "tenure" / name).rglob("*.py")
    ]
    constants = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert EVENT_REASONS.keys() - constants - OVERDUE_REASONS == set()


def test_every_search_attribute_is_documented() -> None:
    assert ATTRIBUTES.keys() == search_attributes.ALL.keys()


def test_every_tenure_annotation_is_documented() -> None:
    ours = {name for name in vars(labels).values() if isinstance(name, str) and name.startswith("tenure.sh/")}
    ours.discard(labels.LIFECYCLEPOLICY_API_VERSION)
    assert {one.name for one in labels.OWN_NAMES} == ours


def test_ready_dependencies_are_documented() -> None:
    feeds = {
        "NodePool": labels.NODEPOOL_CONDITIONS,
        "NodeClaim": labels.NODECLAIM_CONDITIONS,
        "EC2NodeClass": labels.NODECLASS_CONDITIONS,
    }
    for kind, types in feeds.items():
        assert set(types) <= {name for name, _ in CONDITIONS[kind]}


def test_every_setting_is_documented() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
    assert Settings.model_fields.keys() >= OURS


def test_every_code_has_one_page_with_causes_and_commands() -> None:
    pages = [path.stem for path in (FOLDER / "reasons").rglob("*.md")]
    assert sorted(pages) == sorted(REASONS)
    folders = reasons.read_folders()
    assert all(table["commands"] and found["causes"] for table in folders.values() for found in reasons.codes_of(table))
