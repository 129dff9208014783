"""Watch an episode: in a window, as a clip, or as text.

    corral.watch("arena_v0", policies="nearest/chase", out="clip.gif")
    corral.watch("runs/mine", sampled=True)  # a window, where there is a display

The episode is the first that ``evaluate_team`` plays with that seed: in environments of corral the
one that ``env.reset(seed=seed)`` begins. Agent i draws from ``generator(seed, "policy", i)``.
Environments of others are played through their own API, and draw themselves: ``env.render()``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pettingzoo

from corral.adapters.seats import random_policy
from corral.adapters.sources import EnvLike, rules_of
from corral.envs.core import Array, Outcome, Rules, any_number, for_rendering, third_party
from corral.envs.policy import PolicyLike
from corral.envs.reference import reference_team, team_arguments
from corral.envs.registry import Api, registered_name
from corral.envs.render.video import encoder_of, shrunk, write_video
from corral.envs.render.window import Window
from corral.errors import CorralError, MissingExtraError, RunError
from corral.trainers.evaluation.episodes import Changed, play
from corral.trainers.evaluation.players import Player, as_player
from corral.trainers.runs.run import Run, asked_for, is_run, load_run, models_for

__all__ = ["LONGEST", "Watched", "watch"]

LONGEST = 1000
"""Steps after which an episode that has no time limit is left, unless ``steps`` is given."""

WIDTH = 480

INSTEAD = "Without a window: out=clip.gif writes a clip, and the command's --ansi prints text"


@dataclass(frozen=True)
class Watched:
    """An episode, as far as it was shown."""

    env: str
    policies: str  # who played, in words
    steps: int
    frames: int  # the start, and one after every step
    returns: dict[str, float]  # of each agent, so far
    over: bool  # whether the episode ended, and was not left
    path: Path | None  # of the clip


def watch(
    game: EnvLike | Path | Run,
    *,
    policies: str | Path | Run | Player | PolicyLike | Mapping[str, PolicyLike] | None = None,
    out: str | Path | None = None,
    text: Callable[[str], None] | None = None,
    seed: int = 0,
    steps: int | None = None,
    fps: float | None = None,
    sampled: bool = False,
    pixels: int = WIDTH,
    model: Any = None,
    trainer: Any = None,
    env: EnvLike | None = None,
    api: Api | None = None,
    **env_kwargs: Any,
) -> Watched:
    """Play one episode and show it.

    Args:
        game: an environment, see ``corral.adapters.sources``, or a run (its folder, or RUN@best):
            the environment it was trained in, on the rows held out from its training where there
            are such.
        policies: the name of a reference team (``corral.envs.reference``), a run, a
            Player, a policy for everybody, or a mapping agent -> policy: whatever
            ``corral.envs.policy.as_policy`` takes.
            Default: the run's own team, else random legal play.
        out: a file that ends in .gif or .mp4; without it, and without ``text``, a window opens.
        text: is called with each picture as text instead.
        seed: seed of the episode, and of actions that are drawn.
        steps: stop after this many steps; default: when the episode ends.
        fps: pictures per second; default: the environment's.
        sampled: sample actions, instead of the likeliest.
        pixels: width of a clip, in pixels. Its height follows.
        model, trainer: of a run with networks or by a trainer of one's own, see
            ``corral.load_run``.
        env: the environment of others that a run was trained in, again: see ``corral.load_run``.
        api: "parallel" or "aec", where ``game`` or ``env`` names an environment that has both.
        env_kwargs: arguments of the environment; of a run, those to change.

    Returns how far it went; a window that its user closes ends it.

    Raises:
        UnknownNameError: no environment or team of that name.
        RunError, CheckpointError: no run there, no checkpoint in it, or its environment is missing.
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
    named = {"model": model, "trainer": trainer, "env": env, "api": api}
    rules, player, label = _cast(game, policies, env_kwargs, sampled, named)
    rules = for_rendering(rules)
    modes, own_fps = _rendering(rules)
    mode = "rgb_array" if text is None else "ansi"
    if mode not in modes:
        kind = "pictures" if text is None else "text"
        known = ", ".join(modes) or "none"
        raise ValueError(f"{rules.name} has no {kind} to show; its render modes: {known}")
    rate = float(own_fps or 4) if fps is None else fps

    episode = _Episode(rules, player, seed, steps)
    path = None if out is None else Path(out)
    with contextlib.closing(episode.frames(mode)) as frames:  # a window may be closed early
        if path is not None:
            write_video(path, [shrunk(picture, pixels) for picture in frames], rate)
        elif text is not None:
            for words in frames:
                text(words)
        else:
            _show(rules.name, frames, rate)
    returns = dict(zip(rules.agents, episode.returns.tolist(), strict=True))
    return Watched(rules.name, label, episode.t, episode.t + 1, returns, episode.over, path)


