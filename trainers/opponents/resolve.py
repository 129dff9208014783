"""From the name of an opponent to a policy: reference players, and runs whose checkpoint is pinned.

A run that is an opponent may train on, and its best checkpoint change: ``pinned`` replaces RUN and
RUN@best by RUN@N when training starts, and keeps the SHA-256 of that checkpoint's manifest. Whoever
goes on meets the same bytes, or an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.core import Observation, Rules, any_number, carried_by
from corral.envs.policy import Decision, Policy, PolicyBase
from corral.envs.reference import player_names, reference_player
from corral.envs.registry import REGISTERED
from corral.errors import (
    CheckpointError,
    CorralError,
    EnvNeededError,
    MissingExtraError,
    RunError,
    UnknownNameError,
)
from corral.files import sha256
from corral.text import shortened
from corral.trainers.opponents.mix import mix_text, parse_mix, weights_of
from corral.trainers.opponents.seats import MixPolicy
from corral.trainers.runs.checkpoint import named_checkpoint
from corral.trainers.runs.checkpoint_format import MANIFEST, MOST_MANIFEST, read_file
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.run import (
    CHECKPOINTS,
    Run,
    has_own,
    is_run,
    load_run,
    place_of,
    with_checkpoint,
)
from corral.trainers.runs.run_config import CONFIG
from corral.trainers.runs.seen import seen_before

__all__ = [
    "Players",
    "RunPlayer",
    "members",
    "pinned",
    "placed",
    "resolve",
    "seen_by",
    "space_in_words",
]

Pins = Mapping[str, Mapping[str, Any]]
"""Name of a run with its checkpoint -> "run", its absolute name, "checkpoint" and "sha256"."""

SAME = (RunError, CheckpointError, UnknownNameError, MissingExtraError)
"""Errors that are raised again as they are; others become a RunError."""

GONE = (
    "Put it back (a run keeps every checkpoint with --keep all), or begin another run that starts "
    "from this one (--init), against opponents that are there"
)


def resolve(name: str, agent: str, rules: Rules[Any]) -> Policy:
    """Return the policy that plays ``agent``: a reference player's, or that of a run (RUN,
    RUN@best, RUN@N) for this agent.

    Raises UnknownNameError with the nearest name, RunError for a run of another game, with other
    spaces, or that does not suit otherwise, CheckpointError where it has no sound checkpoint.
    """
    found = Players(rules).find(name, agent)
    return found.policy if isinstance(found, RunPlayer) else found


class Players:
    """Finds the players of some rules' seats by name; a run is loaded once, when first asked."""

    def __init__(self, rules: Rules[Any], pins: Pins | None = None) -> None:
        """``pins`` is what ``pinned`` gave: those runs are verified."""
        self.rules, self.pins = rules, pins or {}
        self._runs: dict[str, Run] = {}

    def find(self, name: str, agent: str) -> Policy:
        """Return a policy; of a run a ``RunPlayer``, which loads it when it is first asked.

        Reference players go first: a run's folder that has the name of one is ``./name``.

        Raises UnknownNameError, with the nearest name; RunError where a path leads to no run.
        """
        known = player_names(self.rules, agent)
        if name in self.pins or (name not in known and is_run(name)):
            return RunPlayer(name, agent, self)
        try:
            return reference_player(name, self.rules, agent)
        except UnknownNameError as error:
            if looks_like_path(name):
                raise RunError(
                    f"opponent {agent}={name}: no run is there; give the folder of one, RUN or "
                    "RUN@best, or the name of a reference player: "
                    f"{', '.join(known)}"
                ) from None
            raise UnknownNameError(
                f"{error}. A run is named by its folder, RUN or RUN@best"
            ) from None

    def cast(self, text: str, agent: str) -> Policy:
        """Return who plays ``agent`` by the text of a player or a mix: a reference player itself,
        else a ``MixPolicy``, of one player where a run is named alone."""
        mix = parse_mix(text)
        found = {name: self.find(name, agent) for name in mix}
        (first, *others) = found.values()
        return MixPolicy(found, mix) if others or isinstance(first, RunPlayer) else first

    def run(self, name: str, agent: str) -> Run:
        """Return the run of that name, whose policy can play ``agent``."""
        with naming(name, agent):
            if name not in self._runs:
                self._runs[name] = self.pinned(name)
            _require_fit(self._runs[name], self.rules, agent)
        return self._runs[name]

    def pinned(self, name: str) -> Run:
        """Return the run of that name. Where its checkpoint was pinned, it is that one: at its
        name, from here, or where it was then."""
        pin = self.pins.get(name)
        if pin is None:
            return self._load(name)
        reasons = []
        for place in dict.fromkeys([name, str(pin["run"])]):
            try:
                _, digest = _checkpoint(place)
            except CheckpointError as error:
                reasons.append(str(error))
                continue
            if digest == pin["sha256"]:
                return self._load(place)
            before, now = str(pin["sha256"])[:12], str(digest)[:12]
            reasons.append(f"the SHA-256 of {place} is {now}..., and was {before}...")
        raise CheckpointError(
            f"the checkpoint that training began against is not to be had: {'; '.join(reasons)}. "
            f"{GONE}"
        )

    def _load(self, name: str) -> Run:
        for key, what, again in (
            ("model", "a network", "model"),
            ("trainer_source", "a trainer", "trainer"),
        ):
            if has_own(name, key):
                raise RunError(
                    f"it was trained with {what} of one's own, and nothing is imported because a "
                    f"run names it: such runs are no opponents yet. In Python corral.clone(env, "
                    f"corral.load_run({str(name)!r}, {again}=...)) makes a run of corral's own "
                    "that decides alike"
                )
        try:
            return load_run(name, None if self.rules.name in REGISTERED else self.rules)
        except EnvNeededError as error:
            raise RunError(f"it is of {error.env}, and this is {self.rules.name}") from None


