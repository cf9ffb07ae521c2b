"""The algebra of requirements on labels: several that all hold, compatibility, and how they are written back.

Built from `model.facts.Expression`; planning narrows with it, `aws/` maps images to instance types with it, and the
result is written back as expressions. `model/requirement.py` has the single requirement.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from model.facts import Expression
from model.labels import WELL_KNOWN, is_injected_elsewhere
from model.requirement import Requirement, RequirementError, one_of, requirement

__all__ = ["Requirement", "RequirementError", "Requirements", "one_of", "requirement"]


class Requirements(Mapping[str, Requirement]):
    """Requirements that all hold, one per key. Immutable and hashable."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Requirement] = {}
        for one in requirements:
            known = by_key.get(one.key)
            by_key[one.key] = one if known is None else known.intersection(one)
        self._by_key = by_key
        self._hash: int | None = None

    @classmethod
    def of(cls, expressions: Iterable[Expression]) -> "Requirements":
        """All expressions together; raises RequirementError."""
        return cls(requirement(expression) for expression in expressions)

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> "Requirements":
        """Each label has exactly its value."""
        return cls(one_of(key, value) for key, value in labels.items())

    @classmethod
    def of_choices(cls, labels: Mapping[str, Iterable[str]], absent: Iterable[str] = ()) -> "Requirements":
        """Each label has one of its values, as for an instance type; those in `absent` and not given do not exist."""
        given = [one_of(key, *values) for key, values in labels.items()]
        known = {one.key for one in given}
        return cls([*given, *(one_of(key) for key in absent if key not in known)])

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._by_key.values()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirements) and self._by_key == other._by_key

    def __repr__(self) -> str:
        return f"Requirements({self})"

    def __str__(self) -> str:
        return ", ".join(str(self[key]) for key in sorted(self))

    def intersection(self, *others: "Requirements") -> "Requirements":
        """All of them hold."""
        if not any(others):
            return self
        return Requirements([*self.values(), *(one for other in others for one in other.values())])

    def without(self, *keys: str) -> "Requirements":
        return Requirements(one for key, one in self.items() if key not in keys)

    def conflicts(self, other: "Requirements") -> tuple[str, ...]:
        """The keys that both name and that exclude each other, sorted. What only one names is not looked at."""
        small, large = (self, other) if len(self) <= len(other) else (other, self)
        return tuple(sorted(key for key in small if key in large and small[key].conflicts(large[key])))

    def undefined(self, wanted: "Requirements", allowed: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """The keys that `wanted` needs to be there and that nothing here defines, sorted."""
        needed = (key for key, one in wanted.items() if one.present)
        return tuple(sorted(key for key in needed if key not in self and key not in allowed))

    def compatible(self, wanted: "Requirements", allow_undefined: frozenset[str] = WELL_KNOWN) -> bool:
        """Whether a node described by this can satisfy `wanted`, as for a node that is yet to be bought.

        Keys in `allow_undefined` may be unknown here; of any other that `wanted` needs something must be known.
        """
        return not self.undefined(wanted, allow_undefined) and not self.conflicts(wanted)

    def compatible_strictly(self, wanted: "Requirements") -> bool:
        """As `compatible`, for what is known fully: an existing node, or an instance type that gets an image."""
        return self.compatible(wanted, frozenset())

    def implies(self, wanted: "Requirements") -> bool:
        """Whether anything that satisfies this satisfies `wanted` as well, without narrowing further."""
        return all(
            self[key].implies(one) if key in self else not one.present and key not in WELL_KNOWN
            for key, one in wanted.items()
        )

    def incompatibility(self, wanted: "Requirements", allow_undefined: frozenset[str] = WELL_KNOWN) -> str:
        """Why `compatible` says no, in words; empty when it says yes."""
        missing = [
            f"{wanted[key]} is asked for and nothing defines that label{self._hint(key)}"
            for key in self.undefined(wanted, allow_undefined)
        ]
        apart = [f"{wanted[key]} is asked for, {self[key]} is offered" for key in self.conflicts(wanted)]
        return "; ".join(missing + apart)

    def expressions(self) -> tuple[Expression, ...]:
        """As the API writes them, sorted by key."""
        return tuple(expression for key in sorted(self) for expression in self[key].expressions())

    def custom_labels(self) -> dict[str, str]:
        """One concrete value for each key that neither the provider sets nor anybody reserves."""
        examples = {key: self[key].example() for key in sorted(self) if not is_injected_elsewhere(key)}
        return {key: value for key, value in examples.items() if value}

    def _hint(self, key: str) -> str:
        if key in WELL_KNOWN:
            return ""
        near = get_close_matches(key, sorted(WELL_KNOWN | set(self)), n=1, cutoff=0.85)
        return f" (is {near[0]} meant?)" if near else ""
