"""What --help says of settings and arguments: what each takes, what it means, its default."""

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
    """Return what the docstring of a function, or of an environment's rules, says of each
    argument."""
    text = (inspect.getdoc(declared) or "").partition("Args:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^    (\w+): (.*(?:\n      .*)*)", text, re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in found}


def meaning(field: Field[Any]) -> str:
    """Return what a setting means, and what it may be."""
    from corral.trainers.settings import about, limits

    allowed = limits(field)
    return as_typed(str(about(field).get("help", ""))) + (
        f" Allowed: {allowed}." if allowed else ""
    )


def as_typed(text: str) -> str:
    """Return a sentence about an argument in the spelling of the command line."""
    text = re.sub(r"\b([a-z]+(?:_[a-z]+)+)=?", lambda found: option_of(found[1]), text)
    text = text.removeprefix("(low, high): ").replace("(low, high)", "LOW:HIGH")
    text = text.replace("(rows, columns)", "ROWS,COLUMNS")
    return re.sub(r"\bNone\b", "none", text[:1].upper() + text[1:])


def text_of(value: Any) -> str:
    """Return a default as it is typed on the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class TrainCommand(Command):
    """``corral train``: its --help lists the settings and arguments of what it is called with.

    ``--env NAME`` is the same as NAME as the first word.
    """

    trainer: str | None = "mappo"  # whose settings are listed, where none is named; None: nobody's
    stood_for: tuple[str, ...] = ()  # settings that an option of the command stands for

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = [part for word in args for part in _split(word)]
        if "--env" in args[:-1]:
            at = args.index("--env")
            args = [args[at + 1], *args[:at], *args[at + 2 :]]
        ctx.meta["corral.words"] = list(args)  # parsing empties the list
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        given, _, _ = self.make_parser(ctx).parse_args(list(ctx.meta["corral.words"]))
        env, trainer = given.get("env"), given.get("trainer") or self.trainer
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
                "Its kind is found when training starts, and may give other defaults: they are "
                "shown then. See --preset."
            )


def _split(word: str) -> list[str]:
    """Return --env=NAME as two words."""
    return word.split("=", 1) if word.startswith("--env=") else [word]


def _settings_rows(
    env: str | None, trainer: str, hidden: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    """Return each setting as an option with what it takes, and its meaning and default."""
    from corral.envs.registry import make_rules, registered_name
    from corral.trainers.base import find_trainer
    from corral.trainers.kinds import defaults_for
    from corral.trainers.settings import about, type_of

    suited: Mapping[str, Any] = {}
    if known := registered_name(env or ""):  # of others the kind is found when training starts
        suited = defaults_for(make_rules(known), find_trainer(trainer).kind, seed=0).settings
    rows = []
    # Of a clone --from says who teaches.
    unused = {*getattr(find_trainer(trainer).kind.Settings, "unused", ()), *hidden}
    for field in settings_of(trainer):
        if field.name in unused:
            continue
        default = suited.get(field.name, field.default)
        of_env = f" in {env}" if field.name in suited else ""
        choices = about(field).get("choices")
        takes = "|".join(choices) if choices else _takes(type_of(field))
        text = as_typed(about(field)["help"]) if choices else meaning(field)
        rows.append(_row(field.name, takes, text, default, of_env))
    return rows


def _arguments_rows(env: str | None, command: str) -> list[tuple[str, str]]:
    """Return the same for the arguments of an environment; LookupError where none is known."""
    from corral.envs.registry import rules_class
    from corral.trainers.runs.env_config import SET_BY_TRAINING

    if env is None:
        raise LookupError(f"Name the environment too, as in: corral {command} dfaas_v0 --help")
    if is_third_party(env):
        raise LookupError("Each of them is given as --arg key=value.")
    meanings, kinds = documented(rules_class(env)), _types(rules_class(env))
    rows = []
    for name, parameter in arguments_known(env).items():
        if name not in SET_BY_TRAINING:
            text = meanings.get(name, "")
            takes = "LOW:HIGH" if "(low, high)" in text else _takes(kinds[name])
            rows.append(_row(name, takes, as_typed(text), parameter.default))
    return rows


def _types(rules: type) -> dict[str, Any]:
    """Return the type of each argument, as text where it is known to type checkers alone."""
    texts = {name: p.annotation for name, p in inspect.signature(rules).parameters.items()}
    try:
        return texts | get_type_hints(vars(rules)["__init__"])
    except (KeyError, NameError):
        return texts


def _row(name: str, takes: str, text: str, default: Any, of_env: str = "") -> tuple[str, str]:
    """Return an option with what it takes, and its meaning with the default."""
    option = option_of(name)
    if takes == "bool":
        return f"{option} / --no-{option[2:]}", f"{text}  [default{of_env}: {text_of(default)}]"
    said = default == "" or (default is None and ("default:" in text or "none:" in text))
    return f"{option} <{takes}>", text if said else f"{text}  [default{of_env}: {text_of(default)}]"


def _takes(kind: Any) -> str:
    """Return what is typed for a type: int, float, n,n,... or the values that are allowed."""
    if isinstance(kind, str):
        return KINDS.get(kind.removesuffix(" | None").removesuffix(" | str"), "str")
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, types.UnionType) or get_origin(kind) is Union:
        parts = [_takes(part) for part in get_args(kind) if part is not type(None)]
        return "|".join(dict.fromkeys(parts))
    if get_origin(kind) in (Mapping, dict):
        return "JSON"
    return KINDS.get(str(kind), KINDS.get(getattr(kind, "__name__", ""), "str"))


KINDS = {"int": "int", "float": "float", "bool": "bool", "tuple[int, ...]": "n,n,..."}
KINDS |= {"tuple[int, int]": "n,n"}
"""Type -> what is typed for it; for others a text."""
