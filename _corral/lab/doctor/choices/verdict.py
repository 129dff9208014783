"""Derive faults, notes and a one-sentence verdict from scripts and forked states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from corral.lab.doctor.choices.forked import FIXED
from corral.lab.doctor.choices.gains import Forked
from corral.lab.doctor.choices.scripts import SMALL, Scripts

__all__ = ["Fault", "faults_of", "notes_of", "verdict_of"]


@dataclass(frozen=True)
class Fault:
    """A reason why there is nothing, or hardly anything, to learn."""

    cause: str  # "no-choice", "others-only", "order-only", "too-small", "chance-only", "idle",
    # "constant-observation" or "hidden"
    text: str


def faults_of(
    scripts: Scripts,
    forked: Sequence[Forked],
    never: Iterable[str],
    choices: Mapping[str, float],
) -> tuple[Fault, ...]:
    """Return the faults.

    Args:
        never: agents with a constant observation.
        choices: number of decisions with two or more legal actions per episode, by agent.
    """
    # A gain that was not followed to the end may be lost later: then scripts decide.
    whole = [fork for fork in forked if fork.complete or not scripts.negligible]
    matters = scripts.matters or any(fork.matters for fork in whole)
    faults = [] if matters else list(_nothing(scripts, forked))
    if not any(fault.cause == "no-choice" for fault in faults):
        faults += _idle(forked)
    for agent in never:
        if choices[agent] > 1 and _matters(forked, agent) is not False:
            faults.append(
                Fault(
                    "constant-observation",
                    f"The observation of {agent} never changes, although it decides "
                    f"{choices[agent]:.3g} times per episode: no decision can depend on the state.",
                )
            )
    faults += _hidden(scripts, forked)
    return tuple(faults)


def _nothing(scripts: Scripts, forked: Sequence[Forked]) -> Iterator[Fault]:
    """Yield the reason why no choice matters; nothing if the data are inconclusive."""
    tried = "" if not forked else f", and no action in {_moments(forked)} forked states,"
    if not scripts.moved and not any(fork.moved for fork in forked):
        yield Fault("no-choice", f"No script{tried} changed any return.")
    elif forked and all(fork.moves_others and not fork.moved for fork in forked):
        yield Fault("others-only", " ".join(_sentences(forked)))
    elif shifting := [fork for fork in forked if fork.only_shifts]:
        fork = max(shifting, key=lambda fork: fork.best.mean)
        yield Fault(
            "order-only",
            "Actions change when rewards come, not how much: the gain of "
            f"{fork.agent}'s best action within {_decisions(fork.decisions)} "
            f"({_figure(fork.best.mean)}) is lost by the end "
            f"({fork.at_the_end.mean:+.2g} ± {2 * fork.at_the_end.error:.1g}), and no script "
            "has a return that differs clearly from random play.",
        )
    elif scripts.certain or scripts.negligible:
        yield Fault(
            "too-small",
            f"No script differs from random play by more than {scripts.largest:.2%} of the "
            "standard "
            f"deviation of returns over episodes (below {SMALL:.0%}, about 20,000 episodes of "
            "each are needed to see a difference).",
        )
    elif _only_chance(scripts, forked):
        yield Fault(
            "chance-only",
            "Actions change returns, but no action is better than another on average: the best "
            f"gains at most {max(fork.best.upper for fork in forked):.2g} beyond chance.",
        )


def _sentences(forked: Sequence[Forked]) -> Iterator[str]:
    """Yield a sentence for each agent with actions that change the return of others alone."""
    for agent in dict.fromkeys(fork.agent for fork in forked):
        forks = [fork for fork in forked if fork.agent == agent]
        paid = sorted({other for fork in forks for other in fork.moves_others})
        yield (
            f"Actions of {agent} change the return of {', '.join(paid)}, never its own, in "
            f"{_moments(forks)} forked states."
        )


def _only_chance(scripts: Scripts, forked: Sequence[Forked]) -> bool:
    """Return True if no action can gain a tenth of the standard deviation of the return.

    This must hold against random play and against fixed play of the other agents.
    """
    if not forked or any(fork.best.upper > 0.1 * scripts.spread[fork.agent] for fork in forked):
        return False
    fixed = {fork.agent for fork in forked if fork.others == FIXED}
    return len(scripts.spread) == 1 or fixed == {fork.agent for fork in forked}


def _idle(forked: Sequence[Forked]) -> Iterator[Fault]:
    """Yield agents with actions that change no agent's return."""
    for agent in dict.fromkeys(fork.agent for fork in forked):
        forks = [fork for fork in forked if fork.agent == agent]
        if not any(fork.moved or fork.moves_others for fork in forks) and forks[0].complete:
            yield Fault(
                "idle",
                f"No action of {agent} changed any return, its own or another agent's, in "
                f"{_moments(forks)} forked states.",
            )


def _hidden(scripts: Scripts, forked: Sequence[Forked]) -> Iterator[Fault]:
    if scripts.best is not None:
        return  # a reference team, which only reads observations, is better than random play
    for agent in dict.fromkeys(fork.agent for fork in forked):
        forks = [fork for fork in forked if fork.agent == agent and fork.matters]
        if forks and all(fork.hidden and not fork.needs_memory for fork in forks):
            fork = forks[0]
            yield Fault(
                "hidden",
                f"The best action of {agent} gains {_figure(fork.best.mean)}, but its observation "
                f"does not show that action: actions chosen from the observation gain "
                f"{_figure(fork.shown.mean)}; one action for all states gains "
                f"{_figure(fork.constant.mean)}.",
            )


