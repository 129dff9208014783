"""Teams in a replay: greedy and sampled, each agent its own policy, with scales of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.data import Trace
from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import Baseline, baseline_team
from corral.envs.policy import Decision
from corral.errors import ActionError, ScaleError
from corral.loads.replay import Score, replay
from corral.loads.text import describe
from corral.trainers.evaluation.players import Player
from support.messages import refused, shown

HARD: dict[str, Any] = {"second_offer": False, "forward_cost": 0.2, "queue": 3, "window": 20}


def random_trace(steps: int = 70, nodes: int = 3, largest: int = 20) -> Trace:
    rng = np.random.default_rng(0)
    return Trace(
        nodes=tuple(f"n{i}" for i in range(nodes)),
        arrivals=rng.integers(0, largest + 1, (steps, nodes)),
        capacity=rng.integers(0, largest + 1, (steps, nodes)),
        times=np.arange(steps),
    )


class Noisy:
    """A heuristic that draws three actions of ten at random, unless it plays greedily."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, state: Any, rng: Any, deterministic: bool = False) -> Decision:
        chosen = self.inner.act(observation)
        if deterministic:
            return chosen
        legal = observation["action_mask"].sum(axis=1, dtype=np.int64)
        noise = rng.random(len(legal)) < 0.3
        return Decision(np.where(noise, rng.integers(legal), chosen.action))


class Fixed:
    """Always the same action."""

    def __init__(self, action: int) -> None:
        self.action = action

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
        return Decision(np.full(len(observation["action_mask"]), self.action))


def figures(score: Score) -> dict[str, Any]:
    """A score without its names."""
    return {key: value for key, value in vars(score).items() if key not in ("policy", "mode")}


def scores_of(trace: Trace, policies: Any, **settings: Any) -> dict[str, Score]:
    result = replay(trace, policies, optimum_windows=0, **settings)
    return {score.policy: score for score in result.scores}


def test_a_heuristic_in_a_teams_clothes_plays_as_the_heuristic() -> None:
    trace = random_trace()
    team = baseline_team("margin", DfaasRules(trace, queue=3))
    noisy = {agent: Noisy(policy) for agent, policy in team.items()}
    scores = scores_of(
        trace,
        {
            "pair": "margin/spare",
            "team": team,
            "player": Player(team),
            "greedy": Player(noisy),
            "sampled": Player(noisy, deterministic=False),
        },
        route="spare",
        **HARD,
    )
    for label in ("team", "player", "greedy"):
        assert figures(scores[label]) == figures(scores["pair"])
    assert scores["sampled"].cost > scores["pair"].cost
    assert {label: score.mode for label, score in scores.items()} == {
        "pair": "",
        "team": "greedy",
        "player": "greedy",
        "greedy": "greedy",
        "sampled": "sampled",
    }


def test_sampled_play_repeats_with_its_seed() -> None:
    trace = random_trace()
    team = dict.fromkeys(DfaasRules(trace).agents, Noisy(Baseline("overflow", DfaasRules(trace))))
    player = {"noisy": Player(team, deterministic=False)}
    first, same, other = (scores_of(trace, player, seed=seed, **HARD) for seed in (1, 1, 2))
    assert first == same
    assert first["noisy"].forwarded != other["noisy"].forwarded


def test_each_agent_draws_from_a_stream_of_its_own() -> None:
    drawn: dict[str, list[float]] = {f"node_{i}": [] for i in range(3)}

    class Draws(Fixed):
        def __init__(self, agent: str) -> None:
            super().__init__(0)
            self.agent = agent

        def act(self, observation: Any, state: Any, rng: Any, **unused: Any) -> Decision:  # type: ignore[override]
            drawn[self.agent].append(rng.random())
            return super().act(observation)

    team = {agent: Draws(agent) for agent in drawn}
    replay(random_trace(30), {"team": Player(team, False)}, window=20, seed=6)
    for i, agent in enumerate(drawn):
        windows, rest = generator(6, "policy", i), generator(7, "policy", i)
        assert drawn[agent] == [windows.random() for _ in range(20)] + [
            rest.random() for _ in range(10)
        ]


