"""The control API under /_sim, with JSON requests and responses, for tests and the demo.

`ROUTES` lists all routes; `client.AwsControl` is the client. Routes for instances are in `instances`.
"""

from __future__ import annotations

import datetime as dt
import json
import traceback
from collections.abc import Callable
from dataclasses import fields
from typing import Any
from urllib.parse import parse_qsl

from tenure.sandbox.aws.admin import instances, reservations
from tenure.sandbox.aws.ec2.fleet.capacity import BY_CODE, QUOTAS
from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.rate_limits import Rate
from tenure.sandbox.aws.http.request import HttpRequest
from tenure.sandbox.aws.settings import SimSettings
from tenure.sandbox.aws.state.initial_state import reset, set_parameter
from tenure.sandbox.aws.state.instance_profiles import profile_named
from tenure.sandbox.aws.wire.responses import AwsError, Response, json_response

Body = dict[str, Any]


def backdate(fake_aws: FakeAws, body: Body) -> Any:
    """Make an instance, launch template or instance profile older by `seconds`, for clients that wait for an age."""
    name, earlier = str(body["id"]), dt.timedelta(seconds=float(body["seconds"]))
    environment = fake_aws.default_environment
    if name in environment.instances:
        instance = environment.instances[name]
        instance.launch_time -= earlier
        instance.invalidate_view()
    elif name in environment.templates:
        environment.templates[name].created -= earlier
    elif (profile := profile_named(fake_aws.settings.account, name)) is not None:
        profile.create_date -= earlier
    else:
        raise LookupError(name)
    return {"ok": True}


Handler = Callable[[FakeAws, Body], Any]
FIXED_SETTINGS = frozenset({"account", "region", "cluster_name", "clock_scale"})
DONE = {"ok": True}


class Control:
    def __init__(self, fake_aws: FakeAws) -> None:
        self._fake_aws = fake_aws

    def handle(self, http: HttpRequest) -> Response:
        """400 with a text for an invalid request, 404 for an unknown route or object, 500 after an error of its own.

        The handlers of all routes hold the lock of the default region.
        """
        handler = ROUTES.get((http.method, http.path.removeprefix("/_sim/")))
        if handler is None:
            return json_response({"error": f"no such control: {http.method} {http.path}"}, 404)
        try:
            body = {**dict(parse_qsl(http.query)), **http.json()}
            with self._fake_aws.default_environment.lock:
                return json_response(handler(self._fake_aws, body))
        except LookupError as error:
            return json_response({"error": f"not found or missing: {error}"}, 404)
        except (ValueError, TypeError, AwsError, json.JSONDecodeError) as error:
            return json_response({"error": str(error)}, 400)
        except Exception as error:
            traceback.print_exc()
            return json_response({"error": f"the AWS stand-in failed; see its log: {error!r}"}, 500)


def health(fake_aws: FakeAws, body: Body) -> Any:
    settings = fake_aws.settings
    return {"ok": True, "region": settings.region, "account": settings.account, "cluster": settings.cluster_name}


def do_reset(fake_aws: FakeAws, body: Body) -> Any:
    reset(fake_aws)
    return DONE


def counters(fake_aws: FakeAws, body: Body) -> Any:
    return {"calls": fake_aws.counters.list_calls(body.get("access_key"))}


def clear_counters(fake_aws: FakeAws, body: Body) -> Any:
    fake_aws.counters.clear()
    return DONE


def list_faults(fake_aws: FakeAws, body: Body) -> Any:
    return {"faults": fake_aws.faults.list_rules()}


def add_fault(fake_aws: FakeAws, body: Body) -> Any:
    return {"id": fake_aws.faults.add(body).id}


def remove_faults(fake_aws: FakeAws, body: Body) -> Any:
    if "id" not in body:
        fake_aws.faults.clear()
    elif not fake_aws.faults.remove(body["id"]):
        raise LookupError(body["id"])
    return DONE


def seed_faults(fake_aws: FakeAws, body: Body) -> Any:
    fake_aws.faults.reseed(int(body["seed"]))
    return DONE


def list_pools(fake_aws: FakeAws, body: Body) -> Any:
    used = {BY_CODE[code].name: vcpus for code, vcpus in fake_aws.default_environment.vcpus_used.items() if vcpus}
    return {
        "pools": fake_aws.default_environment.pools.list_pools(),
        "limits": fake_aws.default_environment.quotas,
        "used": used,
    }


def set_pool(fake_aws: FakeAws, body: Body) -> Any:
    key = (body.get("instance_type", "*"), body.get("zone", "*"), body.get("capacity_type", "*"))
    available, code = body["available"], body.get("code")
    error = (code, body.get("message") or code) if code else None
    fake_aws.default_environment.pools.set_available(key, None if available is None else int(available), error)
    return DONE


def clear_pools(fake_aws: FakeAws, body: Body) -> Any:
    fake_aws.default_environment.pools.clear()
    fake_aws.default_environment.quotas.clear()
    return DONE


def set_limits(fake_aws: FakeAws, body: Body) -> Any:
    """vCPUs by quota code, or by usage (`spot`, `on-demand`) for all its quotas; null: a limit never reached."""
    for name, vcpus in body.items():
        codes = [quota.code for quota in QUOTAS if name in (quota.code, quota.usage)]
        if not codes:
            raise ValueError(f"{name} is neither spot, on-demand nor a quota code")
        for code in codes:
            fake_aws.default_environment.quotas.pop(code, None)
            if vcpus is not None:
                fake_aws.default_environment.quotas[code] = int(vcpus)
    return DONE


def list_rates(fake_aws: FakeAws, body: Body) -> Any:
    return fake_aws.rates.list_rates()


