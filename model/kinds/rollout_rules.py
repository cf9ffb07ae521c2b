"""What a LifecyclePolicy may say of roll-outs: how drift goes through a NodePool, wave by wave.

Without it drifted nodes go as with Karpenter, by budgets alone. `policy/rollout.py` reads it.
"""

from typing import Annotated, Any, Final, Literal

from model.kinds.meta import KubeModel
from model.kinds.schema import ATOMIC, DURATION, Crd, Rule

_PERCENT: Final[dict[str, Any]] = {"pattern": r"^(100|[0-9]{1,2})%$"}
_COUNT: Final[dict[str, Any]] = {"pattern": r"^((100|[0-9]{1,2})%|[0-9]+)$"}
_NUMBER: Final[dict[str, Any]] = {"pattern": r"^-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?$"}


class RolloutWave(KubeModel):
    """A part of the drifted nodes, and how long the new ones are watched before more go."""

    nodes: Annotated[
        str | None,
        Crd(
            "How many of the drifted nodes have gone by the end of this wave, those of earlier waves among them: a "
            "number such as '1', or a share such as 20%, rounded up. Unset: all.",
            _COUNT,
        ),
    ] = None
    soak: Annotated[
        str | None,
        Crd("How long the health has to hold after the last node of the wave, such as 30m.", {"pattern": DURATION}),
    ] = None


class RolloutQuery(KubeModel):
    """A question to Prometheus. Of several series in the answer the worst one counts; none is no answer."""

    name: Annotated[str | None, Crd("What people know it by.", {"minLength": 1, "maxLength": 60})] = None
    query: Annotated[str, Crd("In PromQL.", {"minLength": 1, "maxLength": 4000}, required=True)]
    below: Annotated[str | None, Crd("It passes while the answer is below, such as '0.01'.", _NUMBER)] = None
    above: Annotated[str | None, Crd("It passes while the answer is above, such as '0.99'.", _NUMBER)] = None
    timeout: Annotated[
        str | None, Crd("How long Prometheus may take, such as 5s; unset: 10s.", {"pattern": DURATION})
    ] = None


_QUERY_RULES: Final = (
    Rule(
        "has(self.below) != has(self.above)",
        "a query passes by one of the two: write below, such as below: '0.01', or above, such as above: '0.99'",
    ),
)


class RolloutHealth(KubeModel):
    """What has to hold while a roll-out goes on. While it does not no further node goes."""

    nodes_ready: Annotated[str | None, Crd("Which share of the new nodes has to be Ready; unset: 90%.", _PERCENT)] = (
        None
    )
    pods_ready: Annotated[
        str | None,
        Crd("Which share of the pods on new nodes has to be Ready, such as 90%; unset: not looked at.", _PERCENT),
    ] = None
    failed_starts: Annotated[
        int | None,
        Crd(
            "So many new NodeClaims that did not come to be nodes, of the last four, are a failure; unset: 2.",
            {"format": "int32", "minimum": 1, "maximum": 4},
        ),
    ] = None
    queries: Annotated[
        tuple[RolloutQuery, ...] | None,
        Crd("What is asked of Prometheus.", {"maxItems": 10, **ATOMIC}, items=Crd(rules=_QUERY_RULES)),
    ] = None
    every: Annotated[
        str | None,
        Crd("How often it is looked at while a wave is under way, such as 30s; unset: 1m.", {"pattern": DURATION}),
    ] = None
    failing_for: Annotated[
        str | None,
        Crd("For how long it may fail before the roll-out has failed, such as 5m; unset: 2m.", {"pattern": DURATION}),
    ] = None


class RolloutApproval(KubeModel):
    """Whether people are asked before a wave."""

    required: Annotated[bool | None, Crd("No wave begins before its plan is approved.")] = None
    approvers: Annotated[
        int | None,
        Crd("How many different people; unset: 1.", {"format": "int32", "minimum": 1, "maximum": 5}),
    ] = None
    expires: Annotated[
        str | None,
        Crd(
            "For how long a plan can be approved, and an approval is good, such as 24h; unset: 24h.",
            {"pattern": DURATION},
        ),
    ] = None
    stale_after: Annotated[
        str | None,
        Crd(
            "A plan is void when the number of drifted nodes is another by more than this share; unset: 20%.", _PERCENT
        ),
    ] = None


class RolloutRules(KubeModel):
    """How drifted nodes are replaced: in waves, watched, and with a way back."""

    waves: Annotated[
        tuple[RolloutWave, ...] | None,
        Crd("One after the other; the last takes all that are left. Unset: one.", {"maxItems": 20, **ATOMIC}),
    ] = None
    health: Annotated[RolloutHealth | None, Crd()] = None
    on_failure: Annotated[
        Literal["halt", "rollBack"] | None,
        Crd(
            "What follows a failure. halt: no further node goes, and a person is waited for; rollBack: where the image "
            "alone has changed the last good one is taken again, else as halt. Unset: halt.",
        ),
    ] = None
    approval: Annotated[RolloutApproval | None, Crd()] = None