class RunPlayer(PolicyBase):
    """The policy of a run for one agent, loaded when it is first asked."""

    def __init__(self, name: str, agent: str, players: Players) -> None:
        self.name, self.agent = name, agent
        self._players = players

    @cached_property
    def policy(self) -> Policy:
        """The policy itself. Raises RunError and CheckpointError, which name the opponent."""
        run = self._players.run(self.name, self.agent)
        with naming(self.name, self.agent):
            return run.policies[self.agent]

    def initial_state(self, num_envs: int) -> Any:
        return self.policy.initial_state(num_envs)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        return self.policy.act(observation, state, rng, deterministic=deterministic)


def members(
    policies: Mapping[str, Policy],
) -> tuple[dict[str, dict[str, Policy]], list[str]]:
    """Return the players of those ``policies`` that are mixes, by agent and name; and the reasons
    why runs among them cannot play: what they played against may be elsewhere."""
    found: dict[str, dict[str, Policy]] = {}
    left_out: list[str] = []
    for agent, policy in policies.items():
        for name, player in policy.players.items() if isinstance(policy, MixPolicy) else ():
            try:
                own = player.policy if isinstance(player, RunPlayer) else player
                found.setdefault(agent, {})[name] = own
            except CorralError as error:
                left_out.append(str(error))
    return found, left_out


# --- Pinning -------------------------------------------------------------------------------------


