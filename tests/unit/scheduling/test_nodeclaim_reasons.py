"""The recorded reason for the launch of a NodeClaim."""

from tests.unit.scheduling.builders import COMMON, Cluster, node, pod, pool


def test_reason_names_pods_type_and_utilization() -> None:
    named = [pod(f"p-{number}", age=9 - number) for number in range(5)]
    (one,) = Cluster(pool(), node("full", cpu=1), pod("full", cpu=1, node="full"), *named).plan().claims
    assert one.why == (
        "5 pods (default/p-0, default/p-1, default/p-2 and 2 more): no room on 1 existing node; m.2xlarge at 0.4 $/h "
        "is the only instance type of NodePool default that fits; used: 63 % cpu, 16 % memory"
    )


def test_reason_names_all_of_few_pods() -> None:
    (one,) = Cluster(pool(), pod("p"), instance_types=COMMON[:1]).plan().claims
    assert one.why.startswith("default/p: no existing nodes; ") and "is the only instance type of" in one.why


def test_reason_names_the_next_types_with_their_prices() -> None:
    (one,) = Cluster(pool(), pod("p"), instance_types=COMMON).plan().claims
    assert "m.large at 0.1 $/h is the cheapest of 3 instance types" in one.why
    assert one.why.endswith("; next: m.xlarge at 0.2, m.2xlarge at 0.4")