def test_every_agent_is_played_by_its_own_policy() -> None:
    trace = random_trace()
    team = {f"node_{i}": Fixed(0) for i in range(3)}
    team["node_1"] = Baseline("overflow", DfaasRules(trace))  # type: ignore[assignment]
    result = replay(trace, {"team": team}, window=20)
    forwarded = result.series["team"].counts["forwarded"]
    overflow = np.maximum(0, trace.arrivals - trace.capacity)[:, 1]  # type: ignore[operator]
    np.testing.assert_array_equal(forwarded[:, 1], overflow)
    assert forwarded[:, [0, 2]].sum() == 0


def test_memory_is_carried_from_step_to_step_and_no_further() -> None:
    class Third(Fixed):
        """Forwards one request in every third step of a window."""

        def initial_state(self, num_envs: int) -> Any:
            return np.zeros(num_envs, dtype=int)

        def act(self, observation: Any, state: Any, *unused: Any, **also: Any) -> Decision:
            return Decision((state % 3 == 2).astype(int), state + 1)

    arrivals = np.full((50, 2), 5)
    trace = Trace(nodes=("a", "b"), arrivals=arrivals, capacity=arrivals, times=np.arange(50))
    result = replay(trace, {"third": Third(0)}, window=20)
    expected = [float(t % 20 % 3 == 2) for t in range(50)]
    assert result.series["third"].counts["forwarded"][:, 0].tolist() == expected


# --- What belongs to a team ----------------------------------------------------------------------


def test_a_team_keeps_its_route() -> None:
    trace = random_trace()
    team = baseline_team("overflow", DfaasRules(trace))
    routed = Player(team, settings={"route": "shortest"})
    scores = scores_of(
        trace,
        {"pair": "overflow/shortest", "routed": routed, "plain": team},
        second_offer=False,
        window=20,
    )
    assert figures(scores["routed"]) == figures(scores["pair"])
    assert scores["plain"].lost != scores["pair"].lost


def test_a_team_keeps_its_scales_and_its_returns_stay_comparable() -> None:
    trace = random_trace()
    own = {"load_scale": 64.0, "capacity_scale": 35.0}
    seen: list[Any] = []

    class Watching(Baseline):
        def act(self, observation: Any, *rest: Any, **more: Any) -> Decision:
            seen.append(observation)
            return super().act(observation, *rest, **more)

    player = Player(
        dict.fromkeys(DfaasRules(trace).agents, Watching("overflow", DfaasRules(trace, **own))),
        settings=own,
    )
    scores = scores_of(trace, {"team": player, "pair": "overflow/equal"}, window=10)
    assert seen[0]["action_mask"].shape[1] == 65
    assert seen[0]["observation"][0, 0] == np.float32(trace.arrivals[0, 0] / 64)
    team, pair = scores["team"], scores["pair"]
    assert team.served == pair.served
    assert team.return_team == pytest.approx(pair.return_team, rel=1e-6)
    assert team.low == pytest.approx(pair.low, rel=1e-6)


def test_a_trace_beyond_a_teams_scales_names_the_team() -> None:
    player = Player(
        dict.fromkeys(("node_0", "node_1", "node_2"), Fixed(0)), True, {"load_scale": 9}
    )
    with refused(ScaleError, "policy mine", "load_scale=9", "load_scale=20"):
        replay(random_trace(), {"local": "local", "mine": player})


@pytest.mark.parametrize("wrap", [dict, Player])
def test_a_team_of_another_size_is_named_with_the_trace(wrap: Any) -> None:
    team = wrap({f"node_{i}": Fixed(0) for i in range(5)})
    with refused(ValueError, "policy mine, trace trace", "5 agents", "3 (node_0, node_1, node_2)"):
        replay(random_trace(), {"mine": team})


def test_what_belongs_to_the_replay_is_refused_in_a_team() -> None:
    player = Player(
        {f"node_{i}": Fixed(0) for i in range(3)}, settings={"queue": 5, "route": "two"}
    )
    with refused(
        ValueError, "policy mine", "['queue']", "amount, arrivals, beyond, capacity_scale"
    ):
        replay(random_trace(), {"mine": player})


