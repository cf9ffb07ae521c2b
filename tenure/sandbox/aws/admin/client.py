"""A synchronous client of the stand-in's control API, for tests, the demo and benchmarks. Only standard library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenure.sandbox.aws.admin.client_capacity import CapacityControl
from tenure.sandbox.aws.admin.http_client import ControlError, Json

__all__ = ["AwsControl", "ControlError", "Json"]

THROTTLES = ("RequestLimitExceeded", "Throttling", "ThrottlingException")


class AwsControl(CapacityControl):
    """`endpoint`: URL of the stand-in. Methods raise ControlError for a rejection, OSError without a connection."""

    def health(self) -> Json:
        return self._call("GET", "health")

    def reset(self) -> None:
        """Restore the initial state: no instances, templates, faults and pools. Keys bound at startup remain bound."""
        self._call("POST", "reset")

    def get_counters(self, access_key: str | None = None) -> dict[str, Json]:
        """Count, errors and error codes by `service:Action`, of all access keys or of one."""
        query = {"access_key": access_key} if access_key else {}
        found: dict[str, Json] = self._call("GET", "counters", query=query)["calls"]
        return found

    def count_calls(self, action: str) -> int:
        """Number of calls of `service:Action` since the counters were last cleared."""
        return int(self.get_counters().get(action, {}).get("count", 0))

    def count_throttled(self, action: str) -> int:
        """Number of throttled calls of `service:Action`."""
        codes: dict[str, int] = self.get_counters().get(action, {}).get("codes", {})
        return sum(codes.get(code, 0) for code in THROTTLES)

    def clear_counters(self) -> None:
        self._call("DELETE", "counters")

    def add_fault(
        self,
        kind: str,
        *,
        service: str = "*",
        action: str = "*",
        match: Mapping[str, str] | None = None,
        probability: float = 1.0,
        times: int | None = None,
        skip: int = 0,
        code: str | None = None,
        message: str | None = None,
        http: int | None = None,
        latency: float = 0.0,
    ) -> str:
        """Add a rule and return its ID. `kind`: throttle, 5xx, no-capacity, latency, answer-lost, error.

        `answer-lost` performs the call, then closes the connection or responds with status `http`. `latency`: seconds.
        """
        rule = {
            "kind": kind, "service": service, "action": action, "match": dict(match or {}), "probability": probability,
            "times": times, "skip": skip, "code": code, "message": message, "http": http, "latency": latency,
        }  # fmt: skip
        return str(self._call("POST", "faults", rule)["id"])

    def list_faults(self) -> list[Json]:
        """The rules, with the number of matching calls (`match_count`) and of injected faults (`hits`)."""
        found: list[Json] = self._call("GET", "faults")["faults"]
        return found

    def remove_fault(self, rule_id: str) -> None:
        self._call("DELETE", "faults", {"id": rule_id})

    def clear_faults(self) -> None:
        self._call("DELETE", "faults")

    def seed_faults(self, seed: int) -> None:
        """Seed the random numbers for probabilities."""
        self._call("POST", "faults/seed", {"seed": seed})

    def advance_clock(self, seconds: float) -> None:
        """Advance the timers of instances. Timestamps still use the real time."""
        self._call("POST", "advance", {"seconds": seconds})

    def backdate(self, thing: str, seconds: float) -> None:
        """Make an instance, a launch template (by ID) or an instance profile (by name) older."""
        self._call("POST", "age", {"id": thing, "seconds": seconds})

    def configure(self, **settings: Any) -> None:
        """Change settings such as delays and cluster data at runtime, by the names of SimSettings."""
        self._call("POST", "settings", settings)

    def list_instances(self, *, after: int | None = None, wait: float = 0.0) -> Json:
        """`list_instances`, `launched`, `terminated`, `alive`, `revision`. With `after`, only changes since that
        revision, and `is_deleted`.

        `wait`: maximum seconds to wait for a change.
        """
        query = {"wait": str(wait)} | ({} if after is None else {"after": str(after)})
        return self._call("GET", "instances", query=query, timeout=wait + 30)

    def list_fleets(self) -> list[Json]:
        """All fleets: ID, client token, target, number of overrides, instances, error codes."""
        found: list[Json] = self._call("GET", "launches")["fleets"]
        return found

    def stop_instance(self, instance_id: str) -> None:
        self._call("POST", "instances/stop", {"id": instance_id})

    def start_instance(self, instance_id: str) -> None:
        self._call("POST", "instances/start", {"id": instance_id})

    def terminate_instance(self, instance_id: str) -> None:
        """Terminate it outside of the client's control."""
        self._call("POST", "instances/terminate", {"id": instance_id})

    def set_status(
        self,
        instance_id: str,
        *,
        instance: str = "ok",
        system: str = "ok",
        ebs: str = "ok",
        impaired_seconds: float | None = None,
        events: Iterable[Json] = (),
    ) -> None:
        """Set the result of DescribeInstanceStatus. An event: `code`, `not_before`, `not_after`, `description`, `id`.

        `impaired_seconds`: how long a check has failed; -1: EC2 does not report its start.
        """
        body = {
            "id": instance_id, "instance": instance, "system": system, "ebs": ebs, "events": list(events),
            "impaired_seconds": impaired_seconds,
        }  # fmt: skip
        self._call("POST", "instances/status", body)

    def interrupt_spot(self, instance_id: str, *, notice_seconds: float = 120, warn_only: bool = False) -> None:
        """Send the interruption warning. The instance is terminated after the notice unless `warn_only`."""
        self._call("POST", "spot-interrupt", {"id": instance_id, "notice_seconds": notice_seconds, "keep": warn_only})

    def recommend_rebalance(self, instance_id: str) -> None:
        self._call("POST", "rebalance", {"id": instance_id})

    def health_event(self, instance_ids: Iterable[str], **detail: Any) -> str:
        """Send an AWS Health event about instances; `detail` overrides defaults. Returns the event ARN."""
        return str(self._call("POST", "health-event", {"ids": list(instance_ids), "detail": detail})["arn"])

    def send_message(self, message: Json) -> str:
        """Returns the ID by which a consumer receives the message."""
        return str(self._call("POST", "messages", {"message": message})["id"])

    def count_queued_messages(self) -> int:
        """Messages in the cluster's queue, including received ones that are not deleted yet."""
        return int(self._call("GET", "messages")["queued"])

    def put_parameter(self, name: str, value: str) -> None:
        """Publish an SSM parameter, also below /aws/service."""
        self._call("POST", "parameters", {"name": name, "value": value})

    def publish_image(self, name: str, *, parameters: Iterable[str] = (), **image: Any) -> str:
        """Publish an image and the SSM parameters that name it. `image`: architecture, created, deprecation, …"""
        return str(self._call("POST", "images", {"name": name, "parameters": list(parameters), **image})["id"])

    def deprecate_image(self, image_id: str) -> None:
        """Pass its deprecation time: it can still be launched, but is listed only with IncludeDeprecated."""
        self._call("POST", "images/deprecate", {"id": image_id})

    def remove_image(self, image_id: str) -> None:
        """Deregister it: it can no longer be launched. Parameters still name it."""
        self._call("POST", "images/remove", {"id": image_id})

    def release_images(self, family: str, version: str, *, minor: str | None = None) -> dict[str, str]:
        """Release all images of a family (al2023, al2, bottlerocket, windows). `latest` then names them.

        `version` has the format of the family: 20251101, 1.50.0, 2025.11.01. Returns IDs by name.
        """
        body = {"family": family, "version": version, "minor": minor}
        found: dict[str, str] = self._call("POST", "images/release", body)["images"]
        return found

    def set_free_addresses(self, subnet_id: str, free: int | None) -> None:
        self._call("POST", "subnets", {"subnet_id": subnet_id, "free": free})

    def shift_zone(
        self, zone_id: str, *, seconds: float = 3600, auto: bool = False, applied: bool = True, comment: str = ""
    ) -> None:
        """Start a zonal shift: manual with an expiry, or an autoshift of AWS. It has no effect unless `applied`."""
        body = {"zone_id": zone_id, "seconds": seconds, "auto": auto, "applied": applied, "comment": comment}
        self._call("POST", "zonal-shifts", body)

    def end_zonal_shifts(self, zone_id: str | None = None) -> None:
        """End the shifts away from one zone, or all of them."""
        self._call("DELETE", "zonal-shifts", {} if zone_id is None else {"zone_id": zone_id})

    def bind_key(self, access_key: str, policy: Json | list[Json]) -> None:
        """Restrict an access key to one or several IAM policy documents."""
        self._call("POST", "keys", {"access_key": access_key, "policy": policy})

    def guard_key(self, access_key: str, layer: str, policy: Json | None) -> None:
        """Add a `permissions boundary` or a `service control policy` to a bound key; None removes it."""
        self._call("POST", "keys", {"access_key": access_key, "layer": layer, "policy": policy})

    def release_key(self, access_key: str) -> None:
        self._call("DELETE", "keys", {"access_key": access_key})

    def list_denials(self) -> list[Json]:
        """Denied calls of bound keys: access_key, action, resource, decision."""
        found: list[Json] = self._call("GET", "keys")["denials"]
        return found
