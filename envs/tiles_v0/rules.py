"""Rules of tiles_v0 as array code; ``corral.envs.tiles_v0`` is the manual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.arguments import nonnegative_float, nonnegative_int, one_of, optional_int
from corral.envs.core import Array, Observation, Outcome
from corral.envs.masks import masked, masked_space
from corral.envs.tiles_v0.render import Frame, ansi, draw
from corral.envs.tiles_v0.templates import (
    CHANNELS,
    PIXELS,
    SIDE,
    TILES,
    VALUES,
    block_means,
    classes_of,
    split_tiles,
    spread,
    suite_classes,
)

__all__ = ["TilesRules", "TilesState"]

TILE, LEVEL = 0, 1  # the agents, along axis N
UNSENT = 128  # of 255: the gray of unsent tiles
NONE = -1  # no tile, no level, no action

BUDGET = 384  # default
COARSE_BUDGET = 4 * VALUES[0]  # default with ``levels=1``

INFO = ("values", "tiles", "gain", "correct", "illegal_actions")


@dataclass
class TilesState:
    """State of B environments between two steps; K is the number of classes."""

    truth: Array  # int64 [B] the true class
    image: Array  # float32 [B, 16, 3, 8, 8] the noisy image, split into tiles
    log_posterior: Array  # float64 [B, K]
    received: Array  # uint8 [B, 3, 32, 32] as displayed
    sent: Array  # int64 [B, 16] the level of each sent tile; NONE: unsent
    left: Array  # int64 [B] remaining budget in values
    picked: Array  # int64 [B] the picked tile, waiting for level_0; NONE: tile_0 acts
    last: Array  # int64 [B, 2] last action of each agent; NONE: no action yet
    over: Array  # bool [B]
    newest: Array  # int64 [B] the tile sent last, for rendering; NONE: no tile yet
    score: Array  # float64 [B] sum of team rewards so far, for rendering


class TilesRules:
    """Rules of tiles_v0 for B environments; see the manual of the package.

    Args:
        templates: custom classes: floats [K, 3, 32, 32] in [0, 1], or the path of an .npy file.
            None: the 100 classes of the suite.
        levels: number of levels, 1 to 4, counted from the coarsest level.
        budget: maximum number of values sent in an episode, 3 or more. Default: 384; with one
            level 12, which pays four tiles. With more, the choice of tiles hardly matters.
        noise: standard deviation of the noise, above 0.
        value_cost: cost for the team of each value sent.
        confidence: class probability that ends the episode: above 1 / K and at most 1.
        max_cycles: time limit in steps; legal play needs at most 32.
        illegal: reaction to an action outside the mask: "penalise" or "raise".

    Raises:
        ValueError: an argument is outside its range, or templates are not images.
    """

    name = "tiles_v0"
    agents: tuple[str, ...] = ("tile_0", "level_0")
    render_modes = ("human", "ansi", "rgb_array")
    render_fps = 2
    simultaneous = False

    def __init__(
        self,
        templates: Any = None,
        *,
        levels: int = 4,
        budget: int | None = None,
        noise: float = 0.3,
        value_cost: float = 0.002,
        confidence: float = 0.95,
        max_cycles: int = 2 * TILES,
        illegal: Literal["penalise", "raise"] = "penalise",
    ) -> None:
        self.classes = suite_classes() if templates is None else classes_of(templates)
        self.levels = nonnegative_int("levels", levels, least=1)
        if self.levels > len(VALUES):
            raise ValueError(f"levels={levels}: pass an integer from 1 to {len(VALUES)}")
        limit = optional_int("budget", budget, least=VALUES[0])
        self.budget = (BUDGET if self.levels > 1 else COARSE_BUDGET) if limit is None else limit
        self.noise = nonnegative_float("noise", noise)
        if self.noise == 0:
            raise ValueError(f"noise={noise}: pass a number above 0; the noise must hide the class")
        self.value_cost = nonnegative_float("value_cost", value_cost)
        self.confidence = nonnegative_float("confidence", confidence)
        if not 1 / len(self.classes) < self.confidence <= 1:
            raise ValueError(
                f"confidence={confidence}: pass a number above 1/{len(self.classes)} (the initial "
                "probability of each class) and at most 1"
            )
        self.max_cycles = nonnegative_int("max_cycles", max_cycles, least=1)
        self.illegal = one_of("illegal", illegal, ("penalise", "raise"))
        self._sizes = {"tile_0": TILES, "level_0": self.levels}
        self._values = np.array(VALUES[: self.levels])

    @property
    def templates(self) -> Array:
        """Return the templates of the classes: float64 [K, 3, 32, 32]."""
        return self.classes.templates

    @property
    def identity(self) -> str:
        """Return a text that is equal for equal rules."""
        return (
            f"{self.name} of {len(self.classes)} classes {self.classes.digest}, {self.levels} "
            f"levels, budget {self.budget}, noise {self.noise}, value cost {self.value_cost}, "
            f"confidence {self.confidence}, {self.max_cycles} steps"
        )

    # --- Spaces ----------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> spaces.Dict:
        vector = spaces.Box(0.0, 1.0, (len(self.classes) + 2 + TILES,), np.float32)
        image = spaces.Box(0, 255, (CHANNELS, SIDE, SIDE), np.uint8)
        return masked_space(spaces.Dict({"image": image, "vector": vector}), self._sizes[agent])

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(self._sizes[agent])

    def state_space(self) -> spaces.Box:
        features = 2 * len(self.classes) + 1 + 2 * TILES
        return spaces.Box(0.0, 1.0, (features,), np.float32)

    # --- An episode ------------------------------------------------------------------------------

    def start(self, rngs: Sequence[np.random.Generator]) -> TilesState:
        """Start B episodes. Each generator draws the class, then the noise of all pixels."""
        b, k = len(rngs), len(self.classes)
        truth = np.array([int(rng.integers(k)) for rng in rngs], dtype=np.int64)
        images = np.empty((b, CHANNELS, SIDE, SIDE), dtype=np.float32)
        for rng, image in zip(rngs, images, strict=True):
            rng.standard_normal(dtype=np.float32, out=image)
        images *= np.float32(self.noise)
        images += self.templates[truth]
        return TilesState(
            truth=truth,
            image=split_tiles(images),
            log_posterior=np.full((b, k), -math.log(k)),
            received=np.full((b, CHANNELS, SIDE, SIDE), UNSENT, dtype=np.uint8),
            sent=np.full((b, TILES), NONE, dtype=np.int64),
            left=np.full(b, self.budget, dtype=np.int64),
            picked=np.full(b, NONE, dtype=np.int64),
            last=np.full((b, 2), NONE, dtype=np.int64),
            over=np.zeros(b, dtype=bool),
            newest=np.full(b, NONE, dtype=np.int64),
            score=np.zeros(b),
        )

    def redraw(
        self, state: TilesState, rngs: Sequence[np.random.Generator], told: bool = False
    ) -> TilesState:
        """Redraw the noise of the unsent tiles.

        Unless ``told``, the true class is redrawn first, from its posterior.
        """
        for r, rng in enumerate(rngs):
            chances = np.exp(state.log_posterior[r])
            if not told:
                state.truth[r] = rng.choice(len(chances), p=chances / chances.sum())
            unsent = state.sent[r] == NONE
            noise = rng.standard_normal(state.image[r][unsent].shape, dtype=np.float32)
            template = split_tiles(self.templates[state.truth[r : r + 1]])[0]
            state.image[r][unsent] = template[unsent] + np.float32(self.noise) * noise
        return state

    def observe(self, state: TilesState) -> dict[str, Observation]:
        k, acting = len(self.classes), self.acting(state)
        vector = np.empty((2, len(state.truth), k + 2 + TILES), dtype=np.float32)
        np.exp(state.log_posterior, out=vector[0, :, :k], casting="same_kind")
        vector[0, :, k] = state.left / self.budget
        vector[0, :, k + 2 :] = state.sent != NONE
        vector[1] = vector[0]
        vector[TILE, :, k + 1] = (state.last[:, LEVEL] + 1) / self.levels
        vector[LEVEL, :, k + 1] = (state.last[:, TILE] + 1) / TILES
        masks = (state.sent == NONE, self._values <= state.left[:, None])
        return {
            agent: masked(
                {"image": state.received.copy(), "vector": vector[i]},
                (masks[i] & acting[:, i, None]).view(np.int8),
            )
            for i, agent in enumerate(self.agents)
        }

    def acting(self, state: TilesState) -> Array:
        picks = state.picked == NONE
        return np.stack((picks, ~picks), axis=1) & ~state.over[:, None]

    def step(self, state: TilesState, action: Array) -> Outcome[TilesState]:
        acting = self.acting(state)
        info = self.info(state)
        illegal = info["illegal_actions"]
        state.last = np.where(acting, action, state.last)

        # tile_0 picks a tile. A sent tile is illegal and ends the turn: tile_0 picks again.
        rows = np.flatnonzero(acting[:, TILE])
        tile = action[rows, TILE]
        fresh = state.sent[rows, tile] == NONE
        state.picked[rows[fresh]] = tile[fresh]
        illegal[rows, TILE] = ~fresh

        # level_0 sends the tile. A level beyond the budget ends the turn; the tile stays unsent.
        rows = np.flatnonzero(acting[:, LEVEL])
        level = action[rows, LEVEL]
        affordable = self._values[level] <= state.left[rows]
        illegal[rows, LEVEL] = ~affordable
        sending, level = rows[affordable], level[affordable]
        if len(sending):
            before = state.log_posterior[sending, state.truth[sending]]
            right = self._right(state, sending)
            self._send(state, sending, state.picked[sending], level)
            info["values"][sending, LEVEL] = self._values[level]
            info["tiles"][sending, LEVEL] = 1
            info["gain"][sending, LEVEL] = (
                state.log_posterior[sending, state.truth[sending]] - before
            )
            info["correct"][sending, LEVEL] = self._right(state, sending) - right
        state.picked[rows] = NONE

        # The episode ends if the class is certain enough, the budget used up, or all tiles sent.
        top = state.log_posterior[sending].max(axis=1, initial=-np.inf)
        state.over[sending] = (
            (np.exp(top) >= self.confidence)
            | (state.left[sending] < self._values[0])
            | (state.sent[sending] != NONE).all(axis=1)
        )
        team = info["gain"][:, LEVEL] - self.value_cost * info["values"][:, LEVEL]
        team = team - illegal.sum(axis=1)
        state.score += team
        reward = np.repeat((team / 2).astype(np.float32)[:, None], 2, axis=1)
        return Outcome(state, reward, np.repeat(state.over[:, None], 2, axis=1), info)

    def _send(self, state: TilesState, rows: Array, tile: Array, level: Array) -> None:
        """Send ``tile`` of each of ``rows`` at its ``level``: each int64 [R]."""
        # log N(m; t, v), for a mean m and a template's mean t, is (m t - t^2 / 2) / v plus a term
        # that is equal for all classes. There are few tiles and levels, so each table is looked up
        # once for all rows that need it. The sums of einsum do not depend on the number of rows.
        logs = state.log_posterior
        tiles = state.received.reshape(len(logs), CHANNELS, 4, 8, 4, 8)
        for of_level in np.unique(level).tolist():
            at = np.flatnonzero(level == of_level)
            at = at[np.argsort(tile[at], kind="stable")]
            chosen, of_tile = rows[at], tile[at]
            means = block_means(state.image[chosen, of_tile], of_level)  # [R, V]
            pixels = np.rint(means.clip(0.0, 1.0) * 255).astype(np.uint8)
            tiles[chosen, :, of_tile // 4, :, of_tile % 4] = spread(pixels, of_level)
            table, norms = self.classes.means[of_level], self.classes.norms[of_level]
            ends = np.flatnonzero(np.diff(of_tile, append=-1)) + 1
            match = np.empty((len(at), len(self.classes)))
            for low, high in zip([0, *ends.tolist()], ends.tolist(), strict=False):
                np.einsum("rv,vk->rk", means[low:high], table[of_tile[low]], out=match[low:high])
            match -= norms[of_tile]
            match *= PIXELS[of_level] / self.noise**2
            logs[chosen] += match
        new = logs[rows]
        new -= new.max(axis=1, keepdims=True)
        new -= np.log(np.exp(new).sum(axis=1, keepdims=True))
        logs[rows] = new
        state.sent[rows, tile] = level
        state.left[rows] -= self._values[level]
        state.newest[rows] = tile

    def _right(self, state: TilesState, rows: Array) -> Array:
        """Return 1 if the likeliest class is true, else 0: int64 [R]. 0 while no tile is sent."""
        guess = state.log_posterior[rows].argmax(axis=1)
        any_sent = (state.sent[rows] != NONE).any(axis=1)
        return np.asarray(any_sent & (guess == state.truth[rows])).astype(np.int64)

    def info(self, state: TilesState) -> dict[str, Array]:
        shape = (len(state.truth), 2)
        kinds = {"gain": np.float64}
        return {key: np.zeros(shape, dtype=kinds.get(key, np.int64)) for key in INFO}

    def global_state(self, state: TilesState) -> Array:
        b, k = len(state.truth), len(self.classes)
        rows = np.arange(b)
        features = np.zeros((b, 2 * k + 1 + 2 * TILES), dtype=np.float32)
        features[rows, state.truth] = 1.0
        np.exp(state.log_posterior, out=features[:, k : 2 * k], casting="same_kind")
        features[:, 2 * k] = state.left / self.budget
        features[:, 2 * k + 1 : 2 * k + 1 + TILES] = (state.sent + 1) / self.levels
        waiting = np.flatnonzero(state.picked != NONE)
        features[waiting, 2 * k + 1 + TILES + state.picked[waiting]] = 1.0
        return features

    def render(self, state: TilesState, info: dict[str, Array], mode: str) -> Any:
        frame = self.frame(state, info)
        return ansi(frame) if mode == "ansi" else draw(frame)

    def frame(self, state: TilesState, info: dict[str, Array]) -> Frame:
        """Return the last step of environment 0 as plain numbers and images."""
        truth = int(state.truth[0])
        probability = np.exp(state.log_posterior[0])
        likeliest = np.argsort(-probability, kind="stable")[:5].tolist()
        apart = state.image[0].reshape(4, 4, CHANNELS, 8, 8).transpose(2, 0, 3, 1, 4)
        illegal = info["illegal_actions"][0]
        return Frame(
            received=state.received[0].copy(),
            image=apart.reshape(CHANNELS, SIDE, SIDE),
            templates={k: self.templates[k] for k in (truth, *likeliest)},
            truth=truth,
            likeliest=tuple((k, float(probability[k])) for k in likeliest),
            true_probability=float(probability[truth]),
            classes=len(self.classes),
            sent=tuple(state.sent[0].tolist()),
            picked=int(state.picked[0]),
            newest=int(state.newest[0]),
            values=int(info["values"][0, LEVEL]),
            gain=float(info["gain"][0, LEVEL]),
            illegal=next((self.agents[i] for i in range(2) if illegal[i]), None),
            left=int(state.left[0]),
            budget=self.budget,
            confidence=self.confidence,
            over=bool(state.over[0]),
            score=float(state.score[0]),
        )
