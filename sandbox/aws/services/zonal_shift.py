"""arc-zonal-shift:GetManagedResource for the seeded cluster; the control API starts and ends shifts."""

from __future__ import annotations

import time

from sandbox.aws.request import AwsCall
from sandbox.aws.standin import StandIn
from sandbox.aws.wire.errors import AwsError
from sandbox.aws.wire.render import Response, json_response


def get_managed_resource(standin: StandIn, call: AwsCall) -> Response:
    settings = standin.settings
    if call.path_argument != settings.cluster_arn():
        raise AwsError("ResourceNotFoundException", f"The resource {call.path_argument} was not found.")
    shifts = [s for s in standin.zonal_shifts if s["expiryTime"] > time.time()]
    away = {shift["awayFrom"] for shift in shifts}
    zones = sorted({s.availability_zone_id for s in standin.home.network.subnets()})
    return json_response(
        {
            "arn": settings.cluster_arn(),
            "name": settings.cluster_name,
            "appliedWeights": {zone: 0.0 if zone in away else 1.0 for zone in zones},
            "zonalShifts": shifts,
            "autoshifts": [],
            "zonalAutoshiftStatus": "DISABLED",
        }
    )
