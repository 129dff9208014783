"""Show an episode in a window, as a clip or as text.

    corral.watch("arena_v0", policies="nearest/chase", out="clip.gif")
    corral.watch("runs/mine", sampled=True)  # a window, if a display is available

The episode is the first one that ``evaluate_team`` plays with the same seed. In environments of
corral it is also the episode after ``env.reset(seed=seed)``. Agent i draws from
``generator(seed, "policy", i)``. Third-party environments are played through their own API and
render themselves with ``env.render()``.
"""

from __future__ import annotations

import base64
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
from corral.errors import CorralError, MissingExtraError, RunError, concise
from corral.trainers.evaluation.episodes import Changed, play
from corral.trainers.evaluation.players import Player, as_player
from corral.trainers.runs.run import Run, asked_for, is_run, load_run, models_for

__all__ = ["LONGEST", "Watched", "watch"]

LONGEST = 1000
"""Maximum number of steps if neither the environment nor ``steps`` sets a limit."""

WIDTH = 480

MAX_CLIP = 8_000_000
"""Maximum bytes of a clip that a notebook shows."""

INSTEAD = "Write a clip instead with out=clip.gif, or print text with --ansi (text=print)"


@dataclass(frozen=True)
class Watched:
    """The result of ``watch``: the shown part of an episode."""

    env: str
    policies: str  # description of the players
    steps: int
    frames: int  # the start, and one after every step
    returns: dict[str, float]  # return of each agent, up to the last shown step
    over: bool  # True if the episode ended, False if showing stopped before
    path: Path | None  # file of the clip

    def _repr_html_(self) -> str:
        """Return a table of the episode, with the clip if it is a GIF of limited size."""
        from corral.notebook import as_html  # late: only for notebooks

        facts = {"policies": self.policies, "steps": self.steps, "ended": self.over}
        text = as_html(f"Episode of {self.env}", facts, ["agent", "return"], self.returns.items())
        clip = self.path
        if clip is None or clip.suffix != ".gif" or not clip.is_file():
            return text
        if clip.stat().st_size > MAX_CLIP:
            return text
        data = base64.b64encode(clip.read_bytes()).decode("ascii")
        return f'{text}<img alt="" src="data:image/gif;base64,{data}">'


