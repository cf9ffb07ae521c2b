"""A client of the stand-in's control API, for tests, the demo and benchmarks. Synchronous, standard library alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenure.sandbox.aws.admin.client_capacity import CapacityControl
from tenure.sandbox.aws.admin.http_client import ControlError, Json

__all__ = ["AwsControl", "ControlError", "Json"]

THROTTLES = ("RequestLimitExceeded", "Throttling", "ThrottlingException")


class AwsControl(CapacityControl):
    """`endpoint` is the fake's URL. Methods raise ControlError for a rejection, OSError without a connection."""

    def health(self) -> Json:
        return self._call("GET", "health")

    def reset(self) -> None:
        """Back to the seed: no instances, templates, faults, pools; keys bound at the start stay bound."""
        self._call("POST", "reset")

    def get_counters(self, access_key: str | None = None) -> dict[str, Json]:
        """Calls by `service:Action`: count, errors, codes. Of one access key if it is named."""
        query = {"access_key": access_key} if access_key else {}
        found: dict[str, Json] = self._call("GET", "counters", query=query)["calls"]
        return found

    def count_calls(self, action: str) -> int:
        """How often `service:Action` was called since the counters were last cleared."""
        return int(self.get_counters().get(action, {}).get("count", 0))

    def count_throttled(self, action: str) -> int:
        """How many calls of `service:Action` were answered that they came too fast."""
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
        """Add a rule and return its id. `kind`: throttle, 5xx, no-capacity, latency, answer-lost, error.

        `answer-lost` does the work, then cuts the connection or answers `http` if that is given. `latency`: seconds.
        """
        rule = {
            "kind": kind, "service": service, "action": action, "match": dict(match or {}), "probability": probability,
            "times": times, "skip": skip, "code": code, "message": message, "http": http, "latency": latency,
        }  # fmt: skip
        return str(self._call("POST", "faults", rule)["id"])

    def list_faults(self) -> list[Json]:
        """The rules with how often they were tried (`match_count`) and struck (`hits`)."""
        found: list[Json] = self._call("GET", "faults")["faults"]
        return found

    def remove_fault(self, rule_id: str) -> None:
        self._call("DELETE", "faults", {"id": rule_id})

    def clear_faults(self) -> None:
        self._call("DELETE", "faults")

    def seed_faults(self, seed: int) -> None:
        """Start the dice of probabilities from a seed."""
        self._call("POST", "faults/seed", {"seed": seed})

    def advance_clock(self, seconds: float) -> None:
        """Move the timers of instances forward; wall-clock stamps are not moved."""
        self._call("POST", "advance", {"seconds": seconds})

    def backdate(self, thing: str, seconds: float) -> None:
        """An instance, a launch template (by id) or an instance profile (by name) was made so much earlier."""
        self._call("POST", "age", {"id": thing, "seconds": seconds})

    def configure(self, **settings: Any) -> None:
        """Change delays and the cluster's answers while running, by the names of SimSettings."""
        self._call("POST", "settings", settings)

    def list_instances(self, *, after: int | None = None, wait: float = 0.0) -> Json:
        """`list_instances`, `launched`, `terminated`, `alive`, `revision`; with `after`, what changed since, and
        `is_deleted`.

        `wait` holds the answer back, up to so many seconds, until something changes.
        """
        query = {"wait": str(wait)} | ({} if after is None else {"after": str(after)})
        return self._call("GET", "instances", query=query, timeout=wait + 30)

    def list_fleets(self) -> list[Json]:
        """Every fleet: id, client_token, target, number of overrides, instances, error codes."""
        found: list[Json] = self._call("GET", "launches")["fleets"]
        return found

    def stop_instance(self, instance_id: str) -> None:
        self._call("POST", "instances/stop", {"id": instance_id})

    def start_instance(self, instance_id: str) -> None:
        self._call("POST", "instances/start", {"id": instance_id})

    def terminate_instance(self, instance_id: str) -> None:
        """As if somebody else had terminated it."""
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
        """Set the answer of DescribeInstanceStatus. An event: `code`, `not_before`, `not_after`, `description`, `id`.

        `impaired_seconds`: how long a check has failed; -1: EC2 does not report its start.
        """
        body = {
            "id": instance_id, "instance": instance, "system": system, "ebs": ebs, "events": list(events),
            "impaired_seconds": impaired_seconds,
        }  # fmt: skip
        self._call("POST", "instances/status", body)

    def interrupt_spot(self, instance_id: str, *, notice_seconds: float = 120, warn_only: bool = False) -> None:
        """Send the interruption warning; the instance is taken after the notice unless `warn_only`."""
        self._call("POST", "spot-interrupt", {"id": instance_id, "notice_seconds": notice_seconds, "keep": warn_only})

    def recommend_rebalance(self, instance_id: str) -> None:
        self._call("POST", "rebalance", {"id": instance_id})

    def health_event(self, instance_ids: Iterable[str], **detail: Any) -> str:
        """Send an AWS Health event about instances; `detail` is laid over the usual one. Returns the event's ARN."""
        return str(self._call("POST", "health-event", {"ids": list(instance_ids), "detail": detail})["arn"])

    def send_message(self, message: Json) -> None:
        self._call("POST", "messages", {"message": message})

    def count_queued_messages(self) -> int:
        """Messages in the cluster's queue: also those that were received and are not deleted yet."""
        return int(self._call("GET", "messages")["queued"])

    def put_parameter(self, name: str, value: str) -> None:
        """Publish an SSM parameter, also below /aws/service."""
        self._call("POST", "parameters", {"name": name, "value": value})

    def publish_image(self, name: str, *, parameters: Iterable[str] = (), **image: Any) -> str:
        """A new public image, and the SSM parameters that name it. `image`: architecture, created, deprecation, …"""
        return str(self._call("POST", "images", {"name": name, "parameters": list(parameters), **image})["id"])

    def deprecate_image(self, image_id: str) -> None:
        """Its deprecation time is passed: it can be launched, but is listed only to those who ask for such."""
        self._call("POST", "images/deprecate", {"id": image_id})

    def remove_image(self, image_id: str) -> None:
        """Deregistered by its owner: nothing can be launched from it any more. Parameters still name it."""
        self._call("POST", "images/remove", {"id": image_id})

    def release_images(self, family: str, version: str, *, minor: str | None = None) -> dict[str, str]:
        """A new release of all of a family's images (al2023, al2, bottlerocket, windows), which `latest` now names.

        `version` is written as the family writes it: 20251101, 1.50.0, 2025.11.01. Returns ids by name.
        """
        body = {"family": family, "version": version, "minor": minor}
        found: dict[str, str] = self._call("POST", "images/release", body)["images"]
        return found

    def set_free_addresses(self, subnet_id: str, free: int | None) -> None:
        self._call("POST", "subnets", {"subnet_id": subnet_id, "free": free})

    def shift_zone(
        self, zone_id: str, *, seconds: float = 3600, auto: bool = False, applied: bool = True, comment: str = ""
    ) -> None:
        """Start a zonal shift: a person's, which runs out, or AWS's own; one that is not `applied` has no effect."""
        body = {"zone_id": zone_id, "seconds": seconds, "auto": auto, "applied": applied, "comment": comment}
        self._call("POST", "zonal-shifts", body)

    def end_zonal_shifts(self, zone_id: str | None = None) -> None:
        """End the shifts away from one zone, or all of them."""
        self._call("DELETE", "zonal-shifts", {} if zone_id is None else {"zone_id": zone_id})

    def bind_key(self, access_key: str, policy: Json | list[Json]) -> None:
        """Hold an access key to one or several IAM documents."""
        self._call("POST", "keys", {"access_key": access_key, "policy": policy})

    def guard_key(self, access_key: str, layer: str, policy: Json | None) -> None:
        """Put a `permissions boundary` or a `service control policy` over a bound key; None takes it away."""
        self._call("POST", "keys", {"access_key": access_key, "layer": layer, "policy": policy})

    def release_key(self, access_key: str) -> None:
        self._call("DELETE", "keys", {"access_key": access_key})

    def list_denials(self) -> list[Json]:
        """What bound keys were refused: access_key, action, resource, decision."""
        found: list[Json] = self._call("GET", "keys")["denials"]
        return found
