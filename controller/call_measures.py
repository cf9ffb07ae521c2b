"""How long calls wait for their turn at AWS and at the API server, and what AWS refused: each count is a call.

The adapters know no metrics: they are handed these methods. Rates are those of `aws/throttle.py` and `kube/pace.py`.
"""

from typing import Final

from temporalio.common import MetricMeter

AWS: Final = "tenure_aws_call_wait_seconds"
THROTTLED: Final = "tenure_aws_throttled_total"
KUBERNETES: Final = "tenure_kubernetes_call_wait_seconds"
BUCKETS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper ends, in seconds."""


class CallMeasures:
    def __init__(self, meter: MetricMeter) -> None:
        self._aws = meter.create_histogram_float(AWS, "How long a call of AWS waited for its turn", "s")
        self._throttled = meter.create_counter(THROTTLED, "Calls that AWS refused as too many")
        self._kubernetes = meter.create_histogram_float(KUBERNETES, "How long a request waited for its turn", "s")

    def aws(self, operation: str, seconds: float) -> None:
        self._aws.record(seconds, {"operation": operation})

    def throttled(self, operation: str) -> None:
        self._throttled.add(1, {"operation": operation})

    def kubernetes(self, seconds: float) -> None:
        self._kubernetes.record(seconds)