def test_the_optimums_name_is_taken() -> None:
    with refused(ValueError, "'optimum'"):
        replay(random_trace(), {"optimum": "local"})


# --- What is said --------------------------------------------------------------------------------


def test_illegal_actions_are_counted_and_said() -> None:
    trace = random_trace(50)
    result = replay(trace, {"wild": Fixed(15), "local": "local"}, window=20)
    illegal = int((trace.arrivals < 15).sum())
    assert 0 < illegal < trace.arrivals.size
    assert result.scores[0].illegal_actions + result.scores[1].illegal_actions == illegal
    (line,) = (line for line in describe(result) if "llegal" in line)
    shown(line, f"wild {illegal}")
    assert "llegal" not in " ".join(describe(replay(trace, ["local"])))


@pytest.mark.parametrize("action", [21, -1])
def test_malformed_actions_name_policy_and_node(action: int) -> None:
    trace = random_trace()
    assert trace.arrivals.max() == 20
    with refused(ActionError, "policy mine", "node_0", f"action {action}", "0..20"):
        replay(trace, {"mine": Fixed(action)})


def test_the_description_tells_what_is_particular_about_teams() -> None:
    trace = random_trace()
    own: dict[str, Any] = {"max_level": 5, "neighbours": {"node_0": ["node_1"]}}
    team = {f"node_{i}": Fixed(0) for i in range(3)}
    result = replay(
        trace, {"mine": Player(team, False, own), "yours": team, "his": Fixed(0), "local": "local"}
    )
    text = "\n".join(describe(result))
    shown(text, "Greedy", "sampled")
    shown(text, "max_level 5", "neighbours {'node_0': ['node_1']}")
    shown(text, "4 requests", "local")
    shown(text, "mine", "links")
    assert result.teams["mine"].unit == 4
    assert set(result.teams) == {"mine", "yours", "his"}


def test_what_levels_cost_is_what_the_best_reference_loses_on_them() -> None:
    trace = random_trace(nodes=4, largest=200)
    game: dict[str, Any] = {"forward_cost": 0.1, "second_offer": False}
    grids: list[dict[str, Any]] = [{"max_level": 7}, {"amount": [0, 5, 50, 200]}, {}]
    teams = {
        f"team {k}": Player(dict.fromkeys((f"node_{i}" for i in range(4)), Fixed(0)), settings=grid)
        for k, grid in enumerate(grids)
    }
    result = replay(trace, {"a": "local", "b": "overflow/capacity", **teams}, window=20, **game)
    best = min(result.scores[:2], key=lambda score: score.cost)
    assert best.policy == "b"
    for k, grid in enumerate(grids[:2]):
        rules = DfaasRules(trace, route="capacity", max_cycles=20, start=0, **grid, **game)
        team = baseline_team("overflow", rules)
        alone = replay(
            trace,
            {"on levels": Player(team, settings={"route": "capacity", **grid})},
            window=20,
            **game,
        )
        label, in_requests, on_levels = result.teams[f"team {k}"].on_levels
        assert (label, in_requests) == ("b", best.cost)
        assert on_levels == pytest.approx(alone.scores[0].cost)
        assert on_levels > in_requests
        shown("\n".join(describe(result)), f"{100 * on_levels:.2f} %")
    assert result.teams["team 2"].on_levels is not None  # 200 requests in 100 levels
    assert result.teams["team 2"].unit == 2


def test_the_optimum_is_that_of_the_replays_network() -> None:
    """Whatever links the last team of the list has: here none, so that nothing is forwarded."""
    trace = random_trace()
    alone = Player({f"node_{i}": Fixed(0) for i in range(3)}, settings={"neighbours": {}})
    result = replay(trace, {"pair": "overflow/equal", "alone": alone}, window=20)
    shares = {score.policy: score.share_of_optimum for score in result.scores}
    assert shares["pair"] == pytest.approx(1.0)
    assert shares["alone"] < 0.95  # type: ignore[operator]
