"""The part of the control client that concerns capacity: pools, limits, call rates, reservations, placement groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenure.sandbox.aws.admin.http_client import ControlClient, Json


class CapacityControl(ControlClient):
    def set_pool(
        self,
        available: int | None,
        *,
        instance_type: str = "*",
        zone: str = "*",
        capacity_type: str = "*",
        code: str | None = None,
        message: str | None = None,
    ) -> None:
        """Set how many more instances a capacity pool provides; None for unlimited. `*` matches all.

        `code` and `message`: the error of an empty pool, by default InsufficientInstanceCapacity.
        """
        pool = {
            "instance_type": instance_type, "zone": zone, "capacity_type": capacity_type, "available": available,
            "code": code, "message": message,
        }  # fmt: skip
        self._call("POST", "pools", pool)

    def clear_pools(self) -> None:
        """Remove all limits of pools and vCPUs."""
        self._call("DELETE", "pools")

    def set_vcpu_limit(self, capacity_type: str, vcpus: int | None) -> None:
        """Limit every family class of `spot` or `on-demand`; None for a limit that is never reached."""
        self._call("POST", "limits", {capacity_type: vcpus})

    def set_quota(self, code: str, vcpus: int | None) -> None:
        """Limit a family class by its quota code, such as L-1216C47A (standard families, on-demand)."""
        self._call("POST", "limits", {code: vcpus})

    def use_documented_rates(self) -> None:
        """Throttle EC2's actions as documented: 20 reads and 5 mutations per second, with bursts of 100 and 50."""
        self._call("POST", "rates", {"documented": True})

    def set_rate(self, action: str, refill: float, bucket: float) -> None:
        """Limit an action (`CreateFleet`, `iam:CreateInstanceProfile`) to `refill` calls per second after a burst."""
        self._call("POST", "rates", {"action": action, "refill": refill, "bucket": bucket})

    def clear_rates(self) -> None:
        """Remove all rate limits, as at startup."""
        self._call("DELETE", "rates")

    def make_reservation(
        self,
        instance_type: str = "m5.large",
        zone: str = "us-west-2a",
        *,
        count: int = 1,
        criteria: str = "targeted",
        kind: str = "default",
        interruptible: bool = False,
        owner: str | None = None,
        tags: Mapping[str, str] | None = None,
        starts_in: float = 0.0,
        lasts: float | None = None,
    ) -> str:
        """Make a capacity reservation; `kind` default or capacity-block, `criteria` open or targeted. Returns its id.

        It starts after `starts_in` seconds and ends `lasts` later, on the clock that `advance` moves; None: never.
        """
        body = {
            "instance_type": instance_type, "zone": zone, "count": count, "criteria": criteria, "kind": kind,
            "interruptible": interruptible, "owner": owner, "tags": dict(tags or {}), "starts_in": starts_in,
            "lasts": lasts,
        }  # fmt: skip
        return str(self._call("POST", "reservations", body)["id"])

    def list_reservations(self) -> dict[str, Json]:
        """By id: `state`, `total`, `available`, `instances`."""
        return {one["id"]: one for one in self._call("GET", "reservations")["reservations"]}

    def cancel_reservation(self, reservation_id: str) -> None:
        """Cancel it as its owner. On-demand instances keep running without it."""
        self._call("POST", "reservations/end", {"id": reservation_id, "state": "cancelled"})

    def expire_reservation(self, reservation_id: str) -> None:
        """End it. On-demand instances keep running without it, those of a capacity block are terminated."""
        self._call("POST", "reservations/end", {"id": reservation_id, "state": "expired"})

    def resize_reservation(self, reservation_id: str, total: int) -> None:
        self._call("POST", "reservations/resize", {"id": reservation_id, "total": total})

    def interrupt_reservation(
        self,
        reservation_id: str,
        *,
        instances: Iterable[str] | None = None,
        notice_seconds: float = 120,
        warn_only: bool = False,
    ) -> list[str]:
        """Reclaim the capacity of an interruptible reservation: send warnings, and terminate instances unless
        `warn_only`."""
        body = {
            "id": reservation_id, "instances": None if instances is None else list(instances),
            "notice_seconds": notice_seconds, "keep": warn_only,
        }  # fmt: skip
        found: list[str] = self._call("POST", "reservations/interrupt", body)["instances"]
        return found

    def set_placement_group_full(
        self, group_id: str, *, zone: str | None = None, partition: int | None = None, full: bool = True
    ) -> None:
        """Launches into the group (or a zone or partition of it) find no capacity; `full=False` ends this."""
        body = {"id": group_id, "zone": zone, "partition": partition, "full": full}
        self._call("POST", "placement-groups/full", body)
