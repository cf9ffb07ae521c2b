"""Count names outside the field's vocabulary, phrases to avoid, words per sentence, and entries per folder.

`make check` runs it.

A name counts if one of its words is in `private_words.txt`. Kubernetes, Karpenter, EC2 and Temporal use other terms for
these concepts; CONTRIBUTING.md lists them. Prose is Markdown, manifests, docstrings and strings outside of tests.
`avoided_phrases.txt` has the phrases and the usual term for each. The script uses only the standard library.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MOST_ENTRIES: Final = 25
MOST_NAMES: Final = {"product": 12, "tests": 56}
MOST_PHRASES: Final = 6
SENTENCE_LIMITS: Final = {"a sentence": 35, "an average sentence": 18}
"""Of pages and docstrings."""
SKIPPED: Final = frozenset({"build", "dist", "__pycache__", "histories"})
PRIVATE_TERMS: Final = frozenset((ROOT / "tools" / "private_words.txt").read_text().split())
_PHRASE_LINES: Final = (ROOT / "tools" / "avoided_phrases.txt").read_text().splitlines()[1:]
PHRASES: Final = {
    re.compile(one, re.IGNORECASE): term for one, _, term in (line.partition("  # ") for line in _PHRASE_LINES)
}
_CODE_BLOCK: Final = re.compile(r"<!--.*?-->|^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_BLOCK_END: Final = re.compile(r"\n[ \t]*\n|\n\s*(?:[-*]|\d+\.)\s|\n#")
_TABLE_ROW: Final = re.compile(r"^\|.*$", re.MULTILINE)
_MARKUP: Final = re.compile(r"!?\[(?P<text>[^\]]*)\]\([^)]*\)|`[^`]*`")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:])[)\"'*]*\s+(?=[A-Z0-9\[(\"'*])")
FIELD_TERMS: Final = frozenset(
    {"first_seen", "last_seen", "seen_at", "keep_alive", "left", "go", "fill_value", "pad_left", "placement"}
)
"""Names that contain a private word and are terms of the field."""


def split_name(name: str) -> list[str]:
    split = re.sub(r"([a-z0-9])([A-Z])|([A-Z]+)(?=[A-Z][a-z])", r"\1\3_\2", name)
    return [part for part in split.lower().split("_") if part]


def is_private(name: str) -> bool:
    found = split_name(name)
    pairs = {"_".join(pair) for pair in pairwise(found)}
    return "_".join(found) not in FIELD_TERMS and bool(PRIVATE_TERMS & {*found, *pairs})


def definitions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each class, function, parameter, variable and attribute; names of test functions are prose."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if not name.startswith("test_"):
                    yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def files(suffix: str) -> Iterator[Path]:
    for path in sorted(ROOT.rglob(f"*{suffix}")):
        parts = path.relative_to(ROOT).parts
        if not any(part in SKIPPED or part.startswith(".") for part in parts):
            yield path


def large_folders() -> Iterator[str]:
    """Folders of modules or pages with too many entries."""
    entries: dict[Path, set[str]] = {}
    for path in (*files(".py"), *files(".md")):
        for folder in path.parents:
            if folder == ROOT:
                break
            entries.setdefault(folder, set()).add(path.relative_to(folder).parts[0])
    for folder, found in sorted(entries.items()):
        if len(found) > MOST_ENTRIES:
            yield f"{folder.relative_to(ROOT)}: {len(found)} entries, at most {MOST_ENTRIES}: split it by concern"


def find_phrases() -> Iterator[str]:
    """Location, phrase and usual term."""
    for path in (*files(".md"), *files(".py"), *files(".yaml"), *files(".tf")):
        where = path.relative_to(ROOT)
        if where.parts[0] == "tests":
            continue
        for line, text in prose(path):
            for pattern, term in PHRASES.items():
                for found in pattern.finditer(text):
                    yield f"{where}:{line + text.count(chr(10), 0, found.start())} {found[0]!r}: {term}"


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """First line and text of a page or a manifest, or of each string of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def sentences(path: Path) -> Iterator[str]:
    """Sentences of a page, its lists and its tables, or of the docstrings of a module; of at least three words."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        rows = _TABLE_ROW.sub(lambda row: row[0].replace("|", "\n\n"), _CODE_BLOCK.sub("\n\n", text))
        blocks = [block for block in _BLOCK_END.split(rows) if not block.startswith("    ")]
    else:
        blocks = [block for one in docstrings(ast.parse(text)) for block in _BLOCK_END.split(one)]
    for block in blocks:
        plain = _MARKUP.sub(lambda found: found["text"] or "CODE", " ".join(block.split()))
        yield from (one for one in _SENTENCE_END.split(plain) if one.count(" ") > 1)


def docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def problems_of_sentences() -> Iterator[str]:
    lengths = []
    for path in (*files(".md"), *files(".py")):
        where = path.relative_to(ROOT)
        for sentence in sentences(path) if where.parts[0] != "tests" else ():
            lengths.append(length := len(re.findall(r"\S*\w\S*", sentence)))
            if length > SENTENCE_LIMITS["a sentence"]:
                yield f"{where}: {length} words in a sentence, at most {SENTENCE_LIMITS['a sentence']}: {sentence[:60]}"
    average = sum(lengths) / len(lengths)
    if average > SENTENCE_LIMITS["an average sentence"]:
        yield f"{average:.1f} words in an average sentence, at most {SENTENCE_LIMITS['an average sentence']}"


def main(arguments: list[str]) -> int:
    """With --list, print each name; with --phrases, each phrase."""
    found: dict[str, list[str]] = {side: [] for side in MOST_NAMES}
    for path in files(".py"):
        where = path.relative_to(ROOT)
        side = "tests" if where.parts[0] == "tests" else "product"
        named = [(0, path.stem), *definitions(ast.parse(path.read_text(encoding="utf-8")))]
        found[side] += [f"{where}:{line} {name}" for line, name in named if is_private(name)]
    problems = [*large_folders(), *problems_of_sentences()]
    for side, names in found.items():
        if "--list" in arguments:
            print(*names, sep="\n")
        if len(names) > MOST_NAMES[side]:
            problems.append(f"{side}: {len(names)} names outside the field's vocabulary, at most {MOST_NAMES[side]}")
    phrases = [*find_phrases()]
    if "--phrases" in arguments:
        print(*phrases, sep="\n")
    if len(phrases) > MOST_PHRASES:
        problems.append(
            f"{len(phrases)} phrases to avoid, at most {MOST_PHRASES}: python tools/check_names.py --phrases"
        )
    print(*problems, sep="\n", end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