def set_rates(fake_aws: FakeAws, body: Body) -> Any:
    """`documented`: EC2's documented rates; or `action` with `refill` and `bucket`, both null for no limit."""
    if body.get("documented"):
        fake_aws.rates.use_documented()
    if "action" in body:
        bucket = body.get("bucket")
        rate = None if bucket is None else Rate(float(body["refill"]), float(bucket))
        fake_aws.rates.set_rate(body["action"], rate)
    return DONE


def clear_rates(fake_aws: FakeAws, body: Body) -> Any:
    fake_aws.rates.clear()
    return DONE


def advance_clock(fake_aws: FakeAws, body: Body) -> Any:
    fake_aws.clock.advance(float(body["seconds"]))
    for environment in fake_aws.environments().values():
        with environment.lock:
            environment.run_due_transitions()
            environment.moved.notify_all()
    return {"now": fake_aws.clock.now()}


def configure(fake_aws: FakeAws, body: Body) -> Any:
    """Change settings such as delays and the cluster's endpoint, by the names of SimSettings."""
    known = {field.name: field.type for field in fields(SimSettings)}
    for name, value in body.items():
        if name not in known or name in FIXED_SETTINGS:
            raise ValueError(f"{name} cannot be set; expected one of {', '.join(sorted(set(known) - FIXED_SETTINGS))}")
        setattr(fake_aws.settings, name, value)
    return DONE


def get_settings(fake_aws: FakeAws, body: Body) -> Any:
    return vars(fake_aws.settings)


def put_parameter(fake_aws: FakeAws, body: Body) -> Any:
    set_parameter(fake_aws, body["name"], body["value"])
    return DONE


def bind_key(fake_aws: FakeAws, body: Body) -> Any:
    if "layer" in body:
        fake_aws.keys.set_guard(body["access_key"], body["layer"], body["policy"])
    else:
        fake_aws.keys.bind_policy(body["access_key"], body["policy"])
    return DONE


def release_key(fake_aws: FakeAws, body: Body) -> Any:
    fake_aws.keys.release(body["access_key"])
    return DONE


def list_keys(fake_aws: FakeAws, body: Body) -> Any:
    return {"keys": fake_aws.keys.list_bindings(), "denials": fake_aws.keys.list_denials()}


def withhold_addresses(fake_aws: FakeAws, body: Body) -> Any:
    """Limit the free addresses of a subnet; None removes the limit."""
    address_pool = fake_aws.default_environment.network.address_pool(body["subnet_id"])
    address_pool.withheld = 0
    if body["free"] is not None:
        address_pool.withheld = max(0, address_pool.free_count() - int(body["free"]))
    return DONE


def shift_zone(fake_aws: FakeAws, body: Body) -> Any:
    """Shift away from a zone, manually for `seconds` or as autoshift (`auto`); without `applied` it has no effect."""
    shift = fake_aws.zonal_shifts.start(
        body["zone_id"],
        seconds=float(body.get("seconds", 3600)),
        applied=bool(body.get("applied", True)),
        auto=bool(body.get("auto", False)),
        comment=body.get("comment", ""),
    )
    return {"id": shift.id}


def end_shifts(fake_aws: FakeAws, body: Body) -> Any:
    fake_aws.zonal_shifts.end(body.get("zone_id"))
    return DONE


ROUTES: dict[tuple[str, str], Handler] = {
    ("GET", "health"): health,
    ("POST", "reset"): do_reset,
    ("GET", "counters"): counters,
    ("DELETE", "counters"): clear_counters,
    ("GET", "faults"): list_faults,
    ("POST", "faults"): add_fault,
    ("DELETE", "faults"): remove_faults,
    ("POST", "faults/seed"): seed_faults,
    ("GET", "pools"): list_pools,
    ("POST", "pools"): set_pool,
    ("DELETE", "pools"): clear_pools,
    ("POST", "limits"): set_limits,
    ("GET", "rates"): list_rates,
    ("POST", "rates"): set_rates,
    ("DELETE", "rates"): clear_rates,
    ("POST", "advance"): advance_clock,
    ("POST", "age"): backdate,
    ("GET", "settings"): get_settings,
    ("POST", "settings"): configure,
    ("POST", "parameters"): put_parameter,
    ("POST", "images"): instances.add_image,
    ("POST", "images/deprecate"): instances.deprecate_image,
    ("POST", "images/remove"): instances.remove_image,
    ("POST", "images/release"): instances.release,
    ("GET", "keys"): list_keys,
    ("POST", "keys"): bind_key,
    ("DELETE", "keys"): release_key,
    ("POST", "subnets"): withhold_addresses,
    ("POST", "zonal-shifts"): shift_zone,
    ("DELETE", "zonal-shifts"): end_shifts,
    ("GET", "reservations"): reservations.list_reservations,
    ("POST", "reservations"): reservations.add_reservation,
    ("POST", "reservations/end"): reservations.end_reservation,
    ("POST", "reservations/resize"): reservations.resize_reservation,
    ("POST", "reservations/interrupt"): reservations.interrupt_reservation,
    ("POST", "placement-groups/full"): reservations.set_group_full,
    ("GET", "instances"): instances.list_instances,
    ("GET", "launches"): instances.list_fleets,
    ("POST", "instances/stop"): instances.stop,
    ("POST", "instances/start"): instances.start,
    ("POST", "instances/terminate"): instances.terminate,
    ("POST", "instances/status"): instances.set_status,
    ("POST", "spot-interrupt"): instances.interrupt_spot,
    ("POST", "rebalance"): instances.recommend_rebalance,
    ("POST", "health-event"): instances.announce_health_event,
    ("GET", "messages"): instances.count_messages,
    ("POST", "messages"): instances.send_message,
}
