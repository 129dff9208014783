"""Python objects that a user names in text: module:name, or file.py:name.

Only what is typed by whoever calls is looked up here, never what a file of a run holds.
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
"""Packages that files of environments import, and what stands for them here."""


def is_named(text: str) -> bool:
    """Return whether ``text`` has the form module:name or file.py:name."""
    return ":" in text


def named_object(text: str, kind: str) -> Any:
    """Return what ``text`` names: "my_package.module:name", or "folder/my_file.py:name".

    ``kind`` says in errors what is looked for. Raises UnknownNameError where there is no such
    module, file or name; MissingExtraError where it imports one of IMPORTS that is
    not installed; an exception that the module raises itself is passed on.
    """
    path, _, name = text.rpartition(":")
    if not path or not name:
        raise UnknownNameError(f"{kind} {text!r}: give module:name, or file.py:name")
    module = _file_module(Path(path), kind) if path.endswith(".py") else _module(path, text, kind)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            unknown = UnknownNameError.of(f"object in {path}", name, _defined_in(module))
            raise UnknownNameError(f"{kind}: {unknown}")
        found = getattr(found, part)
    return found


def _defined_in(module: Any) -> list[str]:
    """Return the names that a module, or package, defines itself: functions, classes, and objects
    of these or of corral's classes; not what it imports."""

    def is_own(each: Any) -> bool:
        made = inspect.isclass(each) or inspect.isroutine(each)
        where = str((each if made else type(each)).__module__)
        named = f"{where}.".startswith(f"{module.__name__}.")
        return named or (not made and where.startswith("corral."))

    return [name for name, each in vars(module).items() if name[0] != "_" and is_own(each)]


def _file_module(path: Path, kind: str) -> Any:
    """Return the module that a file makes; one that was loaded before is not run again."""
    try:
        where = path.resolve(strict=True)
    except OSError as error:
        raise UnknownNameError(f"{kind}: there is no file {path}") from error
    folder = str(where.parent)
    if folder not in sys.path:  # as python does it: what lies beside the file can be imported
        sys.path.insert(0, folder)
    known = sys.modules.get(where.stem)
    if known is not None and getattr(known, "__file__", None) == str(where):
        return known
    name = (
        where.stem
        if known is None
        else f"{where.stem}_{hashlib.sha256(folder.encode()).hexdigest()[:8]}"
    )
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, where)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        _tell_of_import(error)
        raise
    return module


def _tell_of_import(error: BaseException) -> None:
    """Raise MissingExtraError in place of the error of an import that corral has another for."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in IMPORTS:
        return
    if sys.modules.get(package) is not None:  # it is there, and lacks a part
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
            raise  # of what the module imports
        hint = ""
        if Path(f"{path}.py").exists():
            hint = f"; did you mean {path}.py:{text.rpartition(':')[2]}?"
        raise UnknownNameError(f"{kind} {text!r}: no module named {error.name!r}{hint}") from error


def source_digest(found: Any) -> str | None:
    """Return the SHA-256 of the file that defines a function or class; None: there is none."""
    unwrapped = inspect.unwrap(found)
    for one in (unwrapped, type(unwrapped)):
        with contextlib.suppress(TypeError):  # of what is built in, or made by C
            file = inspect.getsourcefile(one)
            if file is not None and Path(file).is_file():
                return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return None


@dataclass(frozen=True)
class NamedFunction:
    """A function that is an argument of an environment, and what it is called.

    One that is read from a run has no ``function``, for nothing is imported because a file names
    it: until it is given ``again``, only its name is there.
    """

    what: str  # the argument
    name: str  # module:name, or file.py:name
    sha256: str | None  # of the source file; None: there is none
    function: Callable[..., Any] | None = None

    @classmethod
    def of(cls, what: str, given: Any) -> NamedFunction:
        """Return the function that ``given`` is or, as text, names. Raises ValueError, and what
        ``named_object`` raises."""
        if isinstance(given, cls):
            return given
        found = named_object(given, what) if isinstance(given, str) else given
        if not callable(found):
            raise ValueError(
                f"{what}={given!r}: give a function, or text that names one, such as "
                "'my_module:function' or 'my_file.py:function'"
            )
        name = given if isinstance(given, str) else dotted_name(found)
        return cls(what, name, source_digest(found), found)

    def again(self, given: Any) -> NamedFunction:
        """Return it with the function that is ``given``, by the name that it has; say on stderr
        where its source has changed."""
        found = NamedFunction.of(self.what, given)
        if found.sha256 != self.sha256:
            changed = f"the source of {self.what} {self.name} has changed since the run began"
            print(f"corral: {visible(changed)}", file=sys.stderr)
        return replace(self, function=found.function)

    def require_name(self) -> None:
        """Raise ValueError where its name does not lead to it: a run could not say what it was."""
        if "<" in self.name:  # a lambda, or a function inside of another
            raise ValueError(
                f"{self.what}={self.name}: a run keeps the name of a function, and this one has "
                "none that leads to it; define it with def, at the top of a module"
            )

    def __call__(self, *given: Any) -> Any:
        if self.function is None:
            raise RunError(
                f"the run was trained with {self.what}={self.name}, and nothing is imported "
                f"because a file names it. Say so yourself: --arg {self.what}={self.name}; in "
                f"Python env_kwargs={{{self.what!r}: ...}}"
            )
        return self.function(*given)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__
