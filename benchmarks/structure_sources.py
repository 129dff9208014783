"""Read corral's sources: modules, imports, and what functions do; for ``structure.py``."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

LAYERS = ("corral.data", "corral.envs", "corral.adapters", "corral.trainers", "corral")
FOUNDATION = tuple(f"corral{each}" for each in ("", ".errors", ".extras", ".hints", ".text"))
"""Modules that all may import."""
ROOMS = (  # of trainers; those of one line may import each other
    ("base", "settings", "rng"),
    ("runs",),
    ("evaluation",),
    ("report",),
    ("driver",),
    ("on_policy",),
    ("sb3", "rllib"),
    ("selfplay", "doctor", "loads"),
)
KNOWS_DFAAS = ("envs/dfaas_", "_corral/loads", "data/", "envs/registry")
NOT_ENVS = re.compile(r"optim|actor|critic|network|schedul|super|model")
MASK_KEY = re.compile(r"'action_mask'|(\w+\.)*(ACTION_)?MASK(_KEY|_NAME)?")
MASK_NAME = re.compile(r"mask|legal", re.IGNORECASE)
SHAPE = re.compile(r"\[[^\[\]]*\b[A-Z]\b[^\[\]]*\]|\[(\.\.\.|\*\w+)[^\[\]]*\]|\bshapes?\b")
ARRAY = re.compile(r"\b(Array|ndarray|NDArray|Tensor)\b")
ALL_KINDS = {"module", "function", "types"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


# --- Sources -------------------------------------------------------------------------------------


@dataclass
class Module:
    """A source file."""

    name: str
    path: Path
    file: str  # below the root
    is_package: bool
    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # -> kinds

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def docstrings(self) -> list[ast.Constant]:
        holders = (ast.Module, ast.ClassDef, *Function.__args__)
        bodies = [node.body for node in ast.walk(self.tree) if isinstance(node, holders)]
        firsts = [body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)]
        return [v for v in firsts if isinstance(v, ast.Constant) and isinstance(v.value, str)]

    @cached_property
    def strings(self) -> list[str]:
        """String constants, without docstrings."""
        left_out = {id(node) for node in self.docstrings}
        constants = (node for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return [c.value for c in constants if isinstance(c.value, str) and id(c) not in left_out]

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """All functions and methods with their qualified names; nested ones belong to theirs."""
        return list(_functions(self.tree, ""))


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _functions(child, prefix)


def sources(root: Path) -> dict[str, Module]:
    """All modules of the packages by name, with the modules that each imports."""
    setup = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {}
    for package, folder in setup["package-dir"].items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            found[name] = Module(name, path, path.relative_to(root).as_posix(), is_package)
    for module in found.values():
        for target, kind in _imports(module, module.tree, "module"):
            name = target
            while name not in found and "." in name:  # a name of a module, or of a class in it
                name = name.rpartition(".")[0]
            if name in found and name != module.name:
                module.imports[name].add(kind)
    return found


def _imports(module: Module, node: ast.AST, kind: str) -> Iterator[tuple[str, str]]:
    """Full names of what is imported; kind: "module", "function", or "types"."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, kind) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                parts = module.name.split(".")
                parts = parts[: len(parts) - child.level + module.is_package]
                base = ".".join([*parts, *([base] if base else [])])
            yield from ((f"{base}.{alias.name}", kind) for alias in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _imports(module, child, "types")
        else:
            inner = "function" if isinstance(child, Function) and kind == "module" else kind
            yield from _imports(module, child, inner)


def count_lines(text: str) -> int:
    return text.count("\n")


def count_code(module: Module) -> int:
    """Lines with something else than blanks, comments and docstrings."""
    idle = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in (*idle, tokenize.ENDMARKER):
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in module.docstrings:
        lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


# --- Imports -------------------------------------------------------------------------------------


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of two and more nodes that all reach each other."""

    def reached(start: str) -> set[str]:
        found, ahead = set(), [start]
        while ahead:
            for node in edges.get(ahead.pop(), ()):
                if node not in found:
                    found.add(node)
                    ahead.append(node)
        return found

    reach = {node: reached(node) for node in edges}
    groups = {
        tuple(sorted(other for other in reach[node] if node in reach.get(other, ())))
        for node in edges
        if node in reach[node]
    }
    return sorted(list(group) for group in groups if len(group) > 1)


def graph(modules: Mapping[str, Module], kinds: set[str]) -> dict[str, set[str]]:
    return {
        name: {target for target, how in module.imports.items() if how & kinds}
        for name, module in modules.items()
    }


def rooms(modules: Mapping[str, Module], edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The graph of rooms, see above."""
    packages = {name for name, module in modules.items() if module.is_package}
    floors = {name.rpartition(".")[0] for name in packages}

    def room(name: str) -> str:
        package = name if name in packages else name.rpartition(".")[0]
        return name if package in floors else package

    found: dict[str, set[str]] = defaultdict(set)
    for name, targets in edges.items():
        face = f"{name}." if name in packages else None
        for target in targets:
            if room(target) != room(name) and not (face and target.startswith(face)):
                found[room(name)].add(room(target))
    return found


def forbidden(modules: Mapping[str, Module]) -> list[str]:
    """Imports against the order of layers, and of rooms within trainers."""

    def layer(name: str) -> int:
        inside = (i for i, each in enumerate(LAYERS) if f"{name}.".startswith(f"{each}."))
        return -1 if name in FOUNDATION else next(inside)

    def rank(name: str) -> int | None:
        part = name.removeprefix("corral.trainers").strip(".").split(".")[0]
        is_room = f"corral.trainers.{part}" in packages or part in (*ROOMS[0], "driver")
        known = (i for i, names in enumerate(ROOMS) if part in names and is_room)
        return next(known, None) if name.startswith("corral.trainers.") else None

    packages = {name for name, module in modules.items() if module.is_package}
    found = []
    for name, module in modules.items():
        for target, kinds in module.imports.items():
            low, high = (layer(name), layer(target))
            if low == high:
                low, high = (-1 if (r := rank(n)) is None else r for n in (name, target))
                if low == -1:
                    continue
            if high > low and not (module.is_package and target.startswith(f"{name}.")):
                found.append(f"{name} -> {target} ({', '.join(sorted(kinds))})")
    return found


# --- Code ----------------------------------------------------------------------------------------


def names_in(node: ast.AST) -> Iterator[str]:
    """Identifiers, wherever they stand."""
    for each in ast.walk(node):
        for attribute in ("id", "attr", "arg", "name", "asname", "module"):
            name = getattr(each, attribute, None)
            if isinstance(name, str):
                yield from name.split(".") if attribute in ("name", "module") else (name,)


def _called(node: ast.AST) -> set[str]:
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in calls}


