"""``corral tune``: search settings and choose the best trial by validation."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

import corral
from corral.cli.declared import Declared, declared
from corral.cli.help import TrainCommand
from corral.cli.mistakes import expect
from corral.cli.options import (
    ANY_OPTION,
    arguments_known,
    import_from_here,
    named_as_options,
    settings_of,
    train_options,
)
from corral.cli.output import complain, log_progress, out, reported, show_table
from corral.cli.train_options import (
    OPTIONS,
    TrainOption,
    arguments_given,
    given_options,
    with_options,
)
from corral.text import one_line, pasted

if TYPE_CHECKING:
    from corral.lab.tuning.result import Study, Trial

__all__ = ["add_to"]

EXCLUDED = ("config", "print_config", "out", "overwrite", "resume", "stretch", "seed")
"""Options of ``corral train`` that ``corral tune`` lacks or defines differently."""

RESUME = re.compile(r"; with --resume[^.]*\.")
"""The part of a help text about --resume, which ``corral tune`` lacks."""

SEVERAL = ("--grid", "--search", "--point")
"""Options that take several words on the command line."""

SHOWN = 20
"""Maximum number of trials in the printed table. trials.csv holds all trials."""

WIDTH = 80


class TuneCommand(TrainCommand):
    """``corral tune``: --grid a=1,2 b=3,4 is the same as --grid a=1,2 --grid b=3,4."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*_spread(args)])


def _spread(words: Iterable[str]) -> Iterator[str]:
    """Yield ``words``; repeat an option of ``SEVERAL`` before each of its further values."""
    option, has_value = "", False
    for word in words:
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            option, has_value = name if name in SEVERAL else "", bool(equals)
        elif option and not has_value:
            has_value = True
        elif option and "=" in word:
            yield option
        else:
            option = ""
        yield word


def add_to(app: typer.Typer) -> None:
    """Add the command of this module to the ``corral`` command."""
    app.command(cls=TuneCommand, context_settings=ANY_OPTION)(tune)


def _options() -> Iterator[TrainOption]:
    """Yield the options of corral train that apply to all trials, without notes on --resume."""
    for option in OPTIONS:
        if option.name in EXCLUDED:
            continue
        shown = copy(option.help)
        if isinstance(shown, str):
            shown = RESUME.sub(".", shown)
        else:
            shown.help = RESUME.sub(".", shown.help)
        yield replace(option, help=shown)


@declared(lambda: corral.tune)
@reported
@with_options(_options())
def tune(
    context: typer.Context,
    env: Annotated[
        str, typer.Argument(help="An environment, as in corral train; it must be the first word.")
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<setting=a,b>",
            help="Values of a setting; each combination is a trial: --grid "
            "learning_rate=1e-4,5e-4 n_epochs=2,4",
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<setting=low..high>",
            help="Range or values of a setting, sampled by Optuna's TPE: --search "
            "gae_lambda=0.9..1 clip_range=log:0.005..0.3 activation=relu,tanh",
        ),
    ] = None,
    point: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<setting=value,...>",
            help="Values to try first: --point learning_rate=3e-4,n_epochs=4; may be repeated.",
        ),
    ] = None,
    trials: Declared = ...,
    seeds: Declared = ...,
    seed: Declared = ...,
    jobs: Declared = ...,
    prune: Declared = ...,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--greedy/--sampled", help="Judge trials by greedy play, or by sampled actions."
        ),
    ] = True,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the study; default: runs/tune-ENV-TRAINER."),
    ] = None,
    **options: Any,
) -> None:
    """Search settings and find the best trial by validation.

    Each trial trains all its seeds in separate processes. Its value is measured on validation data,
    never on held-out data. All other options are options of corral train and apply to every trial.
    Repeat the command to resume a study that was stopped or killed.
    """
    expect("train", env)
    import_from_here()
    trainer = options["trainer"]
    given = {
        option: options[option.name] for option in given_options(context) if option.name in options
    }
    values = arguments_given(given)
    arguments, settings = train_options(context, env, trainer)
    kwargs = {**(values.pop("env_kwargs", None) or {}), **arguments}
    values |= {**({"env_kwargs": kwargs} if kwargs else {}), **settings, "trainer": trainer}
    tried: dict[str, Any] = {
        "grid": _pairs("--grid", grid),
        "search": _pairs("--search", search),
        "points": [_point(text) for text in point or ()],
    }
    names = {
        *tried["grid"],
        *tried["search"],
        *(name for option in tried["points"] for name in option),
    }
    known = [*arguments_known(env), *(field.name for field in settings_of(trainer))]
    known = [*(name for name in known if name not in names), "points"]
    known += ["trials", "seeds", "jobs", "out"]
    try:
        with named_as_options(context, known):
            study = corral.tune(
                env,
                **tried,
                trials=trials,
                seeds=seeds,
                seed=seed,
                jobs=jobs,
                prune=prune,
                deterministic=deterministic,
                out=out_dir,
                on_trial=_print_trial,
                tell=out.print,
                progress=log_progress(),
                **values,
            )
    except (KeyboardInterrupt, SystemExit) as stopped:
        complain("stopped; repeat the command to resume")
        by = signal.SIGTERM if isinstance(stopped, SystemExit) else signal.SIGINT
        raise typer.Exit(128 + by) from None
    _show(study)
    if study.best is None:
        raise typer.Exit(1)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Return setting -> text from "setting=text"."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise ValueError(
                f"{option} {text}: give setting=values, such as learning_rate=1e-4,5e-4"
            )
        if (key := name.strip().replace("-", "_")) in pairs:
            raise ValueError(f"{option} {text}: {name} is repeated; give it once")
        pairs[key] = value
    return pairs