def _matters(forked: Sequence[Forked], agent: str) -> bool | None:
    """Return True if the agent's choices matter; None if they were not tested."""
    forks = [fork.matters for fork in forked if fork.agent == agent]
    return any(forks) if forks else None


# --- Notes ---------------------------------------------------------------------------------------


def notes_of(
    scripts: Scripts,
    forked: Sequence[Forked],
    never: Iterable[str],
    choices: Mapping[str, float],
) -> tuple[str, ...]:
    """Return remarks that are not faults."""
    agents_of: dict[str, list[str]] = {}  # sentence -> agents
    for agent in dict.fromkeys(fork.agent for fork in forked):
        for sentence in _about([fork for fork in forked if fork.agent == agent], choices[agent]):
            agents_of.setdefault(sentence, []).append(agent)
    for agent in never:
        if 0 < choices[agent] <= 1:
            agents_of.setdefault(ONE_VIEW, []).append(agent)
    notes = [f"{', '.join(agents)}: {sentence}" for sentence, agents in agents_of.items()]
    if not forked and not scripts.certain and scripts.moved:
        notes.append("No script differs significantly from random play.")
    return tuple(notes)


ONE_VIEW = (
    "The observation never changes; the agent can only learn one action, or one mixture of actions."
)


def _about(forks: Sequence[Forked], choices: float) -> Iterator[str]:
    """Yield remarks about one agent with ``choices`` decisions per episode."""
    mattering = [fork for fork in forks if fork.matters]
    if not mattering:
        moved = {other for fork in forks for other in fork.moves_others}
        if moved and not any(fork.moved for fork in forks):
            yield (
                f"Its actions change the return of {', '.join(sorted(moved))}, never its own: an "
                "agent "
                "that learns from its own reward learns nothing."
            )
        return
    fork = mattering[0]
    if forks[0].others == "random" and forks[0] is not fork and forks[0].moved:
        yield (
            "If the others play randomly, no action is better than another; the best action "
            f"gains {_figure(fork.best.mean)} with other play: {fork.others}."
        )
    if choices <= 1:
        yield "It decides once per episode (a bandit), so no later reward needs a discount."
    elif fork.one_step:
        yield (
            "Each decision counts for itself (a bandit): the best action's gain of its own return "
            "comes "
            "before its next decision. A small gamma is enough."
        )
    elif fork.decisions > 1 and fork.reach > 1:
        play = "" if fork is forks[0] else f" (other play: {fork.others})"
        yield (
            f"Nine tenths of the best action's gain{play} come within about "
            f"{_decisions(fork.reach)}: use a gamma of about {1 - 1 / fork.reach:.2g} or more."
        )
    if fork.needs_memory and fork.remembered is not None:
        yield (
            "It needs memory: actions chosen from several recent observations gain "
            f"{_figure(fork.remembered.mean)}, from the last one {_figure(fork.shown.mean)}."
        )
    elif fork.power < 0.5:
        yield (
            f"{fork.moments} states are too few to judge if such a wide observation shows the "
            "best action."
        )


def verdict_of(scripts: Scripts, forked: Sequence[Forked], faults: Sequence[Fault]) -> str:
    """Return the verdict in one sentence."""
    causes = {fault.cause for fault in faults}
    if "no-choice" in causes:
        return "No choice matters: nothing that was tried changed any return."
    if "others-only" in causes:
        return "No choice matters to its own agent: actions change the returns of others."
    if "order-only" in causes:
        return "No choice matters: actions change when rewards come, not how much."
    if "too-small" in causes:
        return "Choices hardly matter: their effect is lost in chance."
    if "chance-only" in causes:
        return "No choice matters: no action is better than another on average."
    matters = scripts.matters or any(fork.matters for fork in forked)
    if not matters:
        return "Inconclusive: choices may or may not matter."
    if "hidden" in causes:
        return "Choices matter, but the observation does not show which."
    if "constant-observation" in causes:
        return "Choices matter, but an observation never changes."
    if "idle" in causes:
        return "Choices matter, but those of an agent do not."
    mattering = [fork for fork in forked if fork.matters]
    if mattering and not scripts.matters and all(fork.others == FIXED for fork in mattering):
        return "Which choice is best depends on how the others play; against random play none is."
    if not mattering:
        return "Choices matter; it is unknown if the observation shows which."
    if any(fork.needs_memory for fork in mattering):
        return "Choices matter, and earlier observations show which."
    if any(fork.shown.sure and fork.shown.mean > fork.constant.upper for fork in mattering):
        return "Choices matter, and the observation shows which."
    constant = any(fork.constant.mean > 0.5 * fork.best.mean for fork in mattering)
    if constant and not _worse_than_random(scripts):
        return "Choices matter, and the same action is best nearly always."
    if scripts.best is not None:
        return f"Choices matter, and the observation shows which ({scripts.best} reads it)."
    return "Choices matter; it is unknown how well the observation shows which."


def _worse_than_random(scripts: Scripts) -> bool:
    """Return True if every script without a choice is worse than random play.

    One constant action may then be the best next step of random play, but not the best way to play.
    """
    rows = [row for row in scripts.rows if not row.reference and row.name != "random"]
    worse = [row.interval.high is not None and row.interval.high < 0 for row in rows]
    return bool(worse) and all(worse)


def _moments(forked: Sequence[Forked]) -> str:
    return f"{sum(fork.moments for fork in forked):,}"


def _decisions(count: int) -> str:
    return "its own step" if count == 1 else f"{count} decisions"


def _figure(value: float) -> str:
    return f"{value:.3g}"
