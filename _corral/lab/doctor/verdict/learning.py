"""Does a run learn? Its checkpoint compared with random play, references and its own start.

    judged = judge(run, trained, untrained)
    judged.learns, judged.scores, judged.leads

All teams play the same seeds, so differences between two teams are paired. A run learns if its
team is better than random play and than the untrained policy, with intervals that exclude 0. A team
that plays optimally need not be better than the untrained policy.

The team's return is the sum over the learning agents. If their rewards differ, the sum may fall
although each agent learns its own best actions. So if the sum is not better, each agent is also
judged by its own return, alone among random players.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from corral.envs.core import Array, Rules, with_limit
from corral.envs.policy import PolicyLike
from corral.envs.reference import reference_team, team_names
from corral.errors import CorralError
from corral.lab.doctor.verdict.episodes import Episodes, Responses, Table, random_team
from corral.trainers.cloning.agreement import agreement
from corral.trainers.evaluation.greedy import Gap, gap_of, greedy_alone
from corral.trainers.evaluation.intervals import difference_interval
from corral.trainers.runs.run import Run

__all__ = [
    "FEW_UPDATES",
    "RANDOM",
    "UNTRAINED",
    "Lead",
    "Learning",
    "Score",
    "judge",
    "judge_clone",
]

RANDOM, UNTRAINED, THIS = "random", "untrained", "this run"
"""Players; other names are reference teams."""

SECONDS = 20.0
"""Approximate time budget of all episodes, in seconds."""

ALONE_SECONDS = 0.3
"""Share of this time that is added if each agent is also judged alone."""

LEVEL, ALONE_LEVEL = 0.95, 0.99
"""Levels of intervals: of the sum of returns, and of agents alone. The second judgment would double
the probability of a false "learns"; at this level it adds a fifth."""

FEW_UPDATES = 10
"""With fewer updates, a difference that is not significant does not show that a run fails."""


@dataclass(frozen=True)
class Score:
    """Returns of one player: the sum over the learning agents, mean over episodes."""

    player: str  # THIS, UNTRAINED, RANDOM, or a reference team
    mode: str  # "greedy" or "sampled"
    data: str  # "" or, for environments with held-out data, "training" or "held-out"
    mean: float
    error: float  # standard error of the mean
    agents: dict[str, float]  # mean return of each learning agent
    length: float  # mean steps of an episode
    episodes: int
    distinct: int  # number of different episodes; 1 if play and environment are deterministic
    illegal: int  # illegal actions of the learning agents


@dataclass(frozen=True)
class Lead:
    """Paired difference: this run's return minus another player's, in the same episodes."""

    over: str  # the other player
    mode: str  # of this run; the untrained policy plays in the same mode
    data: str
    of: str  # "team", or the name of a policy or an agent
    mean: float
    low: float | None  # interval at the level of the judgment; None with too few episodes
    high: float | None

    @property
    def better(self) -> bool:
        return self.low is not None and self.low > 0

    @property
    def worse(self) -> bool:
        return self.high is not None and self.high < 0


@dataclass(frozen=True)
class Learning:
    """Whether a run learns, with all played scores and their paired differences."""

    learns: bool
    updates: int  # in progress.csv
    scores: tuple[Score, ...]
    leads: tuple[Lead, ...]
    reference: str | None  # best reference team, on the first data
    seatwise: bool  # each learning agent played its own episodes against random play
    limit: int | None  # slow episodes were cut after this number of steps
    gaps: tuple[Gap, ...]  # greedy play far below sampled play
    optimum: dict[str, float] = field(default_factory=dict)
    """data -> mean of the best possible return of the same episodes, if it is known."""
    responses: dict[str, Responses] = field(default_factory=dict)
    """data -> exact returns of best responses and of random play, in small games."""
    agreement: tuple[float, float] | None = None
    """Of a run that clones: shares of the teacher's decisions, at the start and now."""
    rewards_differ: bool = False  # in some episode, the returns of two learning agents differ
    alone: tuple[Lead, ...] = ()
    """Leads with each agent alone among random players, played if the sum of returns is not better
    and rewards differ. If these are better, ``scores`` and ``leads`` are of the same episodes."""
    alone_limit: int | None = None  # slow episodes of agents alone were cut after these steps
    level: float = LEVEL  # of the intervals of ``leads``
    skipped: tuple[str, ...] = ()  # players that could not play, with the reason

    @property
    def described(self) -> str:
        """Describe the played episodes."""
        episodes = self.scores[0].episodes
        players = len({score.player for score in self.scores})
        data = f" of {' and '.join(self.data)} data" if self.data[0] else ""
        cut = f", cut after {self.limit:,} steps" if self.limit else ""
        text = f"{episodes} episodes{data} of {players} players, on the same seeds{cut}"
        if not self.alone:
            return text
        cut = f", cut after {self.alone_limit:,} steps" if self.alone_limit else ""
        return f"{text}; also each agent alone among random players{cut}"

    @property
    def too_early(self) -> bool:
        """Return True if the run does not learn, but had few updates and is not worse than its
        start."""
        leads = self.alone or self.leads
        over_start = [lead for lead in leads if lead.over == UNTRAINED and lead.of == "team"]
        worse = bool(over_start) and all(lead.worse for lead in over_start)
        return not self.learns and self.updates < FEW_UPDATES and not worse

    @property
    def hopeless(self) -> bool:
        """Return True if no policy earns more than random play against these opponents."""
        return bool(self.responses) and all(one.hopeless for one in self.responses.values())

    def lead(self, over: str, mode: str, data: str, of: str = "team") -> Lead | None:
        """Return one paired difference; None if it was not played."""
        wanted = over, mode, data, of
        return next((x for x in self.leads if (x.over, x.mode, x.data, x.of) == wanted), None)

    def score(self, player: str, mode: str, data: str) -> Score | None:
        """Return one score; None if it was not played."""
        wanted = player, mode, data
        return next((x for x in self.scores if (x.player, x.mode, x.data) == wanted), None)

    @property
    def data(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(score.data for score in self.scores))

    def learns_on(self, data: str) -> bool:
        """Return True if this run is better than random play and its start, or plays optimally.

        Greedy play decides only if sampled play, which training improves, is not worse than both.
        """
        sampled = [self.lead(over, "sampled", data) for over in OVER]
        if all(lead is not None and lead.worse for lead in sampled):
            return False
        return self.optimal_on(data) or any(
            all((lead := self.lead(over, mode, data)) and lead.better for over in OVER)
            for mode in ("greedy", "sampled")
        )

    def optimal_on(self, data: str) -> bool:
        """Return True if no return could be higher, and all play is better than random play.

        The untrained policy may be optimal, too: in small games, one greedy policy in a few is.
        """
        best = self.optimum.get(data)
        scores = [score for score in self.scores if (score.player, score.data) == (THIS, data)]
        leads = [self.lead(RANDOM, score.mode, data) for score in scores]
        return (
            best is not None
            and any(score.mean >= best - 1e-6 * max(1.0, abs(best)) for score in scores)
            and all(lead is not None and lead.better for lead in leads)
        )