def _rendering(rules: Any) -> tuple[Sequence[str], float | None]:
    """Return the render modes of an environment, and its pictures a second."""
    if not third_party(rules):
        return rules.render_modes, rules.render_fps
    from corral.adapters.zoo.pictures import rendering  # late: corral's own games need none of it

    return rendering(rules)


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
    """Raise CorralError without a display: SDL would draw into nothing, and nobody would see it."""
    chosen = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in chosen):
        raise CorralError("no window can be opened: there is no display")


# --- Who plays what ------------------------------------------------------------------------------


def _cast(
    game: Any, policies: Any, env_kwargs: dict[str, Any], sampled: bool, named: Mapping[str, Any]
) -> tuple[Any, Player, str]:
    """Return the rules, who plays them, and that in words. ``named``: as for ``load_run``."""
    env, api = named["env"], named["api"]
    is_folder = isinstance(game, str | Path) and _names_a_run(game)
    runs = [each for each in (game, policies) if isinstance(each, str | Path) and is_run(each)]
    if not runs:
        for key, what in (("model", "networks of one's own"), ("env", "environments of others")):
            if named[key] is not None:
                raise ValueError(f"{key}= is for runs with {what}; leave it out")
    of_run = {
        str(run): partial(load_run, run, model=own_model, trainer=own_trainer)
        for run, own_model, own_trainer in zip(
            runs,
            models_for(runs, named["model"]),
            asked_for(runs, "trainer_source", named["trainer"]),
            strict=True,
        )
    }
    plays = is_run(policies) if isinstance(policies, str | Path) else False
    said = None if plays else policies
    rules: Any
    if isinstance(game, Run) or is_folder:
        if isinstance(game, Run):
            own = game
        elif env is None:
            own = of_run[str(game)]()
        else:
            own = of_run[str(game)](env=env, api=api, env_kwargs=env_kwargs or None)
        config = own.config.env_config
        if isinstance(game, Run) and env_kwargs and config.own_rules is not None:
            given = ", ".join(env_kwargs)
            raise ValueError(f"{given}: {game.name} has its environment; give its folder, and env=")
        rules = config.held_out_rules(**_with_arguments_of(config.env, said, env_kwargs))
        policies = own if policies is None else policies
    elif isinstance(game, str | Path):
        rules = rules_of(str(game), _with_arguments_of(str(game), said, env_kwargs), api=api)
    else:
        rules = rules_of(game, env_kwargs, api=api)
    others = third_party(rules)
    if plays:
        policies = of_run[str(policies)](env=rules if env is None and others else env)
    if isinstance(policies, Run):
        label = f"{policies.config.trainer} of {policies.name}"
        return rules, _learned(policies, rules, sampled), label
    if policies is None or isinstance(policies, str | Path):
        name = "random" if policies is None else str(policies)
        if Path(name).is_dir():
            raise RunError(f"{name} is a folder, but holds no run")
        team = reference_team(name, rules)
        if name == "random" and others:  # whatever their actions are
            team = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
        return rules, Player(team, not sampled), name
    player = as_player(policies, rules.agents)
    if not isinstance(policies, Player):
        player = Player(player.team, not sampled)
    return rules, player, "a team"


