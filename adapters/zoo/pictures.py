"""Render third-party environments during play, for ``corral.watch``.

frames = []
rules = pictured(zoo_rules(connect_four_v3.env), "rgb_array", frames.append)
for turn in play(rules, team, deterministic, quota=np.ones(1, int)):
    show(frames)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from pettingzoo.utils.wrappers import BaseParallelWrapper, BaseWrapper

from corral.adapters.zoo.batch import ZooRules
from corral.errors import EnvironmentFault

__all__ = ["pictured", "rendering"]

Show = Callable[[Any], None]


def rendering(rules: ZooRules) -> tuple[tuple[str, ...], float | None]:
    """Return the render modes and the frames per second in the environment's metadata."""
    env = rules.make()
    try:
        metadata = dict(getattr(env, "metadata", None) or {})
    finally:
        env.close()
    modes: Any = metadata.get("render_modes", ())
    fps = metadata.get("render_fps")
    return tuple(map(str, modes)), float(fps) if isinstance(fps, int | float) and fps > 0 else None


def pictured(rules: ZooRules, mode: str, show: Show) -> ZooRules:
    """Return rules for copies that call ``show`` with pictures, in the render mode ``mode``.

    A picture is uint8 [H, W, 3], or text. ``show`` is called at the start of the first episode, and
    after every step.

    Copies raise EnvironmentFault if ``render`` returns another type, and the errors of
    ``rules.make``.
    """
    return dataclasses.replace(rules, make_env=functools.partial(_make, rules, mode, show))


def _make(rules: ZooRules, mode: str, show: Show) -> Any:
    env = rules.make(mode)
    draw = functools.partial(_draw, env, f"{rules.name}: render()", mode, show)
    return _Turns(env, draw) if rules.turns else _Parallel(env, draw)


class _Turns(BaseWrapper):  # type: ignore[misc]  # PettingZoo ships no types
    """An AECEnv that is drawn after each move, but not after the ``step(None)`` of ended agents."""

    def __init__(self, env: Any, draw: Callable[[], None]) -> None:
        super().__init__(env)
        self._draw, self._begun = draw, False

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed=seed, options=options)
        if not self._begun:  # the autoreset after the last episode is not shown
            self._begun = True
            self._draw()

    def step(self, action: Any) -> None:
        super().step(action)
        if action is not None:
            self._draw()


class _Parallel(BaseParallelWrapper):  # type: ignore[misc]
    """A ParallelEnv that is drawn after each step."""

    def __init__(self, env: Any, draw: Callable[[], None]) -> None:
        super().__init__(env)
        self._draw, self._begun = draw, False

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        first = super().reset(seed=seed, options=options)
        if not self._begun:
            self._begun = True
            self._draw()
        return first

    def step(self, actions: Any) -> Any:
        step = super().step(actions)
        self._draw()
        return step


def _draw(env: Any, what: str, mode: str, show: Show) -> None:
    picture = env.render()
    if mode == "ansi":
        text = picture.getvalue() if hasattr(picture, "getvalue") else picture
        if not isinstance(text, str):
            raise EnvironmentFault(f"{what} returned {_named(picture)} in mode 'ansi', not text")
        show(text)
        return
    try:
        image = np.asarray(picture)
    except ValueError:
        image = np.zeros(0)
    if image.ndim != 3 or image.shape[2] not in (3, 4) or image.dtype.kind not in "uif":
        raise EnvironmentFault(
            f"{what} returned {_named(picture)} in mode 'rgb_array', not an array "
            "[height, width, 3]"
        )
    show(np.clip(image[..., :3], 0, 255).astype(np.uint8))


def _named(value: Any) -> str:
    if value is None:
        return "None"
    shape = f" {value.shape}" if hasattr(value, "shape") else ""
    return f"{type(value).__name__}{shape}"
