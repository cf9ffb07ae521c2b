"""How faults of the outside world reach Temporal: what is retried, how soon, and what never is."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.runtime import as_application_error, map_faults, not_yet_error
from tenure.model.errors import BadInput, Conflict, Fault, Forbidden, NotFound, Throttled, TryLater

TABLE: dict[type[Fault], tuple[bool, timedelta | None]] = {
    Throttled: (True, None),
    TryLater: (True, None),
    Conflict: (True, None),
    Forbidden: (True, timedelta(seconds=20)),
    NotFound: (False, None),
    BadInput: (False, None),
}


def all_subclasses(kind: type[Fault]) -> set[type[Fault]]:
    return {kind}.union(*(all_subclasses(one) for one in kind.__subclasses__()))


def test_the_table_has_every_fault() -> None:
    assert set(TABLE) == all_subclasses(Fault) - {Fault}


@pytest.mark.parametrize("kind", TABLE)
def test_a_fault_is_retried_as_its_class_says(kind: type[Fault]) -> None:
    retried, pause = TABLE[kind]
    error = as_application_error(kind("no", code="Code"))
    assert error.type == kind.__name__
    assert error.non_retryable is not retried
    assert error.next_retry_delay == pause


@pytest.mark.parametrize("kind", [Throttled, Forbidden])
def test_what_the_outside_says_of_waiting_counts(kind: type[Fault]) -> None:
    assert as_application_error(kind("no", retry_after=7)).next_retry_delay == timedelta(seconds=7)


def test_a_message_starts_with_the_outsides_own_code_and_is_cut() -> None:
    assert as_application_error(TryLater("later", code="InternalError")).message == "InternalError: later"
    assert as_application_error(TryLater("later")).message == "later"
    assert len(as_application_error(BadInput("x" * 5000)).message) == 300


async def test_activities_raise_faults_as_application_errors_and_bugs_as_they_are() -> None:
    @map_faults
    async def call(error: Exception | None) -> str:
        if error is not None:
            raise error
        return "done"

    assert await call(None) == "done"
    with pytest.raises(ApplicationError, match="gone") as fault:
        await call(NotFound("gone"))
    assert isinstance(fault.value.__cause__, NotFound)
    with pytest.raises(KeyError):
        await call(KeyError("a bug"))


def test_waiting_by_retry_counts_as_no_failure() -> None:
    error = not_yet_error("pods are leaving", retry_after=timedelta(seconds=3))
    assert error.category is ApplicationErrorCategory.BENIGN
    assert error.next_retry_delay == timedelta(seconds=3) and not error.non_retryable
