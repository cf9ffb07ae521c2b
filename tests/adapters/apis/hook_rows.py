"""What LifecyclePolicies may say of hooks: rows of `test_accept_lifecyclepolicy.py`."""

from typing import Any, Final

from tests.support.apis.crd_rows import Row, accepts, rejects

CALL: Final[dict[str, Any]] = {"name": "warn", "http": {"url": "https://hooks.example.com/drain"}}
TEMPLATE: Final[dict[str, Any]] = {
    "metadata": {"labels": {"app": "snapshot"}},
    "spec": {"containers": [{"name": "main", "image": "snapshot:1"}], "volumes": [{"name": "tmp", "emptyDir": {}}]},
}
JOB: Final[dict[str, Any]] = {"name": "snapshot", "job": {"template": TEMPLATE}}
ELSEWHERE: Final[dict[str, Any]] = {"name": "other", "job": {"namespace": "ops", "template": TEMPLATE}}
SIX: Final = [CALL | {"name": f"hook-{number}"} for number in range(6)]
POINTS: Final = ("beforeDrain", "afterDrain", "beforeTerminate")
ALL_OF_IT: Final[dict[str, Any]] = {"timeout": "1h30m", "attempts": 3, "onFailure": "wait"}


def _at(point: str, *hooks: dict[str, Any]) -> Any:
    return {point: list(hooks)}


def _with(**fields: Any) -> Any:
    return _at("beforeDrain", CALL | fields)


ROWS: tuple[Row, ...] = (
    accepts("no hooks", hooks={}),
    accepts("no hooks at a point", hooks=_at("afterDrain")),
    *(accepts(f"hooks {point}", hooks=_at(point, CALL | ALL_OF_IT, JOB, ELSEWHERE)) for point in POINTS),
    accepts("a drain that is given up", hooks=_with(onFailure="giveUp")),
    *(
        rejects(f"giving up {point}", "nothing to give up", hooks=_at(point, CALL | {"onFailure": "giveUp"}))
        for point in POINTS[1:]
    ),
    *(
        row
        for point in POINTS
        for row in (
            rejects(
                f"{point}: neither call nor Job", "write one of 'http' and 'job'", hooks=_at(point, {"name": "none"})
            ),
            rejects(f"{point}: both", "write one of 'http' and 'job'", hooks=_at(point, CALL | JOB)),
            rejects(f"{point}: two of one name", "give each a name of its own", hooks=_at(point, CALL, CALL)),
        )
    ),
    rejects("six hooks", "must have at most 5 items", hooks=_at("beforeDrain", *SIX)),
    rejects("a hook without a name", "name: Required", hooks=_at("beforeDrain", {"http": CALL["http"]})),
    rejects("a name that is no label", "should match", hooks=_with(name="Snap_Shot")),
    rejects("a name too long for a Job", "may not be more than 40", hooks=_with(name="x" * 41)),
    rejects("a call to nowhere", "url: Required", hooks=_with(http={})),
    rejects("an address of another kind", "should match", hooks=_with(http={"url": "ftp://example.com"})),
    rejects("headers", "unknown field", hooks=_with(http={**CALL["http"], "headers": {"Authorization": "secret"}})),
    rejects("a Job of nothing", "template: Required", hooks=_at("beforeDrain", JOB | {"job": {}})),
    rejects("no attempt", "greater than or equal to 1", hooks=_with(attempts=0)),
    rejects("a time-out in days", "should match", hooks=_with(timeout="1d")),
    rejects("another way to fail", "Unsupported value", hooks=_with(onFailure="ignore")),
)
