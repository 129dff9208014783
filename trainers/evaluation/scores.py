"""Scores of teams, and the ``Evaluation`` that contains them as rows.

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
from corral.results import Result, csv_text, filled, json_text, plain
from corral.trainers.evaluation.episodes import FEWEST_EPISODES, bootstrap_ratio, play_episodes
from corral.trainers.evaluation.players import Player, as_player

__all__ = [
    "MAX_AGENTS",
    "Evaluation",
    "TeamScore",
    "evaluate_players",
    "evaluate_team",
    "figures_of",
    "with_ends",
]


MAX_AGENTS = 6
"""With more agents, a table summarizes their returns."""


# --- An evaluation -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Evaluation(Sequence[Any], Result):
    """The result of ``corral.evaluate``: a sequence of its rows.

    A row is a dataclass with ``policy``, ``mode``, ``low``, ``high``, ``episodes``,
    ``illegal_actions`` and further measurements: a ``TeamScore``, a ``SeatScore`` of a zero-sum
    game, or a ``corral.loads.scores.Score`` of a replay. ``write`` writes results.json and
    results.csv; the CSV has the columns of ``to_dataframe``.
    """

    json_file = "results.json"

    env: str
    rows: Sequence[Any]
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)  # package versions used
    details: Mapping[str, Any] = field(default_factory=dict)  # further JSON entries of results.json
    replay: Any = None  # Replay of the rows, for a load

    def __repr__(self) -> str:
        return f"<Evaluation of {self.env}: {len(self.rows)} rows>"

    def text(self, width: int = 80) -> str:
        """Return the columns that are not empty, and the notes. The table may be wider than
        ``width``."""
        data = pd.DataFrame(self._columns())
        table = data.map(lambda value: f"{value:.4g}" if isinstance(value, float) else value)
        return "\n".join(
            [
                repr(self),
                table.to_string(index=False),
                *(filled([note], width) for note in self.notes()),
            ]
        )

    def _repr_html_(self) -> str:
        from corral.notebook import as_html  # late: only for notebooks

        columns = self._columns()
        rows = zip(*columns.values(), strict=True)
        return as_html(f"Evaluation of {self.env}", {}, [*columns], rows, lines=self.notes())

    def notes(self) -> list[str]:
        """Return sentences on the rows, for example on greedy play far below sampled play."""
        details = self.details
        lines = [*details.get("notes", ())]
        if self.replay is None and self.rows and self.rows[0].episodes < FEWEST_EPISODES:
            lines.append(f"No intervals: they need at least {FEWEST_EPISODES} episodes.")
        lines += [details["judged"]] if details.get("judged") else []
        for name in ("plays_sampled", "greedy_below_sampled"):
            lines += [entry["said"] for entry in details.get(name, ())]
        return list(dict.fromkeys(lines))

    def _columns(self) -> dict[str, list[Any]]:
        """Return the columns to show: scalars that are not empty in all rows, and the returns of
        the agents if they differ."""
        names = [one.name for one in dataclasses.fields(self.rows[0])] if self.rows else []
        values = {name: [getattr(row, name) for row in self.rows] for name in names}
        plain = {
            name: ["" if value is None else value for value in column]
            for name, column in values.items()
            if not any(isinstance(value, Mapping) for value in column)
            and not name.endswith(("_low", "_high"))
        }
        columns = {name: column for name, column in plain.items() if any(map(_filled, column))}
        returns = values.get("returns", ())
        if any(len(set(row.values())) > 1 for row in returns):
            agents = list(dict.fromkeys(agent for row in returns for agent in row))
            if len(agents) <= MAX_AGENTS:
                columns |= {
                    f"return of {agent}" if agent in values else agent: [
                        row.get(agent, "") for row in returns
                    ]
                    for agent in agents
                }
            else:
                columns["min agent"] = [min(row.values(), default="") for row in returns]
                columns["max agent"] = [max(row.values(), default="") for row in returns]
        return columns

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    @property
    def holds(self) -> bool:
        """Whether all criteria hold, see ``require`` of ``corral.evaluate``."""
        return all(result["holds"] for result in self.details.get("required", ()))

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per score. A mapping becomes one column per key: ``returns.agent_0``."""
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
        # dtype object keeps integers in a column with missing values.
        flat = pd.DataFrame([_flat(dataclasses.asdict(row)) for row in self.rows], dtype=object)
        return {self.json_file: json_text(self.to_json()), "results.csv": csv_text(flat)}


