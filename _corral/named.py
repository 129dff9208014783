"""Python objects that a user names by text: module:name, or file.py:name.

Only names that the caller types are imported, never names in the files of a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corral.errors import MissingExtraError, RunError, UnknownNameError
from corral.text import dotted_name, visible

__all__ = ["NamedFunction", "is_named", "named_object", "source_digest"]

IMPORTS = {
    "gym": "write `import gymnasium as gym`",
    "ray": "write `from corral.adapters import MultiAgentEnv` (docs/environments.md)",
}
"""Packages that environment files import, and their replacements in corral."""


def is_named(text: str) -> bool:
    """Whether ``text`` has the form module:name or file.py:name."""
    return ":" in text


def named_object(text: str, kind: str) -> Any:
    """Return the object named by text: "my_package.module:name", or "folder/my_file.py:name".

    ``kind`` names the object's role in errors. Raises UnknownNameError if the module, file or name
    does not exist, and MissingExtraError if the module imports a package of IMPORTS that is not
    installed. Exceptions of the module itself propagate.
    """
    path, _, name = text.rpartition(":")
    if not path or not name:
        raise UnknownNameError(f"{kind} {text!r}: give module:name, or file.py:name")
    module = _file_module(Path(path), kind) if path.endswith(".py") else _module(path, text, kind)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            unknown = UnknownNameError.of(f"object in {path}", name, _defined_in(module))
            raise UnknownNameError(f"{kind}: {unknown}")
        value = getattr(value, part)
    return value


def _defined_in(module: Any) -> list[str]:
    """Return the names that a module or package defines: functions, classes, and objects of
    these classes or of corral's classes. Imported names are left out."""

    def is_defined_here(member: Any) -> bool:
        has_module = inspect.isclass(member) or inspect.isroutine(member)
        origin = str((member if has_module else type(member)).__module__)
        in_module = f"{origin}.".startswith(f"{module.__name__}.")
        return in_module or (not has_module and origin.startswith("corral."))

    return [
        name for name, member in vars(module).items() if name[0] != "_" and is_defined_here(member)
    ]


def _file_module(path: Path, kind: str) -> Any:
    """Return the module of a file. A file that is already loaded is not executed again."""
    try:
        file = path.resolve(strict=True)
    except OSError as error:
        raise UnknownNameError(f"{kind}: file {path} does not exist") from error
    folder = str(file.parent)
    if folder not in sys.path:  # as in Python, the file can import its neighbors
        sys.path.insert(0, folder)
    loaded = sys.modules.get(file.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file):
        return loaded
    name = (
        file.stem
        if loaded is None
        else f"{file.stem}_{hashlib.sha256(folder.encode()).hexdigest()[:8]}"
    )
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # the file name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up modules here
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        _tell_of_import(error)
        raise
    return module


def _tell_of_import(error: BaseException) -> None:
    """Raise MissingExtraError with a replacement, if an import of a package in IMPORTS failed."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in IMPORTS:
        return
    if sys.modules.get(package) is not None:  # the package is installed, but a submodule is missing
        return
    places = [
        f"{Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<")
    ]
    raise MissingExtraError(
        f"{places[-1]} imports {package}, which is not installed: {IMPORTS[package]}"
    ) from error


def _module(path: str, text: str, kind: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            _tell_of_import(error)
            raise  # raised by an import inside the module
        suggestion = ""
        if Path(f"{path}.py").exists():
            suggestion = f"; did you mean {path}.py:{text.rpartition(':')[2]}?"
        raise UnknownNameError(
            f"{kind} {text!r}: no module named {error.name!r}{suggestion}"
        ) from error


def source_digest(function: Any) -> str | None:
    """Return the SHA-256 of the source file of a function or class, or None if it has no file."""
    unwrapped = inspect.unwrap(function)
    for candidate in (unwrapped, type(unwrapped)):
        # TypeError: a built-in or compiled object. OSError: a class of a notebook or a console.
        with contextlib.suppress(TypeError, OSError):
            file = inspect.getsourcefile(candidate)
            if file is not None and Path(file).is_file():
                return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return None


@dataclass(frozen=True)
class NamedFunction:
    """A function that is an argument of an environment, with its name.

    A function read from a run's files has only its name, and ``function`` is None: corral imports
    nothing that only a file names. ``again`` adds the function.
    """

    what: str  # name of the argument
    name: str  # module:name, or file.py:name
    sha256: str | None  # of the source file; None: no source file
    function: Callable[..., Any] | None = None

    @classmethod
    def of(cls, what: str, given: Any) -> NamedFunction:
        """Return a NamedFunction from a function or from text that names one.

        Raises ValueError, and the errors of ``named_object``.
        """
        if isinstance(given, cls):
            return given
        function = named_object(given, what) if isinstance(given, str) else given
        if not callable(function):
            raise ValueError(
                f"{what}={given!r}: give a function, or text that names a function, such as "
                "'my_module:function' or 'my_file.py:function'"
            )
        name = given if isinstance(given, str) else dotted_name(function)
        return cls(what, name, source_digest(function), function)

    def again(self, given: Any) -> NamedFunction:
        """Return a copy with the function ``given``. Print a notice if its source has changed."""
        named = NamedFunction.of(self.what, given)
        if named.sha256 != self.sha256:
            changed = f"the source of {self.what} {self.name} has changed since the run started"
            print(f"corral: {visible(changed)}", file=sys.stderr)
        return replace(self, function=named.function)

    def require_name(self) -> None:
        """Raise ValueError if the name does not lead to the function, as for a lambda."""
        if "<" in self.name:  # a lambda, or a function inside of another
            raise ValueError(
                f"{self.what}={self.name}: a run stores the function by name, and this name does "
                "not lead to the function; define it with def, at the top level of a module"
            )

    def __call__(self, *given: Any) -> Any:
        if self.function is None:
            raise RunError(
                f"the run was trained with {self.what}={self.name}. corral imports nothing that "
                f"only a file names, so name it again: --arg {self.what}={self.name}; in Python "
                f"env_kwargs={{{self.what!r}: ...}}"
            )
        return self.function(*given)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__
