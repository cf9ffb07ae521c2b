"""Random mutants of cosmic-ray.

Excluded are mutants that no test should catch (in annotations, log calls, f-strings, `if TYPE_CHECKING` and
`zip(strict=)`), and replacements that mostly raise TypeError, such as `+` by `@`, which any test catches.
"""

import ast
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

COMPARISONS = {"Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"}
ARITHMETIC = {"Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Div", "BitOr_BitAnd", "BitAnd_BitOr"}
PAIRS = COMPARISONS | ARITHMETIC | {"Delete_Not", "Delete_USub"}
IGNORED_DECORATORS = {"cache", "lru_cache", "functools.cache", "abstractmethod", "runtime_checkable", "overload"}

Position = tuple[str, tuple[int, int]]
"""File, and line and column."""


@dataclass(frozen=True)
class Mutant:
    path: str
    line: int
    operator: str
    occurrence: int


def draw(root: Path, folders: tuple[str, ...], count: int, seed: int) -> list[Mutant]:
    """Draw positions uniformly, so that the share of a folder follows its size, then one mutant at each position."""
    positions = {position: found for folder in folders for position, found in mutants_of(folder, root).items()}
    dice = random.Random(seed)
    order = sorted(positions)
    dice.shuffle(order)
    drawn = (dice.choice(positions[position]) for position in order)
    return list(islice((one for one in drawn if mutate((root / one.path).read_text(), one)), count))


def mutate(source: str, mutant: Mutant) -> str:
    """The source with the mutant; empty if cosmic-ray cannot create it."""
    try:
        changed: str = mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)
        ast.parse(changed)
    except (AttributeError, SyntaxError):
        return ""
    return changed


def mutants_of(folder: str, root: Path) -> dict[Position, list[Mutant]]:
    names = [name for name in operator_names() if "Variable" not in name]
    names = [name for name in names if "_" not in name or name.partition("_")[2] in PAIRS]
    operators = {name: get_operator(name)() for name in names}
    positions: dict[Position, list[Mutant]] = defaultdict(list)
    for file in sorted((root / folder).rglob("*.py")):
        source, path = file.read_text(), str(file.relative_to(root))
        spans = [
            ((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in excluded_nodes(ast.parse(source))
        ]
        counts: Counter[str] = Counter()
        for node in ast_nodes(get_ast(source)):
            for name, operator in operators.items():
                for start, _ in operator.mutation_positions(node):
                    mutant = Mutant(path, start[0], name, counts[name])
                    counts[name] += 1
                    if not is_ignored(node, name) and not any(first <= start < last for first, last in spans):
                        positions[path, start].append(mutant)
    return positions


def is_ignored(node: object, operator: str) -> bool:
    """Ignore the `*` before keyword-only parameters, and decorators without an effect that a test could observe."""
    if getattr(getattr(node, "parent", None), "type", "") in ("parameters", "lambdef"):
        return True
    code: str = getattr(node, "get_code", str)()
    return "Decorator" in operator and code.strip("@\n ").partition("(")[0] in IGNORED_DECORATORS


def excluded_nodes(tree: ast.Module) -> Iterator[ast.expr | ast.stmt | ast.keyword]:
    """Parts of a file whose mutants no test should catch."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=ast.expr() as part) | ast.AnnAssign(annotation=part):
                yield part
            case ast.FunctionDef(returns=ast.expr() as part) | ast.AsyncFunctionDef(returns=ast.expr() as part):
                yield part
            case ast.JoinedStr() | ast.If(test=ast.Name("TYPE_CHECKING")) | ast.keyword(arg="strict"):
                yield node
            case ast.Call(func=ast.Attribute(value=ast.Name("log" | "_log"))):
                yield node
            case ast.Assign(value=ast.BinOp(op=ast.BitOr()) as part) if node in tree.body:
                yield part  # A type alias.