@concise
def watch(
    game: EnvLike | Path | Run,
    *,
    policies: str | Path | Run | Player | PolicyLike | Mapping[str, PolicyLike] | None = None,
    out: str | Path | None = None,
    text: Callable[[str], None] | None = None,
    seed: int = 0,
    steps: int | None = None,
    fps: float | None = None,
    sampled: bool | None = None,
    pixels: int = WIDTH,
    model: Any = None,
    trainer: Any = None,
    env: EnvLike | None = None,
    api: Api | None = None,
    **env_kwargs: Any,
) -> Watched:
    """Play one episode and show it.

    Args:
        game: an environment, see ``corral.adapters.sources``, or a run (its folder, or RUN@best).
            A run is shown in its training environment, on held-out rows if it has any.
        policies: the name of a reference team (``corral.envs.reference``), a run, a Player, one
            policy for all agents, or a mapping agent -> policy. A policy is anything that
            ``corral.envs.policy.as_policy`` takes. Default: the run's team, else random legal play.
        out: a file that ends in .gif or .mp4. Without ``out`` and ``text`` a window opens.
        text: function that is called with each step as text, instead of a window.
        seed: seed of the episode, and of sampled actions.
        steps: maximum number of steps; default: until the episode ends.
        fps: frames per second; default: the rate of the environment.
        sampled: sample actions, instead of the most likely ones. Default: as the run plays, see
            ``Run.deterministic``; other policies play the most likely actions.
        pixels: width of a clip, in pixels. The height follows from the aspect ratio.
        model, trainer: required for a run with a custom network or trainer, see
            ``corral.load_run``.
        env: the third-party environment of a run, see ``corral.load_run``.
        api: "parallel" or "aec", if ``game`` or ``env`` names an environment that has both.
        env_kwargs: arguments of the environment; for a run, changes of its arguments.

    Returns a ``Watched``. If the user closes the window, the episode stops.

    Raises:
        UnknownNameError: no environment or team has this name.
        RunError, CheckpointError: the run, its checkpoint or its environment is missing.
        MissingExtraError: a package for rendering, encoding or windows is not installed.
        ValueError: arguments that do not fit, or an environment that cannot render this way.
        CorralError: a window is needed, but no display is available.
    """
    if steps is not None and steps < 1:
        raise ValueError(f"steps={steps}: pass 1 or more")
    if fps is not None and not fps > 0:
        raise ValueError(f"fps={fps}: pass a number above 0")
    if pixels < 16:
        raise ValueError(f"pixels={pixels}: pass 16 or more")
    if out is not None:
        if text is not None:
            raise ValueError("pass out= or text=, not both")
        encoder_of(out)  # fails before the episode is played
        if not Path(out).absolute().parent.is_dir():
            raise ValueError(f"out={out}: create the folder {Path(out).parent} first")
    named = {"model": model, "trainer": trainer, "env": env, "api": api}
    rules, player, label = _resolve(game, policies, env_kwargs, sampled, named)
    rules = for_rendering(rules)
    modes, default_fps = _rendering(rules)
    mode = "rgb_array" if text is None else "ansi"
    if mode not in modes:
        kind = "pictures" if text is None else "text"
        available = ", ".join(modes) or "none"
        raise ValueError(f"{rules.name} cannot render {kind}; its render modes are: {available}")
    rate = float(default_fps or 4) if fps is None else fps

    episode = _Episode(rules, player, seed, steps)
    path = None if out is None else Path(out)
    with contextlib.closing(episode.frames(mode)) as frames:  # the user may close the window early
        if path is not None:
            write_video(path, [shrunk(picture, pixels) for picture in frames], rate)
        elif text is not None:
            for frame in frames:
                text(frame)
        else:
            _show(rules.name, frames, rate)
    returns = dict(zip(rules.agents, episode.returns.tolist(), strict=True))
    return Watched(rules.name, label, episode.t, episode.t + 1, returns, episode.over, path)


def _rendering(rules: Any) -> tuple[Sequence[str], float | None]:
    """Return the render modes of an environment and its frames per second."""
    if not third_party(rules):
        return rules.render_modes, rules.render_fps
    from corral.adapters.zoo.pictures import rendering  # late: not needed for corral's games

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
    """Raise CorralError without a display, because SDL would draw to no visible window."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in variables):
        raise CorralError("cannot open a window: no display is available")


# --- Environment and players ---------------------------------------------------------------------


def _resolve(
    game: Any,
    policies: Any,
    env_kwargs: dict[str, Any],
    sampled: bool | None,
    named: Mapping[str, Any],
) -> tuple[Any, Player, str]:
    """Return the rules, the player and its label. ``named``: arguments of ``load_run``."""
    env, api = named["env"], named["api"]
    is_folder = isinstance(game, str | Path) and _names_a_run(game)
    runs = [path for path in (game, policies) if isinstance(path, str | Path) and is_run(path)]
    if not runs:
        for key, kind in (("model", "custom networks"), ("env", "third-party environments")):
            if named[key] is not None:
                raise ValueError(f"{key}= is only for runs with {kind}; leave it out")
    of_run = {
        str(run): partial(load_run, run, model=own_model, trainer=own_trainer)
        for run, own_model, own_trainer in zip(
            runs,
            models_for(runs, named["model"]),
            asked_for(runs, "trainer_source", named["trainer"]),
            strict=True,
        )
    }
    is_run_of_team = is_run(policies) if isinstance(policies, str | Path) else False
    team_name = None if is_run_of_team else policies
    rules: Any
    if isinstance(game, Run) or is_folder:
        if isinstance(game, Run):
            run = game
        elif env is None:
            run = of_run[str(game)]()
        else:
            run = of_run[str(game)](env=env, api=api, env_kwargs=env_kwargs or None)
        config = run.config.env_config
        if isinstance(game, Run) and env_kwargs and config.own_rules is not None:
            names = ", ".join(env_kwargs)
            raise ValueError(f"{names}: {game.name} has an environment; pass its folder and env=")
        rules = config.held_out_rules(**_with_arguments_of(config.env, team_name, env_kwargs))
        policies = run if policies is None else policies
    elif isinstance(game, str | Path):
        rules = rules_of(str(game), _with_arguments_of(str(game), team_name, env_kwargs), api=api)
    else:
        rules = rules_of(game, env_kwargs, api=api)
    foreign = third_party(rules)
    if is_run_of_team:
        policies = of_run[str(policies)](env=rules if env is None and foreign else env)
    if isinstance(policies, Run):
        player = _learned(policies, rules, sampled)
        label = f"{policies.config.trainer} of {policies.name}"
        return rules, player, label if player.greedy else f"{label}, sampled"
    if policies is None or isinstance(policies, str | Path):
        name = "random" if policies is None else str(policies)
        if Path(name).is_dir():
            raise RunError(f"the folder {name} does not contain a run")
        team = reference_team(name, rules)
        if name == "random" and foreign:  # for any action space
            team = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
        return rules, Player(team, not sampled), name
    player = as_player(policies, rules.agents)
    if not isinstance(policies, Player) and sampled is not None:
        player = Player(player.team, not sampled)
    return rules, player, "a team"


def _names_a_run(game: str | Path) -> bool:
    """Return True for a run's folder. Raise RunError for a path that is not an environment."""
    if is_run(game):
        return True
    if registered_name(str(game)) is not None:
        return False
    if Path(game).is_dir():
        raise RunError(f"the folder {game} does not contain a run")
    if ":" not in str(game) and len(Path(game).parts) > 1 and not _in_pettingzoo(str(game)):
        raise RunError(f"no run in {game}: the folder does not exist")
    return False


