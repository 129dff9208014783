"""The help of settings and environment arguments: type, meaning and default."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import Field
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from corral.cli.base import Command
from corral.cli.mistakes import option_of
from corral.cli.options import arguments_known, is_third_party, settings_of
from corral.errors import CorralError

__all__ = ["TrainCommand", "documented", "meaning", "text_of"]


def documented(declared: Callable[..., Any]) -> dict[str, str]:
    """Return the documentation of each argument: the ``Args`` section of a docstring.

    ``declared`` is a function or a rules class.
    """
    text = (inspect.getdoc(declared) or "").partition("Args:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n      .*)*)", text, re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in entries}


def meaning(field: Field[Any]) -> str:
    """Return the help of a setting and its allowed values."""
    from corral.trainers.settings import about, limits

    allowed = limits(field)
    return as_typed(str(about(field).get("help", ""))) + (
        f" Allowed: {allowed}." if allowed else ""
    )


def as_typed(text: str) -> str:
    """Return a sentence about an argument, with argument names spelled as options."""
    text = re.sub(r"\b([a-z]+(?:_[a-z]+)+)=?", lambda match: option_of(match[1]), text)
    text = text.removeprefix("(low, high): ").replace("(low, high)", "LOW:HIGH")
    text = text.replace("(rows, columns)", "ROWS,COLUMNS")
    return re.sub(r"\bNone\b", "none", text[:1].upper() + text[1:])


def text_of(value: Any) -> str:
    """Return a default as a user would type it on the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class TrainCommand(Command):
    """``corral train``: --help also lists the trainer's settings and the environment's arguments.

    ``--env NAME`` is the same as NAME as the first word.
    """

    # Its settings are listed, unless --trainer is given; None: no settings are listed.
    trainer: str | None = "mappo"
    stood_for: tuple[str, ...] = ()  # settings that the command replaces by its own options

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = [part for word in args for part in _split(word)]
        if "--env" in args[:-1]:
            at = args.index("--env")
            args = [args[at + 1], *args[:at], *args[at + 2 :]]
        ctx.meta["corral.words"] = list(args)  # parsing empties the list
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        parsed, _, _ = self.make_parser(ctx).parse_args(list(ctx.meta["corral.words"]))
        env, trainer = parsed.get("env"), parsed.get("trainer") or self.trainer
        sections = [
            (
                f"Arguments of {env or 'the environment'}",
                partial(_arguments_rows, env, ctx.info_name),
            )
        ]
        if trainer is not None:
            settings = partial(_settings_rows, env, trainer, self.stood_for)
            sections.insert(0, (f"Settings of {trainer}", settings))
        for title, rows_of in sections:
            with formatter.section(title):
                try:
                    formatter.write_dl(rows_of())
                except (CorralError, LookupError) as error:
                    formatter.write_text(str(error.args[0]))
        if env and is_third_party(env):
            formatter.write_text(
                "Training detects the kind of this environment, which may change some defaults; "
                "it then prints them. See --preset."
            )


def _split(word: str) -> list[str]:
    """Split --env=NAME into two words."""
    return word.split("=", 1) if word.startswith("--env=") else [word]


def _settings_rows(
    env: str | None, trainer: str, hidden: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    """Return one row per setting: option and type, help and default."""
    from corral.envs.registry import make_rules, registered_name
    from corral.trainers.base import settings_source
    from corral.trainers.kinds import defaults_for
    from corral.trainers.settings import about, type_of

    env_defaults: Mapping[str, Any] = {}
    # Training detects the kind of a third-party environment.
    if built_in := registered_name(env or ""):
        source = settings_source(trainer)
        env_defaults = defaults_for(make_rules(built_in), source, seed=0).settings
    rows = []
    # In corral clone, --from replaces the setting ``teacher``.
    unused = {*getattr(settings_source(trainer).Settings, "unused", ()), *hidden}
    for field in settings_of(trainer):
        if field.name in unused:
            continue
        default = env_defaults.get(field.name, field.default)
        of_env = f" in {env}" if field.name in env_defaults else ""
        choices = about(field).get("choices")
        placeholder = "|".join(choices) if choices else _takes(type_of(field))
        text = as_typed(about(field)["help"]) if choices else meaning(field)
        rows.append(_row(field.name, placeholder, text, default, of_env))
    return rows


def _arguments_rows(env: str | None, command: str) -> list[tuple[str, str]]:
    """Return the rows of an environment's arguments. Raises LookupError if they are unknown."""
    from corral.envs.registry import rules_class
    from corral.trainers.runs.env_config import SET_BY_TRAINING

    if env is None:
        raise LookupError(f"Name the environment too, as in: corral {command} dfaas_v0 --help")
    if is_third_party(env):
        raise LookupError("Give each argument as --arg key=value.")
    meanings, types_of_arguments = documented(rules_class(env)), _types(rules_class(env))
    rows = []
    for name, parameter in arguments_known(env).items():
        if name not in SET_BY_TRAINING:
            text = meanings.get(name, "")
            placeholder = "LOW:HIGH" if "(low, high)" in text else _takes(types_of_arguments[name])
            rows.append(_row(name, placeholder, as_typed(text), parameter.default))
    return rows


def _types(rules: type) -> dict[str, Any]:
    """Return each argument's type. A type that only type checkers can resolve is text."""
    texts = {name: p.annotation for name, p in inspect.signature(rules).parameters.items()}
    try:
        return texts | get_type_hints(vars(rules)["__init__"])
    except (KeyError, NameError):
        return texts


def _row(name: str, placeholder: str, text: str, default: Any, of_env: str = "") -> tuple[str, str]:
    """Return the row of an option: option and type, help and default."""
    option = option_of(name)
    if placeholder == "bool":
        return f"{option} / --no-{option[2:]}", f"{text}  [default{of_env}: {text_of(default)}]"
    names_default = default == "" or (default is None and ("default:" in text or "none:" in text))
    return (
        f"{option} <{placeholder}>",
        text if names_default else f"{text}  [default{of_env}: {text_of(default)}]",
    )


def _takes(type_: Any) -> str:
    """Return the placeholder of a type: int, float, n,n,... or the allowed values."""
    if isinstance(type_, str):
        return KINDS.get(type_.removesuffix(" | None").removesuffix(" | str"), "str")
    if get_origin(type_) is Literal:
        return "|".join(map(str, get_args(type_)))
    if isinstance(type_, types.UnionType) or get_origin(type_) is Union:
        parts = [_takes(part) for part in get_args(type_) if part is not type(None)]
        return "|".join(dict.fromkeys(parts))
    if get_origin(type_) in (Mapping, dict):
        return "JSON"
    return KINDS.get(str(type_), KINDS.get(getattr(type_, "__name__", ""), "str"))


KINDS = {"int": "int", "float": "float", "bool": "bool", "tuple[int, ...]": "n,n,..."}
KINDS |= {"tuple[int, int]": "n,n"}
"""Type -> its placeholder. Other types have the placeholder str."""
