"""What holds up a node's initialization, in the order in which it is told."""

import pytest

from tenure.apis.meta import Taint
from tenure.policy.lifecycle.initialization import decide_waiting_for

STARTUP = Taint(key="node.cilium.io/agent-not-ready", effect="NoExecute")
UNINITIALIZED = Taint(key="node.cloudprovider.kubernetes.io/uninitialized", effect="NoSchedule", value="true")
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
OWN = Taint(key="team", effect="NoSchedule", value="ml")


def waiting(
    *taints: Taint,
    ready: bool = True,
    startup: tuple[Taint, ...] = (STARTUP,),
    allocatable: dict[str, int] | None = None,
    requests: dict[str, int] | None = None,
) -> tuple[str, ...]:
    return decide_waiting_for(
        ready=ready,
        taints=taints,
        startup_taints=startup,
        allocatable=allocatable or {"cpu": 2000},
        requests=requests or {"cpu": 1000},
    )


@pytest.mark.parametrize(
    ("found", "reasons"),
    [
        (waiting(), []),
        (waiting(OWN), []),
        (waiting(ready=False), ["NodeNotReady"]),
        (waiting(STARTUP), ["StartupTaintsExist"]),
        (waiting(STARTUP, startup=()), []),
        (waiting(STARTUP.model_copy(update={"effect": "NoSchedule"})), []),
        (waiting(STARTUP.model_copy(update={"value": "anything"})), ["StartupTaintsExist"]),
        (waiting(UNINITIALIZED), ["KnownEphemeralTaintsExist"]),
        (waiting(NOT_READY), ["KnownEphemeralTaintsExist"]),
        (waiting(requests={"nvidia.com/gpu": 1}), ["ResourceNotRegistered"]),
        (waiting(requests={"nvidia.com/gpu": 1}, allocatable={"nvidia.com/gpu": 0}), ["ResourceNotRegistered"]),
        (waiting(requests={"nvidia.com/gpu": 1}, allocatable={"nvidia.com/gpu": 4}), []),
        (waiting(requests={"nvidia.com/gpu": 0}), []),
        (
            waiting(STARTUP, NOT_READY, ready=False, requests={"nvidia.com/gpu": 1}),
            ["NodeNotReady", "StartupTaintsExist", "KnownEphemeralTaintsExist", "ResourceNotRegistered"],
        ),
    ],
)
def test_what_a_node_waits_for(found: tuple[str, ...], reasons: list[str]) -> None:
    assert [one.partition(": ")[0] for one in found] == reasons


def test_what_is_waited_for_is_named() -> None:
    assert waiting(STARTUP) == ("StartupTaintsExist: node.cilium.io/agent-not-ready:NoExecute",)
    missing = waiting(requests={"nvidia.com/gpu": 1, "vpc.amazonaws.com/pod-eni": 1, "cpu": 1})
    assert missing == ("ResourceNotRegistered: nvidia.com/gpu, vpc.amazonaws.com/pod-eni",)
