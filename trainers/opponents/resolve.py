"""Resolve the name of an opponent to a policy: a reference player or a run with pinned checkpoint.

The run of an opponent may be trained further, and its best checkpoint may change. Therefore
``pinned`` replaces RUN and RUN@best by RUN@N at the start of training, and stores the SHA-256 of
that checkpoint's manifest. A resumed run gets exactly the same checkpoint, or an error.
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
from corral.trainers.runs.checkpoint_format import MANIFEST, MAX_MANIFEST, read_file
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.run import (
    CHECKPOINTS,
    Run,
    has_custom,
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
"""Run with checkpoint -> its absolute name ("run"), "checkpoint" and "sha256"."""

SAME = (RunError, CheckpointError, UnknownNameError, MissingExtraError)
"""Errors that keep their class; other errors become a RunError."""

GONE = (
    "Restore it (a run keeps all checkpoints with --keep all), or start a new run from this one "
    "(--init) against available opponents"
)


def resolve(name: str, agent: str, rules: Rules[Any]) -> Policy:
    """Return the policy that plays ``agent``: a reference player, or the policy of a run.

    A run is written RUN, RUN@best or RUN@N. Raises UnknownNameError with the closest name, RunError
    for an unsuitable run (another game, other spaces, ...), and CheckpointError if it has no valid
    checkpoint.
    """
    player = Players(rules).find(name, agent)
    return player.policy if isinstance(player, RunPlayer) else player


class Players:
    """Find the players of seats by name. A run is loaded once, at its first use."""

    def __init__(self, rules: Rules[Any], pins: Pins | None = None) -> None:
        """``pins`` comes from ``pinned``; the checkpoints of its runs are verified."""
        self.rules, self.pins = rules, pins or {}
        self._runs: dict[str, Run] = {}

    def find(self, name: str, agent: str) -> Policy:
        """Return a policy; for a run a ``RunPlayer``, which loads it at its first decision.

        Reference players take precedence: write ``./name`` for a run's folder with the name of a
        reference player.

        Raises UnknownNameError with the closest name, and RunError if a path contains no run.
        """
        names = player_names(self.rules, agent)
        if name in self.pins or (name not in names and is_run(name)):
            return RunPlayer(name, agent, self)
        try:
            return reference_player(name, self.rules, agent)
        except UnknownNameError as error:
            if looks_like_path(name):
                raise RunError(
                    f"opponent {agent}={name}: no run found there. Pass the folder of a run (RUN "
                    "or RUN@best), or the name of a reference player: "
                    f"{', '.join(names)}"
                ) from None
            raise UnknownNameError(f"{error}. For a run pass its folder, RUN or RUN@best") from None

    def cast(self, text: str, agent: str) -> Policy:
        """Return the player of ``agent`` for the text of a player or a mix.

        A single reference player is returned directly; otherwise the result is a ``MixPolicy``.
        """
        mix = parse_mix(text)
        policies = {name: self.find(name, agent) for name in mix}
        (first, *rest) = policies.values()
        return MixPolicy(policies, mix) if rest or isinstance(first, RunPlayer) else first

    def run(self, name: str, agent: str) -> Run:
        """Return the run of that name. Raises RunError if its policy cannot play ``agent``."""
        with naming(name, agent):
            if name not in self._runs:
                self._runs[name] = self.pinned(name)
            _require_fit(self._runs[name], self.rules, agent)
        return self._runs[name]

    def pinned(self, name: str) -> Run:
        """Return the run of that name, with its pinned checkpoint if it has a pin.

        A pinned run is searched at its name, relative to here, and at its original absolute path.
        """
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
            reasons.append(f"the SHA-256 of {place} is {now}..., but was {before}...")
        raise CheckpointError(
            "the opponent's checkpoint from the start of training is missing: "
            f"{'; '.join(reasons)}. {GONE}"
        )

    def _load(self, name: str) -> Run:
        for key, kind, argument in (
            ("model", "a network", "model"),
            ("trainer_source", "a trainer", "trainer"),
        ):
            if has_custom(name, key):
                raise RunError(
                    f"it was trained with {kind} from your code. Such a run cannot be an opponent, "
                    "because no code is imported from a run. In Python, corral.clone(env, "
                    f"corral.load_run({str(name)!r}, {argument}=...)) creates a run of corral's "
                    "own trainer with the same decisions"
                )
        try:
            return load_run(name, None if self.rules.name in REGISTERED else self.rules)
        except EnvNeededError as error:
            raise RunError(f"it was trained in {error.env}, not {self.rules.name}") from None


class RunPlayer(PolicyBase):
    """The policy of a run for one agent, loaded at its first decision."""

    def __init__(self, name: str, agent: str, players: Players) -> None:
        self.name, self.agent = name, agent
        self._players = players

    @cached_property
    def policy(self) -> Policy:
        """Return the policy. Raises RunError and CheckpointError, which name the opponent."""
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
    """Return the players of all mixes among ``policies``, by agent and name, and error messages.

    The messages are about runs that cannot be loaded, for example because they were moved.
    """
    players: dict[str, dict[str, Policy]] = {}
    left_out: list[str] = []
    for agent, policy in policies.items():
        for name, player in policy.players.items() if isinstance(policy, MixPolicy) else ():
            try:
                policy_of_player = player.policy if isinstance(player, RunPlayer) else player
                players.setdefault(agent, {})[name] = policy_of_player
            except CorralError as error:
                left_out.append(str(error))
    return players, left_out


# --- Pinning -------------------------------------------------------------------------------------


def pinned(
    opponents: Mapping[str, str], rules: Rules[Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the opponents, agent -> text, with checkpoints named by env steps, and the runs' pins.

    Raises the errors of ``Players.find``, and CheckpointError for a run without a checkpoint.
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
            mix[name] = mix.get(name, 0.0) + weight  # RUN and RUN@best may be the same checkpoint
        texts[agent] = mix_text(mix)
    return texts, pins


def placed(text: str, pins: Pins) -> str:
    """Return the text of an opponent with the current paths of its runs.

    A run is searched at its name, relative to here, and at its original absolute path.
    """
    mix: dict[str, float] = {}
    for name, weight in weights_of(text).items():
        path = name
        if name in pins:
            for place in (name, str(pins[name]["run"])):
                with suppress(CheckpointError):
                    if _checkpoint(place)[1] == pins[name]["sha256"]:
                        path = place
                        break
        mix[path] = mix.get(path, 0.0) + weight
    return mix_text(mix)


def seen_by(pins: Pins, env_config: EnvConfig, rules: Rules[Any]) -> list[list[Any]]:
    """Return the data rows that opponents were trained on.

    Raises ValueError if some of these rows are held out: the evaluated team contains the opponents,
    and an opponent that was trained on held-out rows would make the evaluation too optimistic.
    """
    players = Players(rules, pins)
    rows: list[list[Any]] = []
    for name in pins:
        rows += [row for row in seen_before(env_config, players.pinned(name)) if row not in rows]
    return rows


def _pin(name: str) -> tuple[str, dict[str, Any]]:
    full_name = with_checkpoint(name)
    folder, at = place_of(full_name)
    checkpoint, digest = _checkpoint(full_name)
    absolute = f"{folder.resolve()}@{at}"
    return full_name, {"run": absolute, "checkpoint": checkpoint, "sha256": digest}


def _checkpoint(name: str) -> tuple[str | None, str | None]:
    """Return the checkpoint of RUN@N and the SHA-256 of its manifest.

    Both are None for RUN@0, which needs only the run's config.json. Raises CheckpointError.
    """
    folder, at = place_of(name)
    if not (folder / CONFIG).is_file():
        raise CheckpointError(f"{folder} does not contain a run")
    try:
        path = named_checkpoint(folder / CHECKPOINTS, at or "latest")
    except CheckpointError:
        if at is not None and not at.strip("0"):
            return None, None
        raise
    return path.name, sha256(read_file(path / MANIFEST, MAX_MANIFEST))


# --- Unsuitable runs -----------------------------------------------------------------------------


@contextmanager
def naming(name: str, agent: str) -> Iterator[None]:
    """Add the name of the opponent to errors of its run."""
    try:
        yield
    except CorralError as error:
        prefix = f"opponent {agent}={shortened(name, 200)}: "
        if str(error).startswith(prefix):
            raise
        kind = type(error) if isinstance(error, SAME) else RunError
        raise kind(f"{prefix}{error}") from error


def looks_like_path(name: str) -> bool:
    """Return True if a name looks like a path, so that a run was meant."""
    return "/" in name or "\\" in name or "@" in name or Path(name).exists()


def _require_fit(run: Run, rules: Rules[Any], agent: str) -> None:
    """Raise RunError if the policy of ``run`` for ``agent`` cannot play it with these rules."""
    env_config = run.config.env_config
    if env_config.env != rules.name:
        raise RunError(
            f"it was trained in {env_config.env}, but this is {rules.name}. Choose a run of the "
            "same environment"
        )
    trained = env_config.rules()
    counterpart = trained.agents[0] if any_number(trained) else agent
    if counterpart not in trained.agents:
        raise RunError(f"it has no agent {agent}; its agents are {', '.join(trained.agents)}")
    if agent in run.config.opponents:
        raise RunError(
            f"{agent} did not learn in it: {run.config.opponents[agent]} played {agent}. Pass that "
            f"name, or a run in which {agent} learned"
        )
    for kind in ("observation_space", "action_space"):
        before, now = getattr(trained, kind)(counterpart), getattr(rules, kind)(agent)
        if before != now:
            raise RunError(
                f"the {kind.replace('_', ' ')} of {agent} was {space_in_words(before)} in "
                f"training, but is {space_in_words(now)} here. Pass the environment arguments of "
                f"{run.folder} (see its config.json), or another run"
            )
    before, current = carried_by(trained), carried_by(rules)
    if differ := [f"{k}={before.get(k)!r}" for k in current if current[k] != before.get(k)]:
        raise RunError(
            f"it was trained with {', '.join(differ)}, which determine its observations and "
            "actions. Pass the same environment arguments"
        )


def space_in_words(space: Any) -> str:
    """Describe a space without its bounds."""
    if isinstance(space, spaces.Dict):
        return "{" + ", ".join(f"{k}: {space_in_words(part)}" for k, part in space.items()) + "}"
    if isinstance(space, spaces.Box):
        return f"{space.dtype} {space.shape}"
    return str(space)
