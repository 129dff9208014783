"""Count phrases that make English hard to read, in strings, docstrings and Markdown pages.

``python -m tests.support.plain`` prints the rates and the sentences with the most such phrases.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ("_corral", "adapters", "data", "envs", "trainers")
"""The folders of the package. Texts of tests and benchmarks are not counted."""


@dataclass(frozen=True)
class Phrase:
    """A phrase, and how often it may occur in 10,000 words."""

    name: str
    pattern: str
    limit: float


PHRASES = (
    Phrase(
        "where for if",
        r"\bwhere (there|none|it|they|an?|the|that|this|one|no|nothing|nobody|all|each|somebody"
        r"|such|so|its|two|both|several|days?|agents?|torch)\b",
        10,
    ),
    Phrase(
        "what as a noun",
        r"(?<![?])\bwhat (is|it|they|others?|was|were|are|the|its|has|had|an?|nobody|each|no|would"
        r"|could|comes?|goes|follows?|differs?|plays?|learns?)\b(?![^.\n]{0,80}\?)",
        2,
    ),
    Phrase("whose", r"\bwhose\b", 4),
    Phrase("is no", r"\b(is|are|was) no\b(?! longer)", 4),
    Phrase("beside", r"\bbeside\b", 1),
    Phrase("go on", r"\b(go|goes|went|going) on\b", 1),
    Phrase("nobody", r"\b(nobody|everybody|somebody)\b", 1),
    Phrase("alike, anew, told", r"\b(alike|anew|(is|are|was|were) told)\b", 1),
)
"""Stable-Baselines3 stays below every limit."""

VAGUE = frozenset(
    (
        "found",
        "each",
        "own",
        "given",
        "said",
        "told",
        "known",
        "asked",
        "what",
        "most",
        "here",
        "others",
        "theirs",
        "mine",
        "left",
        "there",
        "such",
        "alike",
        "anew",
        "whose",
        "whom",
        "none",
        "nobody",
    )
)
"""Words that make a name vague: ``found`` in place of ``matches``."""

Texts = list[tuple[str, int, str]]
"""File, line and text of each string or line of Markdown."""


def tracked(*patterns: str) -> list[str]:
    """Return the files that git tracks."""
    command = ["git", "ls-files", *patterns]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return files.stdout.split()


def texts_by_part() -> Mapping[str, Texts]:
    """Return the texts of the tracked files: "source", "docs" and "changelog"."""
    parts: dict[str, Texts] = {"source": [], "docs": [], "changelog": []}
    for name in tracked("*.py", "*.md"):
        if name == "CHANGELOG.md":
            parts["changelog"] += markdown(name)
        elif name.endswith(".md") and "/results/" not in name:
            parts["docs"] += markdown(name)
        elif name.endswith(".py") and name.split("/")[0] in PACKAGE:
            parts["source"] += strings(name)
    return parts


def strings(name: str) -> Iterator[tuple[str, int, str]]:
    """Yield the strings of four words or more in a Python file, without ``quoted code``."""
    for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and len(text.split()) >= 4:
            yield name, node.lineno, re.sub(r"``[^`]*``", " ", text)


def markdown(name: str) -> Iterator[tuple[str, int, str]]:
    """Yield the lines of a page outside of code blocks, without `quoted code`."""
    code = False
    for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield name, number, re.sub(r"`[^`]*`", " ", line)


def vague_names() -> list[str]:
    """Return the names with a word of VAGUE that the package binds: file, line and name."""
    result = []
    for name in tracked("*.py"):
        if name.split("/")[0] in PACKAGE:
            for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
                bound = bound_name(node)
                if VAGUE & set(bound.strip("_").lower().split("_")):
                    result.append(f"{name}:{getattr(node, 'lineno', 0)}: {bound}")
    return result


def bound_name(node: ast.AST) -> str:
    """Return the name that a node binds, or ""."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
    return ""


def words(texts: Texts) -> int:
    """Return the number of words."""
    return sum(len(text.split()) for *_, text in texts)


def count(phrase: Phrase, text: str) -> int:
    """Return how often a phrase occurs in a text."""
    return len(re.findall(phrase.pattern, text, re.IGNORECASE))


def rate(phrase: Phrase, texts: Texts) -> float:
    """Return the occurrences of a phrase per 10,000 words."""
    return 1e4 * sum(count(phrase, text) for *_, text in texts) / words(texts)


def worst(texts: Texts, phrases: tuple[Phrase, ...] = PHRASES, limit: int = 10) -> list[str]:
    """Return the sentences with the most of these phrases, with file and line."""
    scored = []
    for name, line, text in texts:
        for sentence in re.split(r"(?<=[.:;!])\s+", " ".join(text.split())):
            hits = sum(count(phrase, sentence) for phrase in phrases)
            if hits:
                density = hits / max(len(sentence.split()), 8)
                scored.append((density, f"{name}:{line}: {sentence[:160]}"))
    return [sentence for _, sentence in sorted(scored, reverse=True)[:limit]]


def main() -> None:
    for part, texts in texts_by_part().items():
        print(f"{part}: {words(texts):,} words")
        for phrase in PHRASES:
            print(f"  {phrase.name}: {rate(phrase, texts):.1f} in 10,000, limit {phrase.limit:g}")
        print(*worst(texts), sep="\n")
    print(f"vague names: {len(vague_names())}")


if __name__ == "__main__":
    main()
