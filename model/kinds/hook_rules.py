"""What a LifecyclePolicy has done at points of a node's end: calls over HTTP, and Jobs.

`policy/hook_rules.py` has the defaults and says what makes no sense; `policy/hooks.py` decides by them.
"""

from typing import Annotated, Any, Final, Literal

from model.kinds.meta import KubeModel
from model.kinds.schema import ATOMIC, DURATION, Crd, Rule

_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class HttpHook(KubeModel):
    """A POST of JSON that says which node it is about."""

    url: Annotated[
        str,
        Crd(
            "Where to, with http:// or https://. No secrets: what a policy says stands in histories.",
            {"pattern": r"^https?://[^\s]+$", "maxLength": 2048},
            required=True,
        ),
    ]


class JobHook(KubeModel):
    """A Job of Kubernetes, made once."""

    namespace: Annotated[
        str | None,
        Crd(
            "Where it is made. Unset: tenure-hooks, the only namespace in which the worker may make Jobs as shipped.",
            {"pattern": _NAME, "maxLength": 63},
        ),
    ] = None
    template: Annotated[
        dict[str, Any],
        Crd("Its pods, as in a Job's spec.template. restartPolicy unset: Never.", required=True),
    ]


class Hook(KubeModel):
    """One thing that is done at a point."""

    name: Annotated[
        str, Crd("What it is called; no other at this point is.", {"pattern": _NAME, "maxLength": 40}, required=True)
    ]
    http: Annotated[HttpHook | None, Crd()] = None
    job: Annotated[JobHook | None, Crd()] = None
    timeout: Annotated[
        str | None, Crd("How long it may take, tries and pauses included. Unset: 5m.", {"pattern": DURATION})
    ] = None
    attempts: Annotated[
        int | None,
        Crd(
            "How often it is tried. Unset: a call as often as it fits into the timeout, a Job with up to 7 pods.",
            {"minimum": 1, "maximum": 100},
        ),
    ] = None
    on_failure: Annotated[
        Literal["proceed", "wait", "giveUp"] | None,
        Crd(
            "What follows where it fails or takes too long. proceed: what it was to come before goes on; wait: it is "
            "tried again, ever more slowly, until it succeeds or the policy says otherwise; giveUp: the drain is given "
            "up and the node kept, where that is still possible. AWS waits for nobody. Unset: proceed."
        ),
    ] = None


_ONE: Final = Rule(
    "has(self.http) != has(self.job)", "a hook is either a call or a Job: write one of 'http' and 'job', not both"
)
_NO_GIVING_UP: Final = Rule(
    "!has(self.onFailure) || self.onFailure != 'giveUp'",
    "once pods have left there is nothing to give up: write onFailure: proceed, or wait",
)
_NAMES: Final = Rule(
    "self.all(one, self.exists_one(other, other.name == one.name))",
    "two hooks of one point have the same name: give each a name of its own",
)


def _hooks(doc: str, *rules: Rule) -> Crd:
    return Crd(doc, {"maxItems": 5, **ATOMIC}, rules=(_NAMES,), items=Crd(rules=(_ONE, *rules)))


class HookRules(KubeModel):
    """What is done at points of a node's end, one after the other."""

    before_drain: Annotated[
        tuple[Hook, ...] | None, _hooks("Before pods are evicted. No new ones come to the node meanwhile.")
    ] = None
    after_drain: Annotated[tuple[Hook, ...] | None, _hooks("When its pods have left.", _NO_GIVING_UP)] = None
    before_terminate: Annotated[
        tuple[Hook, ...] | None,
        _hooks("Before its instance is ended, be it one that was never drained.", _NO_GIVING_UP),
    ] = None