OVER = (RANDOM, UNTRAINED)


def judge(
    run: Run,
    team: Mapping[str, PolicyLike],
    untrained: Mapping[str, PolicyLike],
    *,
    seed: int = 0,
    seconds: float = SECONDS,
) -> Learning:
    """Play the run's ``team``, its ``untrained`` policies, random play and reference teams.

    Environments that hold out data are played twice: on training and on held-out data. A play
    that raises for the untrained policies or a reference team is skipped.

    Raises the errors of playing ``team``.
    """
    together = _judge(run, team, untrained, seed, seconds)
    if together.learns or together.seatwise or not together.rewards_differ:
        return together
    alone = _judge(run, team, untrained, seed, ALONE_SECONDS * seconds, alone=True)
    return replace(alone if alone.learns else together, alone=alone.leads, alone_limit=alone.limit)


def _judge(
    run: Run,
    team: Mapping[str, PolicyLike],
    untrained: Mapping[str, PolicyLike],
    seed: int,
    seconds: float,
    *,
    alone: bool = False,
) -> Learning:
    """Judge a run by the sum of returns, or, with ``alone``, by each agent among random players."""
    config = run.config
    held = config.env_config.validation or config.env_config.held_out
    sources = {"training": config.env_config.rules(), "held-out": config.env_config.rules(**held)}
    if not held:
        sources = {"": sources["training"]}
    learners = tuple(config.learners) or tuple(sources[next(iter(sources))].agents)
    modes = ("greedy",) if greedy_alone(run) else ("greedy", "sampled")
    scores: list[Score] = []
    leads: list[Lead] = []
    gaps: list[Gap] = []
    optimum: dict[str, float] = {}
    responses: dict[str, Responses] = {}
    skipped: list[str] = []
    reference: str | None = None
    seatwise, limit, size = alone, None, None
    rewards_differ, level = False, ALONE_LEVEL if alone else LEVEL
    for data, rules in sources.items():
        opponents = {agent: team[agent] for agent in rules.agents if agent not in learners}
        table = Table(rules, learners, opponents, seed, seatwise=alone)
        teams = _References.of(rules, reference)
        if size is None:
            table.plan(team, seconds / len(sources), 2 * len(modes) + 1 + len(teams.names))
            seatwise, limit, size = table.seatwise, table.limit, table.size
        else:  # as on the first data
            table.seatwise, table.limit, table.size = seatwise, limit, size
            table.rules = rules if limit is None else with_limit(rules, limit)
        played: dict[tuple[str, str], Episodes] = {
            (THIS, mode): table.play(team, greedy=mode == "greedy") for mode in modes
        }
        played[RANDOM, "sampled"] = table.play(random_team(rules), greedy=False)
        try:
            for mode in modes:
                played[UNTRAINED, mode] = table.play(untrained, greedy=mode == "greedy")
        except Exception as error:  # a custom network may raise anything
            skipped.append(f"the untrained policy: {type(error).__name__}: {error}")
        reference, episodes = teams.best(table, skipped)
        if reference is not None and episodes is not None:
            played[reference, "greedy"] = episodes
        scores += [
            _score(player, mode, data, learners, episodes)
            for (player, mode), episodes in played.items()
        ]
        leads += _leads(played, data, learners, config.policies, level)
        rewards_differ |= any(episodes.differ for episodes in played.values())
        if (best := table.optimum()) is not None:
            optimum[data] = float(best.mean())
        if (exact := table.responses()) is not None:
            responses[data] = exact
        if len(modes) > 1 and run.deterministic:
            greedy, sampled = (played[THIS, mode].team for mode in modes)
            gap = gap_of(greedy, sampled, played[RANDOM, "sampled"].team)
            gaps += [] if gap is None else [gap]
    result = Learning(
        False,
        updates_of(run),
        tuple(scores),
        tuple(leads),
        reference,
        seatwise,
        limit,
        tuple(gaps),
        optimum,
        responses,
        rewards_differ=rewards_differ,
        level=level,
        skipped=tuple(dict.fromkeys(skipped)),
    )
    learns = any(result.learns_on(data) for data in sources)
    return replace(result, learns=learns)