def _in_pettingzoo(text: str) -> bool:
    """Return True if PettingZoo's registry has the id, or another id of its family."""
    ids = [*getattr(pettingzoo, "parallel_registry", ()), *getattr(pettingzoo, "aec_registry", ())]
    return text.partition("/")[0] in {id.partition("/")[0] for id in ids}


def _with_arguments_of(env: str, policies: Any, env_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return ``env_kwargs``, completed with the arguments in the name of a reference team."""
    named = team_arguments(env, policies) if isinstance(policies, str) else {}
    return {**named, **env_kwargs}


def _learned(run: Run, rules: Rules[Any], sampled: bool | None) -> Player:
    """Return the team of a run. Raise ValueError if it was trained in another game."""
    env_config = run.config.env_config
    if (trained_in := env_config.env) != rules.name:
        raise ValueError(f"{run.folder} was trained in {trained_in}, not in {rules.name}")
    trained = env_config.rules()
    for agent in rules.agents:
        counterpart = trained.agents[0] if any_number(trained) else agent
        space = trained.observation_space(counterpart) if counterpart in trained.agents else None
        if space != rules.observation_space(agent):
            raise ValueError(
                f"{run.folder} was trained with different observations of {agent}. Watch the run "
                "itself, or pass the arguments of its training"
            )
    deterministic = None if sampled is None else not sampled
    return as_player(Player(run.policies, deterministic), rules.agents)


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
        """Yield the start and the result of each step, as images or text, lazily."""
        drawn: list[Any] = []
        if third_party(self.rules):
            from corral.adapters.zoo.pictures import pictured

            rules: Any = pictured(self.rules, mode, drawn.append)
        else:
            rules = self._pictured(mode, drawn.append)
        greedy = dict.fromkeys(rules.agents, self.player.greedy)
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
        """Return rules that call ``show`` for the start and for the state after each step."""
        start, step = self.rules.start, self.rules.step

        def shown_start(rngs: Any) -> Any:
            state = start(rngs)
            if not self.t:
                show(self.rules.render(state, self.rules.info(state), mode))
            return state

        # Render the final state before the batch replaces it by the next episode.
        def shown_step(state: Any, action: Array) -> Outcome[Any]:
            outcome: Outcome[Any] = step(state, action)
            show(self.rules.render(outcome.state, outcome.info, mode))
            return outcome

        return Changed(self.rules, start=shown_start, step=shown_step)
