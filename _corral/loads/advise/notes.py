"""How an advice was judged, its doubts, and its limits."""

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
    "A node knows how many requests arrive in a step before it chooses; a gateway knows them only "
    "when the step is over."
)
NOT_CONSIDERED = (
    "Each request takes one unit of capacity, and those forwarded arrive in the same step.",
    "The capacity of a step is known when it begins. It is as the trace says, whatever is "
    "forwarded; a server that fails is a what-if.",
    "Days to come are taken to be like these, and one like any other of its kind.",
)


def not_considered(base: Replay) -> list[str]:
    """Return the limits of an advice."""
    return [*([FORESIGHT] if knowledge(base.settings) == "known" else []), *NOT_CONSIDERED]


def notes_of(
    base: Replay, book: Textbook, chosen: Chosen, worth: Worth, team: Team | None
) -> list[str]:
    """Return how it was judged, and the doubts."""
    unit = "day" if base.days else "window"
    notes = [about_knowledge(base.settings), *_about_rules(base, book, chosen, unit)]
    every = base.windows + bool(base.remainder)
    if every < FEWEST_WINDOWS:
        notes.append(without_intervals(base))
    elif all(s is not None and s.constant for s in (chosen.beside_today, chosen.beside_local)):
        notes.append(f"All {unit}s are the same: no interval says anything of other {unit}s.")
    else:
        notes.append(f"95 %: Student's interval over the {every} {unit}s.")
    if text := about_costs(base.settings):
        notes.append(text)
    if team is not None:
        notes += [*_about_team(team, unit), _about_worth(worth, team)]
    narrow = [s for s in (chosen.beside_today, team and team.saving) if s and s.alike]
    rule = base.best_rule
    if narrow or (rule is not None and every >= FEWEST_WINDOWS and rule.dominated):
        why = f"neighbouring {unit}s correlate" if narrow else f"one {unit} has much of the cost"
        notes.append(f"Take the intervals as too narrow: {why}.")
    return notes


def _about_rules(base: Replay, book: Textbook, chosen: Chosen, unit: str) -> list[str]:
    part = f", and a part of one ({counted(base.remainder, 'step')})" if base.remainder else ""
    steps = "" if base.days else f" of {counted(base.window, 'step')}"
    count = f"{counted(base.windows, unit)}{steps}{part}"
    tried = counted(book.tried, "rule")
    high = book.fitted_on[1]
    notes = []
    if high < len(base.trace):
        fitted = counted(high // base.window, unit)
        notes.append(
            f"{tried} were tried on the first {fitted}; those that did best there played {count}."
        )
    else:
        notes.append(f"{tried} were tried on {count}.")
    if len(chosen.days) > 1:
        others = ", ".join(f"{k} on {n}" for k, n in chosen.days.items())
        notes.append(
            f"Each {unit} is judged by the rule that was the best on all others ({others}); the "
            "figures are those of choosing so."
        )
    elif chosen.days:
        rule = next(iter(chosen.days))
        notes.append(f"Whichever {unit} is left out, the others choose {rule}.")
    else:
        notes.append(
            f"The rule was chosen on the {unit} that it is judged on, and may look better than it "
            "is."
        )
    if chosen.alike and chosen.days:
        more = f" and {len(chosen.alike) - 4} more" if len(chosen.alike) > 4 else ""
        notes.append(f"The same on every {unit}: {', '.join(chosen.alike[:4])}{more}.")
    if chosen.runner_up is not None:
        other, found = chosen.runner_up
        more = requests(abs(found.requests))
        notes.append(f"{other}, the best rule that forwards, costs {more} {found.unit} more.")
    return notes


def _about_team(team: Team, unit: str) -> list[str]:
    config = team.run.config.env_config
    rows, window = config.env_kwargs["rows"], team.replay.window
    kept = config.validation.get("rows", (0, 0))
    learned, validated = ((high - low) // window for low, high in (rows, kept))
    return [
        f"The team learned from {counted(learned, unit)}, its checkpoint was chosen on "
        f"{validated}, and it was judged on the last {team.saving.windows}, which nothing was "
        f"chosen on. {team.rule} is the best rule of the others.",
        f"It was trained for {team.training.env_steps:,} env steps, in "
        f"{counted(team.training.updates, 'update')}. A longer training may find another team.",
    ]


SOURCES: Mapping[str, str] = {
    "given": "as --worth says",
    "least": f"the default of {LEAST_WORTH:g} points",
    "capacity": "a tenth of the saving of 20 % more capacity",
}


def _about_worth(worth: Worth, team: Team) -> str:
    much = f"{requests(worth.share * team.saving.arrivals)} {team.saving.unit}"
    return (
        f"To be worth it a team must save {worth.points:.2g} points of the requests, {much}: "
        f"{SOURCES[worth.source]}."
    )
