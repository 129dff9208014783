"""Watch an episode: in a window, as a clip, or as text.

    corral.watch("arena_v0", policies="nearest/chase", out="clip.gif")
    corral.watch("runs/mine", sampled=True)  # a window, where there is a display

The episode is the one that ``env.reset(seed=seed)`` begins; the agent in place i draws from
``generator(seed, "policy", i)``, as in ``evaluate_team``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.core import Array, Rules, generator, require_legal
from corral.envs.dfaas_v0.baselines import split_pair
from corral.envs.policy import Policy
from corral.envs.registry import REGISTERED, env_spec, make_rules
from corral.envs.render.window import Window
from corral.envs.teams import reference_team
from corral.errors import CorralError, MissingExtraError, RunError
from corral.trainers.evaluation.players import Player, Seat, as_player
from corral.trainers.evaluation.video import encoder_of, shrunk, write_clip
from corral.trainers.runs.run import Run, is_run, load_run

__all__ = ["LONGEST", "Shown", "watch"]

LONGEST = 1000
"""Steps after which an episode that has no time limit is left, unless told otherwise."""

WIDTH = 480

INSTEAD = "Without a window: out=clip.gif writes a clip, and the command's --ansi prints text"


@dataclass(frozen=True)
class Shown:
    """What was shown of an episode."""

    environment: str
    policies: str  # who played, in words
    steps: int
    frames: int  # the start, and one after every step
    returns: dict[str, float]  # of each agent, so far
    over: bool  # whether the episode ended, and not only the showing
    path: Path | None  # of the clip


def watch(
    game: str | Path | Run | Rules[Any],
    *,
    policies: str | Path | Run | Player | Policy | Mapping[str, Policy] | None = None,
    out: str | Path | None = None,
    text: Callable[[str], None] | None = None,
    seed: int = 0,
    steps: int | None = None,
    fps: float | None = None,
    sampled: bool = False,
    pixels: int = WIDTH,
    **env: Any,
) -> Shown:
    """Play one episode and show it.

    Args:
        game: an environment's name, rules, or a run (its folder): the environment it was trained
            in, on the rows that it did not see where there are such.
        policies: the name of a reference team (``corral.envs.teams``; in dfaas_v0 a pair such as
            "overflow/two"), a run, a Player, a Policy for everybody, or a mapping agent -> Policy.
            Default: the run's own team, else random legal play.
        out: a file that ends in .gif or .mp4; without it, and without ``text``, a window opens.
        text: is given each picture as text instead.
        seed: of the episode, and of policies that draw their actions.
        steps: stop after so many; default: at the end of the episode.
        fps: pictures a second; default: the environment's.
        sampled: whether policies sample their actions; else they play greedily.
        pixels: the width of a clip; its height follows.
        env: arguments of the environment; of a run, those to change.

    Returns what was shown; a window that its user closes ends the showing.

    Raises:
        UnknownNameError: no environment or team of that name.
        RunError, CheckpointError: no run there, or no checkpoint in it.
        MissingExtraError: what draws, encodes or opens a window is not installed.
        ValueError: arguments that do not fit, or an environment without such pictures.
        CorralError: a window without a display.
    """
    if steps is not None and steps < 1:
        raise ValueError(f"steps={steps}: give 1 or more")
    if fps is not None and not fps > 0:
        raise ValueError(f"fps={fps}: give a number above 0")
    if pixels < 16:
        raise ValueError(f"pixels={pixels}: give 16 or more")
    if out is not None:
        if text is not None:
            raise ValueError("give out= or text=, not both")
        encoder_of(out)  # fails before anything is played
        if not Path(out).absolute().parent.is_dir():
            raise ValueError(f"out={out}: there is no folder {Path(out).parent}")
    rules, player, label = _cast(game, policies, env, sampled)
    mode = "rgb_array" if text is None else "ansi"
    if mode not in rules.render_modes:
        kind = "pictures" if text is None else "text"
        known = ", ".join(rules.render_modes) or "none"
        raise ValueError(f"{rules.name} has no {kind} to show; its render modes: {known}")
    rate = float(rules.render_fps or 4) if fps is None else fps

    episode = _Episode(rules, player, seed, steps)
    frames = episode.frames(mode)
    path = None
    if out is not None:
        path = Path(out)
        write_clip(path, [shrunk(picture, pixels) for picture in frames], rate)
    elif text is not None:
        for words in frames:
            text(words)
    else:
        _show(rules.name, frames, rate)
    returns = dict(zip(rules.agents, episode.returns.tolist(), strict=True))
    shown = (rules.name, label, episode.t, episode.t + 1, returns, episode.over, path)
    return Shown(*shown)


def _show(name: str, frames: Iterator[Any], fps: float) -> None:
    window = Window(name, fps)
    try:
        _require_display()
        for picture in frames:
            if not window.show(picture):
                return
    except MissingExtraError as error:
        raise MissingExtraError(f"{error}. {INSTEAD}") from None
    except CorralError as error:
        raise CorralError(f"{error}. {INSTEAD}") from None
    finally:
        window.close()


def _require_display() -> None:
    """SDL would draw into nothing where it finds no display, and nobody would see it."""
    chosen = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in chosen):
        raise CorralError("no window can be opened: there is no display")


# --- Who plays what ------------------------------------------------------------------------------


def _cast(
    game: Any, policies: Any, env: dict[str, Any], sampled: bool
) -> tuple[Rules[Any], Player, str]:
    """The rules, who plays them, and that in words."""
    own: Run | None = None
    if isinstance(game, Run) or (isinstance(game, str | Path) and _names_a_run(game)):
        own = game if isinstance(game, Run) else load_run(game)
    elif not isinstance(game, str | Path) and env:
        raise ValueError(f"arguments {sorted(env)} need an environment's name, not rules")
    if isinstance(policies, str | Path) and is_run(policies):
        policies = load_run(policies)

    if own is not None:
        rules = own.config.env_config.rules(
            **{**own.config.env_config.held_out, **_routed(own, policies, env)}
        )
        policies = own if policies is None else policies
    elif isinstance(game, str | Path):
        rules = make_rules(str(game), **_routed(str(game), policies, env))
    else:
        rules = game
    if isinstance(policies, Run):
        trainer = policies.config.trainer
        return rules, _learned(policies, rules, sampled), f"{trainer} of {policies.folder}"
    if policies is None or isinstance(policies, str | Path):
        name = "random" if policies is None else str(policies)
        if Path(name).is_dir():
            raise RunError(f"{name} is a folder, but holds no run")
        return rules, Player(reference_team(name, rules), not sampled), name
    player = as_player(policies, rules.agents)
    if not isinstance(policies, Player):
        player = Player(player.team, not sampled)
    return rules, player, "a team"


def _names_a_run(game: str | Path) -> bool:
    """Whether it is a run's folder; RunError, or UnknownNameError, where it is nothing at all."""
    if is_run(game):
        return True
    if str(game) in REGISTERED:
        return False
    if Path(game).is_dir():
        raise RunError(f"{game} is a folder, but holds no run")
    if len(Path(game).parts) > 1:
        raise RunError(f"there is no run in {game}: no such folder")
    env_spec(str(game))  # raises, with the nearest name
    return False