def updates_of(run: Run) -> int:
    """Return the number of updates in progress.csv; 0 if it cannot be read."""
    try:
        return len(run.progress)
    except (CorralError, ValueError):
        return 0


def judge_clone(
    run: Run,
    team: Mapping[str, PolicyLike],
    untrained: Mapping[str, PolicyLike],
    *,
    seed: int = 0,
) -> Learning:
    """Judge a run that clones a teacher by its agreement with the teacher.

    It learns if both intervals of the agreement, of the run and of its start, do not overlap, or if
    it agrees in nearly all decisions. Raises the errors of ``agreement``.
    """
    rules = run.config.env_config.rules()
    learned = [agent for agent in team if agent not in run.config.opponents]
    ends = [
        agreement(
            {agent: policies[agent] for agent in learned},
            run.config.settings["teacher"],
            rules,
            episodes=CLONED,
            seed=seed,
        )
        for policies in (team, untrained)
    ]
    now, start = (end.rows[-1] for end in ends)
    low, high = now.interval.low, start.interval.high
    above = low is not None and high is not None and low > high
    return Learning(
        above or now.share >= ENOUGH,
        updates_of(run),
        (),
        (),
        None,
        False,
        None,
        (),
        agreement=(start.share, now.share),
    )


CLONED, ENOUGH = 16, 0.97
"""Episodes in which agreement is measured; agreement that shows success by itself."""


def _score(player: str, mode: str, data: str, learners: Sequence[str], episodes: Episodes) -> Score:
    team = episodes.team
    return Score(
        player,
        mode,
        data,
        float(team.mean()),
        float(team.std(ddof=1) / np.sqrt(len(team))),
        dict(zip(learners, episodes.returns.mean(axis=0).tolist(), strict=True)),
        float(episodes.lengths.mean()),
        len(team),
        episodes.distinct,
        episodes.illegal,
    )


def _leads(
    played: Mapping[tuple[str, str], Episodes],
    data: str,
    learners: Sequence[str],
    policies: Mapping[str, str],
    level: float,
) -> Iterator[Lead]:
    """Yield the paired differences of the team, of each policy and of each agent."""
    groups: dict[str, list[int]] = {"team": list(range(len(learners)))}
    names = dict.fromkeys(policies[agent] for agent in learners)
    if len(names) > 1:
        groups |= {
            name: [k for k, agent in enumerate(learners) if policies[agent] == name]
            for name in names
        }
    if len(learners) > 1:
        groups |= {agent: [k] for k, agent in enumerate(learners)}
    for (player, mode), episodes in played.items():
        if player == THIS:
            continue
        for this_mode in (mode,) if player == UNTRAINED else ("greedy", "sampled"):
            if (THIS, this_mode) not in played:
                continue
            difference = played[THIS, this_mode].returns - episodes.returns
            for name, columns in groups.items():
                values = difference[:, columns].sum(axis=1)
                low, high = difference_interval(values, np.ones(len(values)), level=level)
                yield Lead(player, this_mode, data, name, float(values.mean()), low, high)


@dataclass
class _References:
    """Reference teams of an environment; after the first data only the best one plays."""

    rules: Rules[Any]
    names: tuple[str, ...]

    @classmethod
    def of(cls, rules: Rules[Any], best: str | None) -> _References:
        names = tuple(name for name in team_names(rules) if name != "random")
        return cls(rules, names if best is None else (best,))

    def best(self, table: Table, skipped: list[str]) -> tuple[str | None, Episodes | None]:
        """Return the reference team with the highest return of the learning agents."""
        best: tuple[str | None, Episodes | None] = None, None
        highest = -np.inf
        for name in self.names:
            try:
                episodes = table.play(reference_team(name, self.rules), greedy=True)
            except (CorralError, ValueError) as error:  # this team does not fit these rules
                skipped.append(f"the reference team {name}: {error}")
                continue
            mean: Array = episodes.team.mean()
            if mean > highest + 1e-9:
                highest, best = float(mean), (name, episodes)
        return best
