"""The method of an advice, its doubts, and its limits."""

from __future__ import annotations

from collections.abc import Mapping

from corral.loads.advise.chosen import Chosen, Textbook
from corral.loads.advise.sentences import about_costs, knowledge
from corral.loads.advise.team import Team
from corral.loads.advise.verdict import LEAST_WORTH, Worth
from corral.loads.advise.words import requests
from corral.loads.paired import without_intervals
from corral.loads.replay import Replay
from corral.loads.text import about_knowledge, counted
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS

__all__ = ["not_considered", "notes_of"]

FORESIGHT = (
    "In this replay a node knows a step's arrivals before it chooses; a gateway knows them only "
    "after the step."
)
NOT_CONSIDERED = (
    "Request sizes and transfer times: each request takes one unit of capacity, and a forwarded "
    "request arrives in the same step.",
    "Uncertain capacity: a node knows its capacity when a step begins, and forwarding does not "
    "change it. A server failure is a what-if.",
    "Changes over time: future days are assumed to be like these days, and days of the same kind "
    "to be interchangeable.",
)


def not_considered(base: Replay) -> list[str]:
    """Return the limits of an advice, as sentences."""
    return [*([FORESIGHT] if knowledge(base.settings) == "known" else []), *NOT_CONSIDERED]


def notes_of(
    base: Replay, book: Textbook, chosen: Chosen, worth: Worth, team: Team | None
) -> list[str]:
    """Return the method of an advice and its doubts, as sentences."""
    unit = "day" if base.days else "window"
    notes = [about_knowledge(base.settings), *_about_rules(base, book, chosen, unit)]
    every = base.windows + bool(base.remainder)
    if every < FEWEST_WINDOWS:
        notes.append(without_intervals(base))
    elif all(s is not None and s.constant for s in (chosen.beside_today, chosen.beside_local)):
        notes.append(f"All {unit}s are equal: an interval says nothing about other {unit}s.")
    else:
        notes.append(f"95 %: Student's t interval over the {every} {unit}s.")
    if text := about_costs(base.settings):
        notes.append(text)
    if team is not None:
        notes += [*_about_team(team, unit), _about_worth(worth, team)]
    narrow = [s for s in (chosen.beside_today, team and team.saving) if s and s.alike]
    rule = base.best_rule
    if narrow or (rule is not None and every >= FEWEST_WINDOWS and rule.dominated):
        why = f"neighboring {unit}s correlate" if narrow else f"one {unit} has much of the cost"
        notes.append(f"The intervals are too narrow: {why}.")
    return notes


def _about_rules(base: Replay, book: Textbook, chosen: Chosen, unit: str) -> list[str]:
    rest = counted(base.remainder, "step")
    part = f" and a partial {unit} of {rest}" if base.remainder else ""
    steps = "" if base.days else f" of {counted(base.window, 'step')}"
    count = f"{counted(base.windows, unit)}{steps}{part}"
    tried = counted(book.tried, "rule")
    high = book.fitted_on[1]
    notes = []
    if high < len(base.trace):
        fitted = counted(high // base.window, unit)
        notes.append(f"{tried} were tried on the first {fitted}; the best of them played {count}.")
    else:
        notes.append(f"{tried} were tried on {count}.")
    if len(chosen.days) > 1:
        others = ", ".join(f"{k} on {n}" for k, n in chosen.days.items())
        notes.append(
            f"The rule for each {unit} is chosen on all other {unit}s ({others}); the figures are "
            "for these choices."
        )
    elif chosen.days:
        rule = next(iter(chosen.days))
        notes.append(f"With any one {unit} left out, the other {unit}s choose {rule}.")
    else:
        notes.append(
            f"The rule was chosen on the same {unit} that judges it, so it may look better than it "
            "is."
        )
    if chosen.alike and chosen.days:
        more = f" and {len(chosen.alike) - 4} more" if len(chosen.alike) > 4 else ""
        notes.append(f"Equal cost on every {unit}: {', '.join(chosen.alike[:4])}{more}.")
    if chosen.runner_up is not None:
        other, saving = chosen.runner_up
        more = requests(abs(saving.requests))
        notes.append(
            f"The best rule that forwards, {other}, costs {more} more requests {saving.unit}."
        )
    return notes


def _about_team(team: Team, unit: str) -> list[str]:
    config = team.run.config.env_config
    rows, window = config.env_kwargs["rows"], team.replay.window
    kept = config.validation.get("rows", (0, 0))
    learned, validated = ((high - low) // window for low, high in (rows, kept))
    return [
        f"The team was trained on {counted(learned, unit)}, its checkpoint was chosen on "
        f"{validated}, and it was judged on the last {team.saving.windows}, which no choice used. "
        f"{team.rule} is the best rule on the other {unit}s.",
        f"It was trained for {team.training.env_steps:,} env steps, in "
        f"{counted(team.training.updates, 'update')}. Longer training may give a different team.",
    ]


SOURCES: Mapping[str, str] = {
    "given": "set by --worth",
    "least": f"the default of {LEAST_WORTH:g} %",
    "capacity": "a tenth of the saving of 20 % more capacity",
}


def _about_worth(worth: Worth, team: Team) -> str:
    much = f"{requests(worth.share * team.saving.arrivals)} {team.saving.unit}"
    return (
        f"To be worth it, a team must save {worth.points:.2g} % of the requests ({much}): "
        f"{SOURCES[worth.source]}."
    )
