"""How far a reader of the sources has to go, read off their text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

__all__ = ["CORE", "Sources", "circles", "sentence_tests", "test_functions"]

HOUSES = {"_corral": "corral"} | {
    top: f"corral.{top}" for top in ("data", "envs", "adapters", "trainers")
}
CORE = ("corral.data", "corral.envs", "corral.adapters", "corral.trainers")
TABLES = {
    *("corral", "corral.registration", "corral.envs", "corral.envs.registry"),
    "corral.envs.reference",  # players stand beside their environment
}
"""Where modules are named in texts: what is imported when it is first asked for. Gymnasium and
PettingZoo take their environments as texts."""
LOOKED_UP = re.compile(r"(resolve_name|import_module|__import__)$")
MEMBERS_OF = re.compile(r"(^|\.)(learner|trainer)$")

OF_OTHERS = {
    # Python: functions, classes, modules, errors, named tuples, syntax trees, the system
    *("__name__", "__module__", "__qualname__", "__file__", "__code__", "__dict__", "name"),
    *("_fields", "strerror", "id", "body", "decorator_list", "O_CLOEXEC", "O_DIRECTORY"),
    *("O_NOFOLLOW", "posix_fadvise", "SIGALRM", "mallopt", "getvalue"),
    # NumPy, PyTorch
    *("shape", "dtype", "tolist", "detach", "out_features"),
    # PettingZoo, Gymnasium: what an environment of others may lack
    *("metadata", "render_mode", "possible_agents", "state_space", "_cumulative_rewards", "n"),
    *("num_envs", "close", "seed", "spaces", "action_masks", "AutoresetMode", "register"),
    *("parallel_registry", "aec_registry", "step", "reset", "observe"),
    # Stable-Baselines3, RLlib, click
    *("lstm_hidden_state_shape", "policy", "observation_space", "predict", "extractors"),
    *("worker_index", "exit_code", "format_message", "ctx", "param", "opts", "commands"),
}
"""Members that objects of Python and of other libraries may lack."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """The modules of corral in a checkout, by name."""

    def __init__(self, root: Path) -> None:
        self.modules: dict[str, ast.Module] = {}
        self.lines: dict[str, int] = {}
        for top, package in HOUSES.items():
            for path in sorted((root / top).rglob("*.py")):
                parts = path.relative_to(root / top).with_suffix("").parts
                name = ".".join([package, *(part for part in parts if part != "__init__")])
                text = path.read_text(encoding="utf-8")
                self.modules[name], self.lines[name] = ast.parse(text), text.count("\n")

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """module -> the modules of corral that it imports, in functions and for types, too."""
        return {name: self._imported(name) for name in self.modules}

    def _imported(self, name: str) -> set[str]:
        found: set[str] = set()
        for node in ast.walk(self.modules[name]):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                below = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= (below & self.modules.keys()) or {node.module}
        return (found & self.modules.keys()) - {name}

    def circles_of_core(self) -> list[list[str]]:
        """Return the groups of modules of the core that reach each other."""
        core = {name: found for name, found in self.imports.items() if name.startswith(CORE)}
        return circles({name: found & core.keys() for name, found in core.items()})

    def texts_imported(self, name: str) -> list[str]:
        """Return the texts "module:attribute" of a module, and those that an import is given."""
        return sorted(self._texts_imported(self.modules[name]))

    def _texts_imported(self, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                module, colon, attribute = node.value.partition(":")
                if module in self.modules and colon and attribute.isidentifier():
                    yield node.value
            elif isinstance(node, ast.Call) and LOOKED_UP.search(ast.unparse(node.func)):
                for given in node.args:
                    if isinstance(given, ast.Constant | ast.JoinedStr) and "corral" in ast.unparse(
                        given
                    ):
                        yield ast.unparse(given)

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Yield the functions: module and name, and what they are."""
        for name, tree in self.modules.items():
            for node in ast.walk(tree):
                if isinstance(node, Function):
                    yield f"{name}.{node.name}", node

    def parameters(self) -> dict[str, int]:
        """Return how many parameters each function has, without self and cls."""
        found = {}
        for name, node in self.functions():
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            names = [each.arg for each in every if each is not None]
            found[name] = len([each for each in names if each not in ("self", "cls")])
        return found

    def asked_members(self) -> list[str]:
        """Return the calls of getattr and hasattr with a literal name."""
        return [
            f"{name}: {ast.unparse(node)}"
            for name, tree in self.modules.items()
            for node in ast.walk(tree)
            if _asks(node)
        ]

    def undeclared_members(self) -> list[str]:
        """Return those calls whose name no Protocol or ABC of corral declares, and that are not of
        Python's or another library's objects."""
        declared = {
            name
            for tree in self.modules.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and _is_protocol(node)
            for name in _members(node)
        }
        return [
            f"{name}: {ast.unparse(node)}"
            for name, tree in self.modules.items()
            for node in ast.walk(tree)
            if _asks(node) and node.args[1].value not in declared | OF_OTHERS  # type: ignore[attr-defined]
        ]

    def set_from_outside(self) -> list[str]:
        """Return the assignments to members of a trainer or a learner by somebody else."""
        found = []
        for name, tree in self.modules.items():
            for node in ast.walk(tree):
                targets = node.targets if isinstance(node, ast.Assign) else []
                targets += [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
                found += [
                    f"{name}: {ast.unparse(each)}"
                    for each in targets
                    if isinstance(each, ast.Attribute)
                    and MEMBERS_OF.search(ast.unparse(each.value))
                ]
        return found

    def splats(self) -> list[str]:
        """Return the arguments that are packed into a local tuple or dict to be splatted."""
        found = []
        for name, function in self.functions():
            packed = {
                target.id
                for node in ast.walk(function)
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.Dict)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for node in ast.walk(function):
                if not isinstance(node, ast.Call):
                    continue
                starred = [each.value for each in node.args if isinstance(each, ast.Starred)]
                starred += [each.value for each in node.keywords if each.arg is None]
                found += [
                    f"{name}: {each.id}"
                    for each in starred
                    if isinstance(each, ast.Name) and each.id in packed
                ]
        return found


def _asks(node: ast.AST) -> bool:
    """Return whether this is a call of getattr or hasattr with a literal name."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    )


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(re.match(r"Protocol|ABC|Callback|Trainer", ast.unparse(base)) for base in node.bases)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, Function):
            yield each.name
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for each in sorted(graph[node]):
            if each not in index:
                visit(each)
            if each in stack:
                low[node] = min(low[node], low[each])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found


# --- Tests ---------------------------------------------------------------------------------------


def test_functions(root: Path) -> Iterator[ast.FunctionDef]:
    """Yield the test functions of a checkout."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node


def sentence_tests(root: Path) -> list[str]:
    """Return the test functions that look for two words or more in a text or in a message."""
    return [each.name for each in test_functions(root) if any(map(_sentence, ast.walk(each)))]


def _sentence(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword) and node.arg == "match":
        return " " in ast.unparse(node.value)
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In | ast.NotIn)
        and isinstance(node.left, ast.Constant)
        and isinstance(node.left.value, str)
        and " " in node.left.value.strip()
    )
