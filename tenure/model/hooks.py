"""Termination hooks: their records in a NodeClaim workflow, and input and result of their activity."""

from datetime import datetime
from typing import Final, Literal

from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.base import Message, Value
from tenure.model.nodeclaim.requests import NodeClaimRef

HookPoint = Literal["beforeDrain", "afterDrain", "beforeTerminate"]
Outcome = Literal["succeeded", "failed", "timed out", "skipped"]
"""`skipped`: the instance was already terminated."""
NAMESPACE: Final = "tenure-hooks"
"""Default namespace of hook Jobs."""
HOOK: Final = "tenure.sh/hook"
HOOK_POINT: Final = "tenure.sh/hook-point"
HOOK_NODE: Final = "tenure.sh/node"
HOOK_NODECLAIM: Final = "tenure.sh/nodeclaim"
"""Labels of hook Jobs and their pods."""
HOOK_KEY: Final = "tenure.sh/hook-key"
"""Annotation of a hook Job: the run of the hook that created it."""


class HookRun(Message):
    point: HookPoint
    name: str
    number: int = 1
    """Run number. It increases when a failed hook is retried, and in another drain."""
    since: datetime
    outcome: Outcome | None = None
    """None while it runs."""
    attempts: int = 0
    """Number of calls, or 1 for a Job; known if the webhook was called again."""
    why: str = ""
    ended: datetime | None = None
    past: bool = False


class Hooks(Message):
    point: HookPoint | None = None
    since: datetime | None = None
    passed: tuple[HookPoint, ...] = ()
    runs: tuple[HookRun, ...] = ()
    grace_ends: datetime | None = None
    """The end of the termination grace period, if a hook has found one."""


class AwsEvent(Message):
    kind: str
    code: str = ""
    starts: datetime | None = None


class HookSubject(Message):
    cluster: str
    pool: str = ""
    claim: str
    node: str = ""
    provider_id: str = ""
    instance_id: str = ""
    point: HookPoint
    hook: str
    reason: str = ""
    event: AwsEvent | None = None


class HookRequest(Message):
    claim: NodeClaimRef
    subject: HookSubject
    hook: Hook
    key: str
    """Idempotency key: the same for all attempts of a run, by any worker."""
    job: str = ""
    policy: str = ""
    """The LifecyclePolicy that defines the hook."""
    field: str = ""
    """The hook's field in the policy, such as `spec.hooks.beforeDrain[0]`."""
    seconds: float
    """Remaining time: the smaller of its own timeout and the time until AWS acts."""
    since: datetime | None = None
    attempts: int = 0
    defers_deletion: bool = False


class HookResult(Message):
    outcome: Outcome | None = None
    """None if the run was stopped and will be repeated."""
    attempts: int = 0
    why: str = ""
    grace_ends: datetime | None = None


class CallResult(Value):
    status: int
    text: str = ""
    retry_after: float | None = None
    """Seconds."""


class DesiredJob(Value):
    namespace: str
    name: str
    key: str
    labels: dict[str, str]
    env: dict[str, str]
    template: dict[str, object]
    retries: int
    seconds: int
    """activeDeadlineSeconds: after this time, Kubernetes terminates the Job."""


class JobFact(Value):
    key: str
    """Empty for a Job that no hook created."""
    outcome: Literal["succeeded", "failed", "timed out"] | None = None
    why: str = ""
