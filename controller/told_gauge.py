"""A gauge of which only changes are told, and 0 of what is no more."""

from collections.abc import Mapping

from temporalio.common import MetricGauge, MetricGaugeFloat


class ToldGauge:
    """`names`: its labels; what it shows has a value for each of them."""

    def __init__(self, gauge: MetricGauge | MetricGaugeFloat, *names: str) -> None:
        self._gauge, self._names = gauge, names
        self._shown: Mapping[tuple[str, ...], float] = {}

    def show(self, now: Mapping[tuple[str, ...], float]) -> None:
        for place in now.keys() | self._shown.keys():
            value = now.get(place, 0)
            if value != self._shown.get(place, 0):
                # A gauge of whole numbers is given none but those.
                self._gauge.set(value, dict(zip(self._names, place, strict=True)))  # type: ignore[arg-type]
        self._shown = dict(now)
