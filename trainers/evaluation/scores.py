"""Scores of teams, and the ``Evaluation`` whose rows they are.

rows = evaluate_players(make_rules("arena_v0"), {"mine": team}, episodes=100, seed=0)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from corral.adapters.seats import random_policy
from corral.envs.core import Rules
from corral.envs.episode_stats import EndedEpisodes
from corral.envs.policy import PolicyLike
from corral.progress import Progress
from corral.results import Result, csv_text, json_text, plain
from corral.trainers.evaluation.episodes import bootstrap_ratio, play_episodes
from corral.trainers.evaluation.players import Player, as_player

__all__ = [
    "Evaluation",
    "TeamScore",
    "evaluate_players",
    "evaluate_team",
    "figures_of",
    "with_ends",
]


# --- An evaluation -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Evaluation(Sequence[Any], Result):
    """The result of ``corral.evaluate``: a sequence of its rows.

    A row is a dataclass with ``policy``, ``mode``, ``low``, ``high``, ``episodes``,
    ``illegal_actions`` and what else there is to measure: a ``TeamScore``, a ``SeatScore`` of a
    zero-sum game, or a ``corral.loads.scores.Score`` of a replay. ``write`` writes results.json
    and results.csv, whose columns are those of ``to_dataframe``.
    """

    json_file = "results.json"

    env: str
    rows: Sequence[Any]
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)  # what the figures were made with
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON: what else results.json says
    replay: Any = None  # of a load: the Replay that the rows are of

    def __repr__(self) -> str:
        return f"<Evaluation of {self.env}: {len(self.rows)} rows>"

    def __str__(self) -> str:
        """A line for each row: what is one number or word, without what all leave empty."""
        names = [one.name for one in dataclasses.fields(self.rows[0])] if self.rows else []
        values = {name: [getattr(row, name) for row in self.rows] for name in names}
        plain = {
            name: ["" if value is None else value for value in column]
            for name, column in values.items()
            if not any(isinstance(value, Mapping) for value in column)
            and not name.endswith(("_low", "_high"))
        }
        shown = pd.DataFrame({k: column for k, column in plain.items() if any(map(_told, column))})
        table = shown.map(lambda value: f"{value:.4g}" if isinstance(value, float) else value)
        return f"{self!r}\n{table.to_string(index=False)}"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    @property
    def holds(self) -> bool:
        """Whether all that was required of it holds, see ``require`` of ``corral.evaluate``."""
        return all(each["holds"] for each in self.details.get("required", ()))

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each row; what is said by agent or by info is ``returns.agent_0``."""
        return pd.json_normalize([dataclasses.asdict(row) for row in self.rows])

    def to_json(self) -> dict[str, Any]:
        """Return the environment, ``details``, ``versions`` and the rows as JSON values."""
        return {
            "environment": self.env,
            **plain(self.details),
            "versions": dict(self.versions),
            "rows": plain(self.rows),
        }

    def texts(self) -> dict[str, str]:
        # As objects: whole numbers stay whole in a column where some rows have none.
        flat = pd.DataFrame([_flat(dataclasses.asdict(row)) for row in self.rows], dtype=object)
        return {self.json_file: json_text(self.to_json()), "results.csv": csv_text(flat)}


def _told(value: Any) -> bool:
    return bool(value != "")


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without parts: those of "returns" become "returns.agent_0", ..."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        parts = value if isinstance(value, Mapping) else None
        flat |= {name: value} if parts is None else {f"{name}.{k}": v for k, v in parts.items()}
    return flat


def figures_of(row: Any) -> dict[str, float | None]:
    """Return the numbers of a row by the names of its columns, see ``with_ends``; None: none."""
    flat = _flat(dataclasses.asdict(row))
    return with_ends({name: value for name, value in flat.items() if not isinstance(value, str)})


