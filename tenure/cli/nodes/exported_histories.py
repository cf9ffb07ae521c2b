"""Explanations of nodes from exported histories: `tenure why NAME --from FOLDER`, without Temporal or a worker."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import ParseError
from pydantic import ValidationError
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.timeline import NodeExplanation, explain_completed, list_activity_calls
from tenure.cli.nodes.workflows import NodeClaimSummary, summarize_attributes
from tenure.model.nodeclaim.history import NodeClaimOutcome

Read = Callable[[Sequence[HistoryEvent]], Sequence[HistoryEvent]]
_CONVERTER: Final = pydantic_data_converter.payload_converter


def explain_exported_nodes(folder: Path, name: str, read: Read = tuple) -> list[NodeExplanation]:
    """Find nodes by NodeClaim, else by Node or instance, which reads all files; `read` decrypts events.

    Raises `UsageError` for an unknown name."""
    if not folder.is_dir():
        raise UsageError(f"why {name}: --from: no folder {folder}; `tenure history export --to` writes one")
    files = sorted(folder.glob("*/nodeclaim/*/*/*.json"))
    mine = [one for one in files if one.parts[-3] == name]
    found = [one for one in _read_explanations(mine or files, read) if one.nodeclaim.is_called(name)]
    if not found:
        raise UsageError(
            f"why {name}: no NodeClaim, Node or instance of this name among {len(files)} files in {folder}"
        )
    return sorted(found, key=lambda one: one.nodeclaim.since or datetime.min.replace(tzinfo=UTC))


def _read_explanations(files: Iterable[Path], read: Read) -> Iterator[NodeExplanation]:
    """One per workflow, from its last run. An unreadable file affects only its own node."""
    runs: dict[Path, list[Sequence[HistoryEvent]]] = {}
    for file in files:
        try:
            runs.setdefault(file.parent, []).append(WorkflowHistory.from_json(file.stem, file.read_text()).events)
        except (ParseError, ValueError, OSError) as error:
            unreadable = NodeClaimSummary("/".join(file.parts[-5:-1]), file.parts[-3], "", status="EXPORTED")
            yield NodeExplanation(unreadable, remark=f"{file} is not a history: {error}; remove it and export it again")
    for directory, histories in runs.items():
        last = max((one for one in histories if one), key=lambda one: one[0].event_time.ToNanoseconds(), default=())
        if last:
            yield _explain_history("/".join(directory.parts[-4:]), read(last))


def _explain_history(workflow_id: str, events: Sequence[HistoryEvent]) -> NodeExplanation:
    attributes = _final_search_attributes(events)
    nodeclaim = summarize_attributes(
        workflow_id,
        lambda key: attributes.get(key.name),
        since=events[-1].event_time.ToDatetime(tzinfo=UTC),
        status="EXPORTED",
    )
    result = events[-1].workflow_execution_completed_event_attributes.result.payloads
    if not result:
        message = "its workflow did not complete; all steps, while Temporal keeps them"
        return NodeExplanation(nodeclaim, remark=f"{message}: tenure history {nodeclaim.name}")
    try:
        outcome: NodeClaimOutcome = _CONVERTER.from_payload(result[0], NodeClaimOutcome)
    except (ValidationError, RuntimeError) as error:
        return NodeExplanation(
            nodeclaim, remark=f"its outcome was written by another version: {' '.join(str(error).split())[:200]}"
        )
    return replace(explain_completed(nodeclaim, outcome), calls=list_activity_calls(events))


def _final_search_attributes(events: Iterable[HistoryEvent]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for event in events:
        for upserted in (
            event.workflow_execution_started_event_attributes.search_attributes,
            event.upsert_workflow_search_attributes_event_attributes.search_attributes,
        ):
            found |= {name: _CONVERTER.from_payload(payload) for name, payload in upserted.indexed_fields.items()}
    return {name: value for name, value in found.items() if value not in (None, [])}