def _filled(value: Any) -> bool:
    return bool(value != "")


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the mappings of a row: "returns" becomes "returns.agent_0", ..."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        parts = value if isinstance(value, Mapping) else None
        flat |= {name: value} if parts is None else {f"{name}.{k}": v for k, v in parts.items()}
    return flat


def figures_of(row: Any) -> dict[str, float | None]:
    """Return the numbers of a row by column name, see ``with_ends``; None if missing."""
    flat = _flat(dataclasses.asdict(row))
    return with_ends({name: value for name, value in flat.items() if not isinstance(value, str)})


def with_ends(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``columns`` with additional names for the ends of intervals, such as ``served.low``
    and ``return_team.high``."""
    main = next((name for name in ("return_team", "return_seat") if name in columns), "")
    named = dict(columns)
    for name, value in columns.items():
        stem, _, end = f"{main}_{name}".rpartition("_") if name in ENDS else name.rpartition("_")
        if stem and end in ENDS:
            named[f"{stem}.{end}"] = value
    return named


ENDS = ("low", "high")


# --- Teams ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TeamScore:
    """The score of a team; means are over episodes."""

    policy: str
    mode: str  # "greedy", "sampled"; "" for the added row of random play
    return_team: float  # mean of the sum of all agents' rewards
    low: float | None  # 95 % bootstrap interval of return_team; None: too few episodes
    high: float | None
    returns: dict[str, float]  # mean return of each agent; they sum to return_team
    episodes: int
    mean_length: float  # steps
    illegal_actions: int  # number of masked actions chosen, over all episodes
    kpis: dict[str, float]  # mean per episode of each info key, summed over steps and agents


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

    Seeds are those of ``corral.trainers.evaluation.episodes.play``, so every team plays the same
    episodes.

    Args:
        rules: rules of the environment; ``settings`` of a Player are ignored.
        player: a Player, a team (agent -> policy), or one policy for all agents; a policy is
            anything that ``corral.envs.policy.as_policy`` takes.
        num_envs: number of environment copies; default: 64, but at most ``episodes``.
        label: name of the team in the score.
        workers: processes that step third-party environments; 0: this process. Scores do not
            depend on it.
        progress: called with the label, the number of finished episodes and the total.
        on_played: called with the episodes.

    Raises:
        ValueError: ``episodes`` or ``num_envs`` below 1, a team that does not fit the agents, or
            workers for an environment of corral.
        ActionError: a policy returns malformed actions. Masked actions are counted; with
            ``illegal="raise"`` they raise IllegalActionError.
    """
    chosen = as_player(player, rules.agents)
    greedy = dict.fromkeys(rules.agents, chosen.greedy)
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
    means = played.returns.mean(axis=0).tolist()
    return TeamScore(
        policy=label,
        mode=chosen.mode,
        return_team=float(team.mean()),
        low=low,
        high=high,
        returns=dict(zip(rules.agents, means, strict=True)),
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
    """Evaluate all ``players`` over the same episodes and return their scores in the same order.

    The last row is "random", uniformly random legal play; it is added if missing.
    """
    named = {label: player for label, player in players.items() if label != "random"}
    plan: dict[str, Any] = {"episodes": episodes, "num_envs": num_envs, "seed": seed}
    plan |= {"workers": workers, "progress": progress, "on_played": on_played}
    scores = [evaluate_team(rules, one, label=label, **plan) for label, one in named.items()]
    chance = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    last = evaluate_team(rules, players.get("random", chance), label="random", **plan)
    return [*scores, last if "random" in players else dataclasses.replace(last, mode="")]