def with_ends(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``columns``, and the ends of intervals by another name besides: ``served.low``,
    ``return_team.high``."""
    main = next((name for name in ("return_team", "return_seat") if name in columns), "")
    found = dict(columns)
    for name, value in columns.items():
        what, _, end = f"{main}_{name}".rpartition("_") if name in ENDS else name.rpartition("_")
        if what and end in ENDS:
            found[f"{what}.{end}"] = value
    return found


ENDS = ("low", "high")


# --- Teams ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TeamScore:
    """The score of a team; means are over episodes."""

    policy: str
    mode: str  # "greedy", "sampled"; "" for the random row that was added
    return_team: float  # mean of the sum of all agents' rewards
    low: float | None  # 95 % bootstrap interval of return_team over episodes
    high: float | None
    returns: dict[str, float]  # mean return of each agent; they sum to return_team
    episodes: int
    mean_length: float  # steps
    illegal_actions: int  # masked actions chosen, over all episodes
    kpis: dict[str, float]  # mean per episode of each info, summed over steps and agents


def evaluate_team(
    rules: Rules[Any],
    player: Player | PolicyLike | Mapping[str, PolicyLike],
    *,
    episodes: int = 100,
    num_envs: int | None = None,
    seed: int = 0,
    label: str = "team",
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
    on_played: Callable[[EndedEpisodes], None] = lambda played: None,
) -> TeamScore:
    """Play exactly ``episodes`` episodes of ``rules`` and measure them.

    Seeds are those of ``corral.trainers.evaluation.episodes.play``: every team meets the same
    episodes.

    Args:
        rules: what is played; of a Player, ``settings`` are ignored.
        player: a Player, a team (agent -> policy), or one policy for all agents: whatever
            ``corral.envs.policy.as_policy`` takes.
        num_envs: episodes side by side; default: 64, or ``episodes`` if that is less.
        label: the name of the team in the score.
        workers: processes that step third-party environments; 0: this one. Scores are the same.
        progress: is called with the label, episodes played, and episodes to play.
        on_played: is called with the episodes.

    Raises:
        ValueError: no episodes, no environments, a team that does not fit the agents, or workers
            for an environment that needs none.
        ActionError: a policy gives malformed actions (IllegalActionError: masked ones, where the
            rules are made with ``illegal="raise"``; otherwise these are counted).
    """
    chosen = as_player(player, rules.agents)
    greedy = dict.fromkeys(rules.agents, chosen.deterministic)
    played, illegal = play_episodes(
        rules,
        chosen.team,
        greedy,
        episodes=episodes,
        num_envs=num_envs,
        seed=seed,
        workers=workers,
        progress=functools.partial(progress, label),
    )
    on_played(played)
    team = played.returns.sum(axis=1)
    low, high = bootstrap_ratio(team, np.ones(episodes))
    each = played.returns.mean(axis=0).tolist()
    return TeamScore(
        policy=label,
        mode=chosen.mode,
        return_team=float(team.mean()),
        low=low,
        high=high,
        returns=dict(zip(rules.agents, each, strict=True)),
        episodes=episodes,
        mean_length=float(played.lengths.mean()),
        illegal_actions=int(illegal.sum()),
        kpis={key: float(sums.sum(axis=1).mean()) for key, sums in played.infos.items()},
    )


def evaluate_players(
    rules: Rules[Any],
    players: Mapping[str, Player | PolicyLike | Mapping[str, PolicyLike]],
    *,
    episodes: int = 100,
    num_envs: int | None = None,
    seed: int = 0,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
    on_played: Callable[[EndedEpisodes], None] = lambda played: None,
) -> list[TeamScore]:
    """Return ``evaluate_team`` for each of ``players``, over the same episodes, in their order.

    "random", uniformly random legal play, is the last row; it is added where it is missing.
    """
    named = {label: player for label, player in players.items() if label != "random"}
    plan: dict[str, Any] = {"episodes": episodes, "num_envs": num_envs, "seed": seed}
    plan |= {"workers": workers, "progress": progress, "on_played": on_played}
    scores = [evaluate_team(rules, one, label=label, **plan) for label, one in named.items()]
    chance = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    last = evaluate_team(rules, players.get("random", chance), label="random", **plan)
    return [*scores, last if "random" in players else dataclasses.replace(last, mode="")]
