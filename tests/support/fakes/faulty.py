"""Fault injection for fakes: faults by method name, raised one after the other before the method runs."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from tenure.model.errors import Fault


@dataclass(kw_only=True)
class FaultInjectable:
    """Every async method of a subclass checks `faults` first, so that each call of a port can fail."""

    faults: dict[str, list[Fault | None]] = field(default_factory=dict)
    """None lets one call succeed."""

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if inspect.iscoroutinefunction(method):
                setattr(cls, name, _with_faults(name, method))


def _with_faults(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def raise_or_call(self: FaultInjectable, *args: Any, **kwargs: Any) -> Any:
        fault = self.faults[name].pop(0) if self.faults.get(name) else None
        if fault is not None:
            raise fault
        return await method(self, *args, **kwargs)

    return raise_or_call
