"""Which spans a transition ends, their traces and parents, and the spans of calls to other services."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from tenure.aws.client.client import AwsClients
from tenure.aws.settings import AwsSettings
from tenure.kube.client.resources import resource_of
from tenure.model.launch import LaunchGroupMember
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimState, Phase, Step
from tenure.model.plan import LaunchDraft
from tenure.tracing.recorder import TRACES
from tenure.tracing.spans import (
    FinishedSpan,
    is_starting,
    key_of_group,
    key_of_nodeclaim,
    key_of_phase,
    key_of_plan,
    span_of_group,
    span_of_pending_pods,
    startup_spans,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
GROUP = "0123456789ab-0"


def make_state(*phases: Phase, group_id: str = GROUP) -> NodeClaimState:
    """A NodeClaim that entered these phases, a minute apart."""
    steps = tuple(Step(phase=phase, at=NOW + timedelta(minutes=number)) for number, phase in enumerate(phases))
    identity = NodeClaimIdentity(cluster="demo", name="a", uid="uid-a", group_id=group_id, created=NOW)
    return NodeClaimState(identity=identity, phase=phases[-1], since=steps[-1].at, history=steps)


def end_phase(state: NodeClaimState, phase: Phase) -> list[FinishedSpan]:
    return startup_spans(state, phase, "because", NOW + timedelta(hours=1))


def test_ready_node_ends_its_phase_and_its_startup() -> None:
    state = make_state(Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION)
    phase, startup = end_phase(state, Phase.READY)
    assert (phase.name, phase.start, phase.parent) == (
        "Initialization",
        NOW + timedelta(minutes=2),
        key_of_nodeclaim(state.identity),
    )
    assert (startup.name, startup.start, startup.parent) == ("NodeClaim startup", NOW, key_of_group(GROUP))
    assert {phase.key.trace_id, startup.key.trace_id} == {key_of_plan("0123456789ab").trace_id}
    assert phase.error == startup.error == ""


def test_failed_startup_ends_with_error() -> None:
    spans = end_phase(make_state(Phase.LAUNCH, Phase.REGISTRATION), Phase.TERMINATION)
    assert [(span.name, span.error) for span in spans] == [
        ("Registration", "Termination: because"),
        ("NodeClaim startup", "Termination: because"),
    ]


@pytest.mark.parametrize(
    ("phases", "next_phase"),
    [
        ([Phase.LAUNCH], Phase.READY),
        ([Phase.LAUNCH], Phase.INITIALIZATION),
        ([Phase.LAUNCH, Phase.INITIALIZATION], Phase.READY),
        ([Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY], Phase.DRAIN),
        ([Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY, Phase.INITIALIZATION], Phase.READY),
    ],
)
def test_existing_or_rebooted_node_has_no_startup(phases: list[Phase], next_phase: Phase) -> None:
    assert end_phase(make_state(*phases), next_phase) == []


def test_rebooted_node_is_not_starting() -> None:
    started = (Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION)
    assert is_starting(make_state(*started))
    assert not is_starting(make_state(*started, Phase.READY, Phase.INITIALIZATION))


def test_nodeclaim_and_group_without_plan_are_roots() -> None:
    identity = make_state(Phase.LAUNCH, group_id="").identity
    assert key_of_phase(identity, Phase.LAUNCH).trace_id == key_of_nodeclaim(identity).trace_id
    (_, startup) = end_phase(make_state(Phase.LAUNCH, group_id=""), Phase.TERMINATION)
    assert startup.parent is None
    draft = LaunchDraft(
        group_id="joined-1-0", pool="web", node_class="default", members=(LaunchGroupMember(name="a", uid="uid-a"),)
    )
    assert span_of_group(draft, NOW, NOW).parent is None


def test_pending_pods_start_with_the_oldest_pod() -> None:
    created = {"web/b": NOW - timedelta(seconds=5), "web/a": NOW - timedelta(seconds=9)}
    span = span_of_pending_pods("0123456789ab", created, began=NOW, end=NOW)
    assert span.start == NOW - timedelta(seconds=9) and span.attributes["tenure.pod_names"] == ["web/a", "web/b"]
    assert span_of_pending_pods("0123456789ab", {}, began=NOW, end=NOW).start == NOW


class CallRecorder:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def record(self, span: FinishedSpan) -> None:
        raise AssertionError(span)

    @contextmanager
    def start_call(self, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
        self.calls.append(name)
        yield


async def test_aws_call_has_api_name(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = CallRecorder()
    monkeypatch.setattr(TRACES, "recorder", recorder)
    clients = AwsClients(AwsSettings(region="us-west-2", cluster_name="demo"))

    def create_fleet() -> str:
        return "done"

    try:
        assert await clients.call(create_fleet) == "done"
    finally:
        clients.close()
    assert recorder.calls == ["AWS CreateFleet"]


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/nodes", "nodes"),
        ("/api/v1/namespaces/kube-system", "namespaces"),
        ("/api/v1/namespaces/web/pods/web-1/eviction", "pods/eviction"),
        ("/apis/karpenter.sh/v1/nodeclaims/a/status", "nodeclaims/status"),
        ("/version", "/version"),
    ],
)
def test_path_names_resource(path: str, resource: str) -> None:
    assert resource_of(path) == resource