def pinned(
    opponents: Mapping[str, str], rules: Rules[Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the opponents, agent -> text, with every run's checkpoint named by its env steps; and
    the pins of those runs.

    Raises what ``Players.find`` raises, and CheckpointError for a run without a checkpoint.
    """
    texts: dict[str, str] = {}
    pins: dict[str, Any] = {}
    players = Players(rules)
    for agent, text in opponents.items():
        mix: dict[str, float] = {}
        for name, weight in weights_of(text).items():
            if isinstance(players.find(name, agent), RunPlayer):
                with naming(name, agent):
                    name, pin = _pin(name)
                pins[name] = pin
            mix[name] = mix.get(name, 0.0) + weight  # RUN and RUN@best may be the same
        texts[agent] = mix_text(mix)
    return texts, pins


def placed(text: str, pins: Pins) -> str:
    """Return the text of an opponent with its runs named where they are, as seen from here: at
    their names, or where they were when training began."""
    mix: dict[str, float] = {}
    for name, weight in weights_of(text).items():
        here = name
        if name in pins:
            for place in (name, str(pins[name]["run"])):
                with suppress(CheckpointError):
                    if _checkpoint(place)[1] == pins[name]["sha256"]:
                        here = place
                        break
        mix[here] = mix.get(here, 0.0) + weight
    return mix_text(mix)


def seen_by(pins: Pins, env_config: EnvConfig, rules: Rules[Any]) -> list[list[Any]]:
    """Return the rows that opponents have learned from. Raises ValueError where some of them are
    held out.

    A learner observes none of these rows. But the team that is judged on rows that are held out
    has the opponents among it: with one that knows those rows, the judgment would be too good.
    """
    players = Players(rules, pins)
    found: list[list[Any]] = []
    for name in pins:
        found += [
            each for each in seen_before(env_config, players.pinned(name)) if each not in found
        ]
    return found


def _pin(name: str) -> tuple[str, dict[str, Any]]:
    named = with_checkpoint(name)
    folder, at = place_of(named)
    checkpoint, digest = _checkpoint(named)
    whole = f"{folder.resolve()}@{at}"
    return named, {"run": whole, "checkpoint": checkpoint, "sha256": digest}


def _checkpoint(name: str) -> tuple[str | None, str | None]:
    """Return the checkpoint that RUN@N names, and the SHA-256 of its manifest; None, None of RUN@0,
    which is made of the run's config.json alone. Raises CheckpointError."""
    folder, at = place_of(name)
    if not (folder / CONFIG).is_file():
        raise CheckpointError(f"{folder} is no run")
    try:
        path = named_checkpoint(folder / CHECKPOINTS, at or "latest")
    except CheckpointError:
        if at is not None and not at.strip("0"):
            return None, None
        raise
    return path.name, sha256(read_file(path / MANIFEST, MOST_MANIFEST))


# --- What does not fit ---------------------------------------------------------------------------


@contextmanager
def naming(name: str, agent: str) -> Iterator[None]:
    """Let errors of a run say which opponent it is."""
    try:
        yield
    except CorralError as error:
        who = f"opponent {agent}={shortened(name, 200)}: "
        if str(error).startswith(who):
            raise
        kind = type(error) if isinstance(error, SAME) else RunError
        raise kind(f"{who}{error}") from error


def looks_like_path(name: str) -> bool:
    """Return whether a name that is none of a reference player was meant as a run."""
    return "/" in name or "\\" in name or "@" in name or Path(name).exists()


def _require_fit(run: Run, rules: Rules[Any], agent: str) -> None:
    """Raise RunError where the policy of ``run`` for ``agent`` cannot play it here."""
    env_config = run.config.env_config
    if env_config.env != rules.name:
        raise RunError(
            f"it is of {env_config.env}, and this is {rules.name}: give a run of the same "
            "environment"
        )
    theirs = env_config.rules()
    like = theirs.agents[0] if any_number(theirs) else agent
    if like not in theirs.agents:
        raise RunError(f"it has no agent {agent}; its agents are {', '.join(theirs.agents)}")
    if agent in run.config.opponents:
        raise RunError(
            f"{agent} did not learn there: {run.config.opponents[agent]} played it. Name that, or "
            f"a run in which {agent} learned"
        )
    for kind in ("observation_space", "action_space"):
        before, here = getattr(theirs, kind)(like), getattr(rules, kind)(agent)
        if before != here:
            raise RunError(
                f"the {kind.replace('_', ' ')} of {agent} is {space_in_words(before)} there, and "
                f"{space_in_words(here)} here: give the environment the arguments that "
                f"{run.folder} was trained with (its config.json), or another run"
            )
    carried, own = carried_by(theirs), carried_by(rules)
    if differ := [f"{k}={carried.get(k)!r}" for k in own if own[k] != carried.get(k)]:
        raise RunError(
            f"it learned with {', '.join(differ)}, which its observations and actions depend on: "
            "give the environment the same"
        )


def space_in_words(space: Any) -> str:
    """Return a space without its bounds."""
    if isinstance(space, spaces.Dict):
        return "{" + ", ".join(f"{k}: {space_in_words(each)}" for k, each in space.items()) + "}"
    if isinstance(space, spaces.Box):
        return f"{space.dtype} {space.shape}"
    return str(space)