def _routed(game: str | Run, policies: Any, env: dict[str, Any]) -> dict[str, Any]:
    """``env``, with the route that a pair of dfaas_v0 names where none is given."""
    name = game.config.env_config.env if isinstance(game, Run) else game
    if name == "dfaas_v0" and isinstance(policies, str) and "/" in policies and "route" not in env:
        return {**env, "route": split_pair(policies)[1]}
    return env


def _learned(run: Run, rules: Rules[Any], sampled: bool) -> Player:
    """The team of a run; ValueError where it is of another game."""
    task = run.config.env_config
    if task.env != rules.name:
        raise ValueError(f"{run.folder} was trained in {task.env}, not in {rules.name}")
    trained = task.rules()
    for agent in rules.agents:
        theirs = trained.observation_space(agent) if agent in trained.agents else None
        if theirs != rules.observation_space(agent):
            raise ValueError(
                f"{run.folder} was trained with other observations of {agent}: watch the run "
                "itself, or give the arguments that it was trained with"
            )
    return as_player(Player(run.policies, not sampled), rules.agents)


# --- An episode ----------------------------------------------------------------------------------


class _Episode:
    """One episode of one copy, step by step."""

    def __init__(self, rules: Rules[Any], player: Player, seed: int, steps: int | None) -> None:
        self.rules = rules
        longest = LONGEST if rules.max_cycles is None else rules.max_cycles
        self.limit = longest if steps is None else min(steps, rules.max_cycles or steps)
        self.rng = generator(seed, "env")
        self.seats = [
            Seat(
                agent,
                player.team[agent],
                num_envs=1,
                actions=rules.action_space(agent),
                rng=generator(seed, "policy", i),
                deterministic=player.deterministic,
            )
            for i, agent in enumerate(rules.agents)
        ]
        self.t = 0
        self.returns = np.zeros(len(rules.agents))
        self.ended = np.zeros(len(rules.agents), dtype=bool)

    @property
    def over(self) -> bool:
        return bool(self.ended.all()) or self.t == self.rules.max_cycles

    def frames(self, mode: str) -> Iterator[Any]:
        """The start, and what follows each step, as pictures or text; as they are asked for."""
        state = self.rules.start([self.rng])
        yield self.rules.render(state, self.rules.info(state), mode)
        while self.t < self.limit and not self.over:
            outcome = self.rules.step(state, self._actions(state))
            state = outcome.state
            self.t += 1
            self.returns += outcome.reward[0]
            self.ended |= outcome.terminated[0]
            yield self.rules.render(state, outcome.info, mode)

    def _actions(self, state: Any) -> Array:
        observations = self.rules.observe(state)
        acting = self.rules.acting(state)[0] & ~self.ended
        actions = np.zeros((1, len(self.seats)), dtype=np.int64)
        for i, seat in enumerate(self.seats):
            if acting[i]:
                seen = observations[seat.agent]
                actions[0, i] = seat.act(seen)[0]
                if self.rules.illegal == "raise":
                    require_legal(seat.agent, int(actions[0, i]), seen["action_mask"][0])
        return actions