def _point(text: str) -> dict[str, str]:
    """Return setting -> text from "learning_rate=3e-4,net_arch=64,64".

    A part with "=" starts a new setting.
    """
    point: dict[str, str] = {}
    last = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            last = name.strip().replace("-", "_")
            point[last] = value
        elif last:
            point[last] += f",{part}"
        else:
            raise ValueError(f"--point {text}: give setting=value,setting=value")
    return point


# --- Printed results -----------------------------------------------------------------------------


def _print_trial(trial: Trial, study: Study) -> None:
    """Print a line for a finished trial."""
    text = f"Trial {trial.number}, {_parameters(trial)}: "
    if trial.value is None:
        text += f"{trial.state}, {one_line(trial.reason)}"
    else:
        text += f"{trial.value:.4g}"
        others = [t.value for t in study.trials if t.number != trial.number and t.value is not None]
        if others and trial.value > max(others):
            text += ", the best so far"
    out.print(text)


def _parameters(trial: Trial) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in trial.parameters.items())


def _short(value: Any) -> str:
    from corral.lab.tuning.space import text_of

    return f"{value:.4g}" if isinstance(value, float) else text_of(value)


def _show(study: Study) -> None:
    """Print the study: table, counts, importance of settings, and how to repeat the best trial."""
    from corral.lab.tuning.phrases import in_numbers, percents
    from corral.lab.tuning.result import CURVES

    if not study.played:
        out.print(f"{study.folder} is complete; no run was left to train.", soft_wrap=True)
    show_table(_table(study))
    excerpt = f"; the best {SHOWN} are shown" if len(study.trials) > SHOWN else ""
    out.print(f"{study.counted()}{excerpt}.")
    out.print(f"Value: {study.measure}{_over(study)}; higher is better.")
    shares = percents([*study.importance.values()])
    importances = [f"{name} {share}%" for name, share in zip(study.importance, shares, strict=True)]
    no_effect = ""
    if study.importance and max(study.importance, key=lambda n: study.importance[n]) == "seeds":
        no_effect = "; no setting is shown to matter: use more seeds"
    out.print(
        f"{study.about_importance()}{': ' * bool(importances)}{', '.join(importances)}{no_effect}."
    )
    if not (study.folder / CURVES).exists():
        out.print(f"No {CURVES}: no run has two rows of progress.csv with finished episodes.")
    for sentence in _warnings(study):
        out.print(sentence)
    best = study.best
    if best is None:
        failed = next((trial for trial in study.trials if trial.state == "failed"), None)
        why = f" Trial {failed.number}: {one_line(failed.reason)}" if failed else ""
        complain(f"no trial is complete.{why} Logs: {pasted(study.folder)}/trial-*.log")
    else:
        complete = study.counts["complete"]
        named = study.config.named(best.run) if study.config else pasted(best.run)
        if study.equal:
            equal = in_numbers(study.equal)
            out.print(
                f"{equal[:1].upper()}{equal[1:]} are equal; these commands use trial {best.number}."
            )
        out.print(
            f"The value of the best of {complete} trials is biased upward by the selection. "
            "To evaluate it on held-out data:"
        )
        out.print(f"corral evaluate {named}", soft_wrap=True)
        out.print("To repeat the best trial:")
        out.print(best.command, soft_wrap=True)
    out.print(f"Study: {study.folder} (trials.csv, pictures, one run per seed)", soft_wrap=True)


def _warnings(study: Study) -> Iterator[str]:
    """Yield warnings about the best trial."""
    if study.best is None or study.reference_play is None:
        return
    random, sampled = study.reference_play.random, study.reference_play.sampled
    if study.best.value <= random:
        yield f"No trial is better than random play ({random:.4g}): train longer before tuning."
    if sampled is not None:
        yield (
            f"The best trial plays far better with sampled actions ({sampled:.4g}) than greedily "
            f"({study.reference_play.greedy:.4g}, its first seed): its policy is still uncertain."
        )


def _over(study: Study) -> str:
    count = len(study.plan.seeds)
    return f", mean over {count} seeds" if count > 1 else ""


def _table(study: Study) -> Table:
    """Return a table of the trials, best first, at most 80 columns wide."""
    names = study.plan.space.names
    widths = [max(len(name), 9) + 2 for name in names]
    one_each = 50 + sum(widths) <= WIDTH
    columns = [*names] if one_each else ["settings"]
    seeds = len(study.plan.seeds) > 1
    table = Table("trial", *columns, "value", *(["over seeds"] * seeds), "state", box=box.SIMPLE)
    for trial in study.ranked[:SHOWN]:
        cells = [
            _short(trial.parameters[name]) if name in trial.parameters else "" for name in names
        ]
        if not one_each:
            cells = ["\n".join(_folded(trial))]
        value = "" if trial.value is None else f"{trial.value:.4g}"
        spread = [_spread_of(trial)] if seeds else []
        table.add_row(str(trial.number), *cells, value, *spread, trial.state)
    if study.reference_play is not None:
        blank = [""] * len(columns)
        table.add_row(
            "random play", *blank, f"{study.reference_play.random:.4g}", *[""] * seeds, ""
        )
    return table


def _folded(trial: Trial) -> list[str]:
    """Return the parameters in lines of at most 30 characters, if the names are short enough."""
    lines = [""]
    for name, value in trial.parameters.items():
        text = one_line(f"{name} {_short(value)}")
        if lines[-1] and len(lines[-1]) + len(text) > 28:
            lines.append("")
        lines[-1] += f"{', ' * bool(lines[-1])}{text}"
    return lines


def _spread_of(trial: Trial) -> str:
    values = [*trial.values.values()]
    return f"{min(values):.4g} .. {max(values):.4g}" if len(values) > 1 else ""