def _names_a_run(game: str | Path) -> bool:
    """Return whether it is a run's folder; raise RunError where it would be one that is not."""
    if is_run(game):
        return True
    if registered_name(str(game)) is not None:
        return False
    if Path(game).is_dir():
        raise RunError(f"{game} is a folder, but holds no run")
    if ":" not in str(game) and len(Path(game).parts) > 1 and not _in_pettingzoo(str(game)):
        raise RunError(f"there is no run in {game}: no such folder")
    return False


def _in_pettingzoo(text: str) -> bool:
    """Return whether PettingZoo's registry has the id, or others of its family."""
    ids = [*getattr(pettingzoo, "parallel_registry", ()), *getattr(pettingzoo, "aec_registry", ())]
    return text.partition("/")[0] in {each.partition("/")[0] for each in ids}


def _with_arguments_of(env: str, policies: Any, env_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return ``env_kwargs``, completed with what the name of a reference team says of them."""
    said = team_arguments(env, policies) if isinstance(policies, str) else {}
    return {**said, **env_kwargs}


def _learned(run: Run, rules: Rules[Any], sampled: bool) -> Player:
    """Return the team of a run; raise ValueError where it is of another game."""
    env_config = run.config.env_config
    if (trained_in := env_config.env) != rules.name:
        raise ValueError(f"{run.folder} was trained in {trained_in}, not in {rules.name}")
    trained = env_config.rules()
    for agent in rules.agents:
        like = trained.agents[0] if any_number(trained) else agent
        theirs = trained.observation_space(like) if like in trained.agents else None
        if theirs != rules.observation_space(agent):
            raise ValueError(
                f"{run.folder} was trained with other observations of {agent}: watch the run "
                "itself, or give the arguments that it was trained with"
            )
    return as_player(Player(run.policies, not sampled), rules.agents)


# --- An episode ----------------------------------------------------------------------------------


class _Episode:
    """The first episode of a seed, step by step."""

    def __init__(self, rules: Any, player: Player, seed: int, steps: int | None) -> None:
        self.rules = rules
        self.player = player
        self.seed = seed
        longest = LONGEST if rules.max_cycles is None else rules.max_cycles
        self.limit = longest if steps is None else min(steps, rules.max_cycles or steps)
        self.t = 0
        self.returns = np.zeros(len(rules.agents))
        self.over = False

    def frames(self, mode: str) -> Generator[Any, None, None]:
        """Yield the start, and what follows each step, as pictures or text; on demand."""
        drawn: list[Any] = []
        if third_party(self.rules):
            from corral.adapters.zoo.pictures import pictured

            rules: Any = pictured(self.rules, mode, drawn.append)
        else:
            rules = self._pictured(mode, drawn.append)
        greedy = dict.fromkeys(rules.agents, self.player.deterministic)
        turns: Any = play(
            rules, self.player.team, greedy, quota=np.ones(1, dtype=np.int64), seed=self.seed
        )
        with contextlib.closing(turns):
            for turn in itertools.islice(turns, self.limit):
                self.t += 1
                self.returns += turn.step.reward[0]
                self.over = len(turn.ended) > 0
                yield from drawn
                drawn.clear()

    def _pictured(self, mode: str, show: Callable[[Any], None]) -> Changed:
        """Return rules that show the start, and the state after each step."""
        start, step = self.rules.start, self.rules.step

        def shown_start(rngs: Any) -> Any:
            state = start(rngs)
            if not self.t:
                show(self.rules.render(state, self.rules.info(state), mode))
            return state

        # What ends is drawn before the batch begins the next episode in its place.
        def shown_step(state: Any, action: Array) -> Outcome[Any]:
            outcome: Outcome[Any] = step(state, action)
            show(self.rules.render(outcome.state, outcome.info, mode))
            return outcome

        return Changed(self.rules, start=shown_start, step=shown_step)
