"""The files of a simulation as one set of objects. Kinds that do not affect a plan are counted and left out.

Objects of Tenure's kinds are validated and get their defaults.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure.cli.exit_codes import UsageError
from tenure.cli.simulate.manifests import (
    Object,
    check_metadata,
    describe_object,
    format_kinds,
    namespace_of,
    read_objects,
)
from tenure.cli.validate.worker_checks import validate_object
from tenure.kube.client import resources

_MAX_PROBLEMS: Final = 3
"""Problems of an object in one error."""
_VALIDATED_KINDS: Final = frozenset(
    one.kind
    for one in (resources.EC2_NODE_CLASSES, resources.LIFECYCLE_POLICIES, resources.NODE_OVERLAYS, resources.NODE_POOLS)
)
_IRRELEVANT: Final = (resources.EVENTS, resources.LEASES, resources.VOLUME_ATTACHMENTS)
_GROUPS: Final[Mapping[str, str]] = {
    **{one.kind: one.group for one in resources.RESOURCES.values() if one not in _IRRELEVANT},
    "CronJob": "batch",
    "PriorityClass": "scheduling.k8s.io",
    "ReplicationController": "",
}
"""API groups of the kinds that affect a plan."""


@dataclass(frozen=True)
class ManifestFiles:
    by_path: Mapping[Path, Sequence[Object]]
    """Without objects that an earlier file has."""
    skipped: Counter[str]
    """Number of objects by kind."""

    def of_kind(self, *kinds: str) -> list[tuple[Path, Object]]:
        return [(path, one) for path, objects in self.by_path.items() for one in objects if one["kind"] in kinds]


def read_files(expected: Iterable[tuple[Path, Sequence[str]]]) -> ManifestFiles:
    """`expected`: the kinds of which a file must have at least one object. Raises `UsageError`."""
    by_path: dict[Path, list[Object]] = {}
    every_by_path: dict[Path, list[Object]] = {}
    skipped: Counter[str] = Counter()
    known: set[tuple[str, str, str]] = set()
    for path, kinds in expected:
        if path not in by_path:
            every = every_by_path[path] = read_objects(path)
            objects = [one for one in every if _affects_plan(one)]
            check_metadata(path, objects)
            by_path[path] = [_validate(path, one) for one in objects if _key(one) not in known]
            known |= {_key(one) for one in objects}
            skipped += Counter(map(_kind_of, every)) - Counter(map(_kind_of, objects))
        every = every_by_path[path]
        if not any(one["kind"] in kinds for one in every if _affects_plan(one)):
            found = format_kinds(Counter(map(_kind_and_version, every))) or "none"
            raise UsageError(f"{path}: no objects found; expected {' or '.join(kinds)}, found {found}")
    return ManifestFiles(by_path, skipped)


def _kind_of(one: Object) -> str:
    return str(one.get("kind", "object"))


def _kind_and_version(one: Object) -> str:
    return " ".join(filter(None, (_kind_of(one), str(one.get("apiVersion", "")))))


def _affects_plan(one: Object) -> bool:
    """False also for a kind of the same name in another API group."""
    group, _, version = str(one.get("apiVersion", "")).rpartition("/")
    expected = _GROUPS.get(str(one.get("kind")))
    return expected is not None and (not version or group == expected)


def _validate(path: Path, one: Object) -> Object:
    """The object with its defaults. Raises `UsageError` for one that the API server or the worker would reject.

    The status of a live object may be that of another version of Karpenter, and is left out."""
    spec_only = {key: value for key, value in one.items() if key != "status"}
    validated = validate_object(spec_only) if one["kind"] in _VALIDATED_KINDS else None
    if validated is None:
        return one
    stored, findings = validated
    if findings:
        problems = [str(finding) for finding in findings]
        more = f"; `tenure validate` lists all {len(problems)} problems" if len(problems) > _MAX_PROBLEMS else ""
        raise UsageError(f"{path}: {describe_object(one)}: {'; '.join(problems[:_MAX_PROBLEMS])}{more}")
    return stored


def _key(one: Object) -> tuple[str, str, str]:
    return one["kind"], namespace_of(one), str(one["metadata"]["name"])
