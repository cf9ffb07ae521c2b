"""What a check of the installation found: one thing, how it stands, and what a person does about it.

`aws/doctor`, `kube/doctor.py` and `controller/doctor.py` make them; `tenure doctor` shows them.
"""

from collections.abc import Iterable
from typing import Literal

from model.base import Value

Level = Literal["ok", "advice", "unknown", "problem"]
"""From good to bad. `unknown`: these credentials may not look, so that nothing can be said."""


class Finding(Value):
    area: str
    """Where it belongs, such as `permissions` or `quotas`."""
    subject: str
    """The object, action or setting that was looked at."""
    level: Level
    said: str
    todo: str = ""
    """What a person does about it; empty where nothing is to be done."""


def ok(area: str, subject: str, said: str) -> Finding:
    return Finding(area=area, subject=subject, level="ok", said=said)


def problem(area: str, subject: str, said: str, todo: str) -> Finding:
    return Finding(area=area, subject=subject, level="problem", said=said, todo=todo)


def advice(area: str, subject: str, said: str, todo: str) -> Finding:
    return Finding(area=area, subject=subject, level="advice", said=said, todo=todo)


def unknown(area: str, subject: str, said: str, todo: str) -> Finding:
    return Finding(area=area, subject=subject, level="unknown", said=said, todo=todo)


def has_problem(findings: Iterable[Finding]) -> bool:
    return any(one.level == "problem" for one in findings)
