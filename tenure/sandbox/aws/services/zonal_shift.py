"""arc-zonal-shift with the cluster as a managed resource. The control API starts and ends shifts."""

from __future__ import annotations

from typing import Any

from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.wire.responses import AwsError, Response, json_response


def get_managed_resource(fake_aws: FakeAws, call: AwsCall) -> Response:
    """Raises ResourceNotFoundException for other resources, and for the cluster if it is not registered."""
    settings = fake_aws.settings
    if call.path_argument != settings.cluster_arn() or not settings.zonal_shift_registered:
        raise AwsError("ResourceNotFoundException", f"The resource {call.path_argument} was not found.")
    return json_response(_managed_resource(fake_aws))


def list_managed_resources(fake_aws: FakeAws, call: AwsCall) -> Response:
    if not fake_aws.settings.zonal_shift_registered:
        return json_response({"items": []})
    resource = _managed_resource(fake_aws)
    zones = sorted({s.availability_zone_id for s in fake_aws.default_environment.network.subnets()})
    return json_response({"items": [{**resource, "availabilityZones": zones}]})


def _managed_resource(fake_aws: FakeAws) -> dict[str, Any]:
    settings, shifts = fake_aws.settings, fake_aws.zonal_shifts.list_current()
    shifted_zones = {shift.zone_id for shift in shifts if shift.applied}
    zones = sorted({s.availability_zone_id for s in fake_aws.default_environment.network.subnets()})
    return {
        "arn": settings.cluster_arn(),
        "name": settings.cluster_name,
        "appliedWeights": {zone: 0.0 if zone in shifted_zones else 1.0 for zone in zones},
        "zonalShifts": [shift.view(settings.cluster_arn()) for shift in shifts if not shift.auto],
        "autoshifts": [shift.view(settings.cluster_arn()) for shift in shifts if shift.auto],
        "zonalAutoshiftStatus": "ENABLED" if settings.zonal_autoshift else "DISABLED",
    }