def mask_role(node: ast.AST) -> str | None:
    """What a function does with a mask: "apply", "draw", "split", or nothing.

    Applies: calls masked_fill, or where with -inf or the least float, and speaks of a mask or of
    what is legal. Draws: speaks of a mask, of what is legal or of probabilities, draws numbers and
    calls argmax, searchsorted or choice; or calls multinomial. Splits: looks a mask up by its key.
    """
    called, names = _called(node), set(names_in(node))
    masks = any(MASK_NAME.search(name) for name in names)
    infinite = bool(names & {"inf", "finfo"})
    if (masks and "masked_fill" in called) or (masks and infinite and "where" in called):
        return "apply"
    chance = {"random", "exponential_", "rand", "choice", "integers", "uniform", "multinomial"}
    likely = any(re.search("prob|chance|cumul", name) for name in names)
    takes = called & {"argmax", "searchsorted", "choice", "multinomial"}
    if called & chance and takes and (masks or likely):
        return "draw"
    keys = (each.slice for each in ast.walk(node) if isinstance(each, ast.Subscript))
    if any(MASK_KEY.fullmatch(ast.unparse(key)) for key in keys):
        return "split"
    return None


def mask_places(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Functions by world and role, and classes called distributions."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        world = "torch" if "torch" in set(names_in(module.tree)) else "NumPy"
        for name, function in module.functions:
            if role := mask_role(function):
                found[f"{world}: {role}"].append(f"{module.file}: {name}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Categorical", "Masked")):
                found[f"{world}: class"].append(f"{module.file}: {node.name}")
    return dict(sorted(found.items()))


def steps_episodes(function: Function) -> bool:
    """Return whether a loop steps an environment and handles rewards or endings."""
    for loop in ast.walk(function):
        if not isinstance(loop, ast.For | ast.While):
            continue
        calls = [each.func for each in ast.walk(loop) if isinstance(each, ast.Call)]
        steps = [f for f in calls if isinstance(f, ast.Attribute) and f.attr == "step"]
        steps = [f for f in steps if not NOT_ENVS.search(ast.unparse(f.value))]
        words = "|".join(names_in(loop))
        if steps and re.search(r"reward|return|finished|terminat|truncat|done|ended", words):
            return True
    return False


def sums_rewards(function: Function) -> bool:
    """Return whether rewards, returns or infos are added up in place."""
    about = re.compile(r"reward|return|\binfos?\b|kpi", re.IGNORECASE)
    for each in ast.walk(function):
        if isinstance(each, ast.AugAssign) and about.search(ast.unparse(each)):
            return True
        if isinstance(each, ast.Call) and ast.unparse(each.func).endswith("add.at"):
            return True
    return False


def array_functions(modules: Iterable[Module]) -> tuple[list[str], list[str]]:
    """Public functions that take or give arrays, and those of them whose docstring has a shape."""
    found, shaped = [], []
    for module in modules:
        for name, node in module.functions:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            notes = [a.annotation for a in arguments if a.annotation] + [node.returns]
            typed = any(ARRAY.search(ast.unparse(note)) for note in notes if note)
            if typed and not any(part.startswith("_") for part in name.split(".")):
                found.append(f"{module.file}: {name}")
                if SHAPE.search(ast.get_docstring(node) or ""):
                    shaped.append(found[-1])
    return found, shaped


def dfaas_mentions(modules: Iterable[Module]) -> dict[str, int]:
    """Identifiers and strings that name dfaas_v0, by file, outside the rooms that know it."""
    found = {}
    for module in modules:
        if not module.file.startswith(KNOWS_DFAAS):
            words = [*names_in(module.tree), *module.strings]
            if count := sum("dfaas" in word.lower() for word in words):
                found[module.file] = count
    return found
