"""The demo reports a failure if an expected result is missing."""

from collections.abc import Callable

import pytest

from tenure.cli.demo.script import Facts, find_failures


def successful_facts() -> Facts:
    return Facts(requested_pods=30, max_running_pods=30, nodes=5, joined=5, launched=5, terminated=5, worker_exit=0)


def test_complete_demo_has_no_failures() -> None:
    assert find_failures(successful_facts()) == []


def test_demo_without_results_fails() -> None:
    assert find_failures(Facts())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda facts: setattr(facts, "max_running_pods", 29), "29 of 30"),
        (lambda facts: setattr(facts, "joined", 4), "4 of 5 became Ready"),
        (lambda facts: setattr(facts, "terminated", 4), "5 launched, 4 terminated"),
        (lambda facts: setattr(facts, "launched", 6), "6 launched, 5 terminated"),
        (lambda facts: facts.__dict__.update(launched=4, terminated=4), "4 launched for 5 nodes"),
        (lambda facts: setattr(facts, "unused", 2), "2 deleted without any pod"),
        (lambda facts: facts.remaining.update({"Nodes": ["ip-10-0-0-1"]}), "Nodes: ip-10-0-0-1"),
        (lambda facts: facts.remaining.update({"open workflows": ["demo/watch"]}), "open workflows: demo/watch"),
        (lambda facts: facts.failed.append("demo/nodeclaim/a/1 is FAILED"), "is FAILED"),
        (lambda facts: setattr(facts, "worker_exit", None), "worker"),
        (lambda facts: setattr(facts, "worker_exit", 134), "134"),
    ],
)
def test_each_failure_is_one_line(change: Callable[[Facts], object], expected: str) -> None:
    facts = successful_facts()
    change(facts)
    (line,) = find_failures(facts)
    assert expected in line


def test_retained_worker_may_still_run() -> None:
    facts = successful_facts()
    facts.worker_exit = None
    assert find_failures(facts, retained=True) == []
