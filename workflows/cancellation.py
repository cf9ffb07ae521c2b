"""Long-lived workflows continue after a cancellation request, and their details state how to stop them.

"Request Cancellation" is the first action that the Temporal UI offers. A cancelled workflow would leave its node or the
cluster without a controller. `OrderedWorkflowRunner` therefore delivers the request as a signal to these workflows.
A termination cannot be refused; the worker starts a terminated workflow again.
"""

from datetime import datetime
from typing import ClassVar, Final

from temporalio import workflow

CANCELLATION_SIGNAL: Final = "cancellation_requested"


class IgnoresCancellation:
    """A workflow that ends only with its object or its installation."""

    how_to_stop: ClassVar[str]
    """The end of a sentence that begins with `To stop it, `."""
    _details: str = ""
    _cancellation_requested: datetime | None = None

    @workflow.signal(name=CANCELLATION_SIGNAL, description="From Temporal: a request to cancel this workflow")
    def record_cancellation_request(self) -> None:
        self._cancellation_requested = workflow.now()
        workflow.logger.warning("cancellation request not followed", extra={"remedy": self.how_to_stop})
        self._publish_details(self._details)

    def _publish_details(self, details: str) -> None:
        """Set the current details, after a note about a cancellation request."""
        self._details = details
        at = self._cancellation_requested
        notice = f"**Cancellation requested at {at:%H:%M:%S} UTC and not followed.** " if at else ""
        notice += f"To stop it, {self.how_to_stop}.\n\n" if at else ""
        workflow.set_current_details(notice + details)


def publish_details(details: str) -> None:
    """Set the current details of the workflow that runs this code."""
    running = workflow.instance()
    assert isinstance(running, IgnoresCancellation)
    running._publish_details(details)
