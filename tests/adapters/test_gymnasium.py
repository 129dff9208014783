"""One seat of any game as a gymnasium.Env, and Batch as a gymnasium VectorEnv."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from corral.adapters import BatchVectorEnv, SeatEnv, make_batch
from corral.envs import ENVIRONMENTS, PROBES, make_rules
from corral.envs.arena_v0 import ArenaRules
from corral.envs.arena_v0.baselines import Still
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.teams import reference_team, team_names
from corral.errors import (
    ActionError,
    CorralError,
    IllegalActionError,
    ResetNeededError,
    UnknownNameError,
    UnsupportedSpaceError,
)
from support.contract import plain
from support.loads import small_trace
from support.steady_rules import SteadyRules
from support.turn_rules import MortalRules, PileRules

ARENA: dict[str, Any] = {"width": 3, "height": 2, "max_cycles": 9, "walls": "mask"}
LOAD: dict[str, Any] = {"trace": small_trace(), "max_cycles": 8, "queue": 3}
SHORT = {"dfaas_v0": LOAD, "arena_v0": ARENA}

GAMES: dict[str, Any] = {
    "arena": functools.partial(ArenaRules, **ARENA, illegal="raise"),
    "dfaas": functools.partial(DfaasRules, **LOAD, illegal="raise"),
    "nested": functools.partial(SteadyRules, nested=True),
    "piles": functools.partial(PileRules, gift=0.25, illegal="raise"),
    "piles, one leaves": functools.partial(PileRules, last_move=1, illegal="raise"),
    "mortal": functools.partial(MortalRules, (3, 3), max_cycles=5, illegal="raise"),
}


def first_legal(observation: dict[str, Any]) -> int:
    return int(observation["action_mask"].argmax())


def play(env: SeatEnv, seed: int | None, chooser: np.random.Generator) -> list[Any]:
    """One episode of random legal actions: all that the learner sees of it."""
    seen, info = env.reset(seed=seed)
    record, over = [(plain(seen), info)], False
    while not over:
        legal = np.flatnonzero(env.action_masks())
        assert legal.tolist() == np.flatnonzero(seen["action_mask"]).tolist()
        seen, reward, terminated, truncated, info = env.step(chooser.choice(legal))
        assert env.observation_space.contains(seen)
        over = terminated or truncated
        assert not (terminated and truncated)
        record.append((plain(seen), reward, terminated, truncated, info))
    return record


# --- One seat ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["arena_v0", "two_step_v0", "dfaas_v0", "probe_p06_v0", "probe_p12_v0"]
)
# The checker samples without the mask, of which the environments rightly warn.
@pytest.mark.filterwarnings("ignore::corral.errors.IllegalActionWarning")
def test_gymnasium_finds_no_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("PIL", "pygame"):
        pytest.importorskip(module, reason="the checker asks for pictures: needs the extra render")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    kwargs = SHORT.get(name, {})
    env = gymnasium.make("corral/" + name.replace("_v", "-v"), **kwargs)
    assert isinstance(env.unwrapped, SeatEnv)
    check_env(env.unwrapped)
    seen, _ = env.reset(seed=0)  # through gymnasium's own wrappers
    assert env.get_wrapper_attr("action_masks")().tolist() == seen["action_mask"].tolist()
    env.close()


@pytest.mark.parametrize("name", [*ENVIRONMENTS, *PROBES])
def test_every_seat_of_every_environment_plays_legally(name: str) -> None:
    rules = make_rules(name, **SHORT.get(name, {}), illegal="raise")
    for seat in rules.agents:
        env, chooser = SeatEnv(rules, seat), np.random.default_rng(0)
        for episode in range(3):
            record = play(env, episode, chooser)
            assert all(set(step[-1]) == set(record[0][-1]) for step in record)
            paid = sum(step[1] for step in record[1:])
            before = record[0][-1]["episode_return"]
            assert record[-1][-1]["episode_return"] == pytest.approx(before + paid)


@pytest.mark.parametrize("game", GAMES)
def test_the_same_seed_plays_the_same(game: str) -> None:
    def episodes(seed: int, env: SeatEnv) -> list[Any]:
        chooser = np.random.default_rng(1)
        return [play(env, seed, chooser), play(env, None, chooser), play(env, None, chooser)]

    env = SeatEnv(GAMES[game]())
    first = episodes(0, env)
    play(env, 7, np.random.default_rng(3))
    assert episodes(0, env) == first == episodes(0, SeatEnv(GAMES[game]()))
    if game != "nested":  # steady, whatever the seed
        assert episodes(1, env) != first
    twin = pickle.loads(pickle.dumps(env))
    assert play(twin, None, np.random.default_rng(5)) == play(env, None, np.random.default_rng(5))


@pytest.mark.parametrize("game", ["arena", "dfaas"])
def test_a_seat_plays_the_episodes_of_the_batch(game: str) -> None:
    """Row 0 of a Batch in which the others choose alike, bit for bit, episode after episode."""
    rules, agent = GAMES[game](), 1
    env = SeatEnv(rules, rules.agents[agent], first_legal)
    batch, rng = make_batch(GAMES[game](), num_envs=1, seed=5), np.random.default_rng(0)
    shown, _ = env.reset(seed=5)
    observations = batch.reset()
    ends = 0
    for _ in range(30):
        if ends and env._over:
            shown, info = env.reset()
            assert set(info.values()) == {0}
        seen = observations[rules.agents[agent]]
        assert plain(shown) == plain({key: value[0] for key, value in seen.items()})
        masks = [observations[a]["action_mask"][0] for a in rules.agents]
        joint = [first_legal({"action_mask": mask}) for mask in masks]
        joint[agent] = int(rng.choice(np.flatnonzero(seen["action_mask"][0])))
        step = batch.step(np.array([joint]))
        shown, reward, terminated, truncated, info = env.step(joint[agent])
        assert reward == step.reward[0, agent]
        ended = (step.terminated[0, agent], step.truncated[0, agent])
        assert (terminated, truncated) == ended
        told = {key: values[0, agent] for key, values in step.info.items()}
        assert {key: info[key] for key in told} == told
        if step.finished is not None:
            ends += 1
            last = step.finished.observations[rules.agents[agent]]
            assert plain(shown) == plain({key: value[0] for key, value in last.items()})
            assert info["episode_return"] == pytest.approx(step.finished.returns[0, agent])
        observations = step.observations
    assert ends == 30 // rules.max_cycles


def test_what_is_paid_between_two_decisions_is_summed() -> None:
    """Five stones, one taken at a time, 0.25 to whoever waits: worked out by hand."""
    env = SeatEnv(PileRules((5, 6), gift=0.25), "agent_0", first_legal)
    _, info = env.reset(seed=0)
    assert info == {"moves": 0, "illegal_actions": 0, "episode_return": 0.0}
    _, reward, *ends, info = env.step(0)  # 5 -> 4 by us, 4 -> 3 by the other
    assert (reward, ends, info["episode_return"]) == (0.25, [False, False], 0.25)
    _, reward, *ends, _ = env.step(0)
    assert (reward, ends) == (0.25, [False, False])
    seen, reward, *ends, info = env.step(0)  # the last stone
    assert (reward, ends, info["episode_return"]) == (1.0, [True, False], 1.5)
    assert not seen["action_mask"].any()
    with pytest.raises(ResetNeededError, match="call reset"):
        env.step(0)


def test_what_is_paid_before_the_first_decision_is_in_the_return_alone() -> None:
    env = SeatEnv("probe_p13_v0", "agent_1")
    _, info = env.reset(seed=0)
    assert info["episode_return"] == 0.5
    _, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated, info["episode_return"]) == (1.0, True, False, 1.5)


@pytest.mark.parametrize("replies", [1, 2])
@pytest.mark.parametrize("action", [0, 1])
def test_the_reply_pays_the_move_that_it_answers(replies: int, action: int) -> None:
    env = SeatEnv("probe_p12_v0", "agent_0", replies=replies)
    env.reset(seed=0)
    _, reward, terminated, truncated, _ = env.step(action)
    assert (reward, terminated, truncated) == (2 * action - 1, True, False)


def test_an_episode_ends_with_the_seats_own() -> None:
    """agent_1 may make one move, agent_0 goes on; and a time limit cuts."""
    env = SeatEnv(PileRules((9, 10), last_move=1), "agent_1", first_legal)
    env.reset(seed=0)
    _, _, terminated, truncated, _ = env.step(0)
    assert (terminated, truncated) == (True, False)
    env = SeatEnv(PileRules((9, 10), max_cycles=3), "agent_0", first_legal)
    env.reset(seed=0)
    assert env.step(0)[2:4] == (False, False)
    assert env.step(0)[2:4] == (False, True)  # the third move is ours, and the last


def test_episodes_in_which_a_seat_decides_nothing_are_played_through() -> None:
    """Of one or two stones agent_0 takes one: agent_1 has a move where there were two."""
    env = SeatEnv(PileRules((1, 3)), "agent_1", first_legal)
    for episode in range(20):
        seen, _ = env.reset(seed=episode)
        assert seen["action_mask"].tolist() == [1, 0, 0]
    env = SeatEnv(PileRules((1, 2)), "agent_1", first_legal)
    with pytest.raises(CorralError, match="agent_1 had nothing to decide in 1000 episodes"):
        env.reset(seed=0)


def test_actions_are_judged_before_anything_changes() -> None:
    env = SeatEnv(PileRules((2, 3), illegal="raise"), "agent_0")
    with pytest.raises(ResetNeededError, match="call reset"):
        env.step(0)
    with pytest.raises(ResetNeededError, match="call reset"):
        env.action_masks()
    seen, _ = env.reset(seed=0)
    seen["action_mask"][:] = 1  # the caller's, and no concern of the environment
    before = pickle.dumps(env)
    for action, error in ((2, IllegalActionError), (3, ActionError), (0.5, ActionError)):
        with pytest.raises(error, match="agent_0: action"):
            env.step(action)
    assert pickle.dumps(env) == before
    assert env.step(1)[1:4] == (1.0, True, False)


def test_nested_observations_become_one_level() -> None:
    env = SeatEnv(SteadyRules(nested=True))
    seen, _ = env.reset(seed=0)
    names = {"observation_level_now", "observation_picture", "action_mask"}
    assert set(seen) == set(env.observation_space.spaces) == names
    assert seen["observation_picture"].shape == (2, 3)


# --- Opponents -----------------------------------------------------------------------------------


def test_opponents_are_named_given_or_drawn() -> None:
    rules = GAMES["arena"]()
    named = SeatEnv(rules, opponents="nearest/still")
    given = SeatEnv(rules, opponents={"agent_1": first_legal, "agent_2": Still(rules)})
    shared = SeatEnv(rules, opponents=Still(rules))
    plays = [play(env, 0, np.random.default_rng(0)) for env in (named, given, shared)]
    assert plays[0] == plays[1] == plays[2]
    drawn = play(SeatEnv(rules), 0, np.random.default_rng(0))
    assert drawn == play(SeatEnv(rules, opponents="random"), 0, np.random.default_rng(0))
    assert drawn != plays[0]


def test_opponents_remember_within_an_episode_and_not_beyond() -> None:
    """The nearest explorer must know where it has been; its next episode is as its first."""
    env = SeatEnv(ArenaRules(3, 3, max_cycles=8), "agent_2", "nearest/still")
    fields = []
    for _ in range(2):
        env.reset(seed=0)
        found = [env.step(1)[0]["observation"] for _ in range(8)]  # bumps into its wall
        fields.append([int(seen[9:].argmax()) for seen in found])  # where the explorer went
    assert fields[0] == fields[1]
    assert len(set(fields[0])) >= 7


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"env": "arena_v1"}, UnknownNameError, "did you mean 'arena_v0'"),
        ({"seat": "agent_3"}, UnknownNameError, "no agent of arena_v0 named 'agent_3'; did you"),
        ({"opponents": {}}, ValueError, "no policy for agent_2 of arena_v0; give one"),
        ({"opponents": {"agent": first_legal}}, UnknownNameError, "named 'agent'"),
        ({"opponents": "nearest/stil"}, UnknownNameError, "did you mean 'nearest/still'"),
        ({"render_mode": "rgb"}, ValueError, "render_mode='rgb': give one of 'human'"),
        ({"env": ArenaRules(), "width": 3}, ValueError, "need an environment's name, not rules"),
    ],
)
def test_wrong_arguments_are_named(
    kwargs: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        SeatEnv(**{"env": "arena_v0", **kwargs})


def test_an_opponents_action_is_checked() -> None:
    env = SeatEnv("arena_v0", opponents=lambda observation: 4)
    env.reset(seed=0)
    with pytest.raises(ActionError, match="agent_2: the policy's action 4 is out of range"):
        env.step(0)


def test_reference_teams_have_names() -> None:
    rules = make_rules("dfaas_v0", **LOAD, route="two")
    assert set(reference_team("overflow/two", rules)) == set(rules.agents)
    assert set(reference_team("overflow", rules)) == set(rules.agents)
    with pytest.raises(ValueError, match="made with route='two'; make it with route='equal'"):
        reference_team("overflow/equal", rules)
    for name in (*ENVIRONMENTS, "probe_p01_v0"):
        for team in team_names(made := make_rules(name)):
            assert set(reference_team(team, made)) == set(made.agents)
        with pytest.raises(UnknownNameError, match="random"):
            reference_team("nobody", made)


# --- Many columns --------------------------------------------------------------------------------


@pytest.mark.parametrize("game", ["arena", "dfaas", "nested"])
def test_columns_play_the_batch(game: str) -> None:
    n = len(GAMES[game]().agents)
    envs = BatchVectorEnv(GAMES[game](), 4 * n)
    batch = make_batch(GAMES[game](), num_envs=4, seed=3)
    shown, infos = envs.reset(seed=3)
    observations, rng, ends = batch.reset(), np.random.default_rng(0), 0
    for _ in range(20):
        assert envs.observation_space.contains(shown)
        assert plain(shown) == plain(envs.layout.columns(observations))
        assert plain(shown["agent"]) == plain(np.tile(np.eye(n, dtype=np.float32), (4, 1)))
        assert plain(envs.action_masks()) == plain(shown["action_mask"].astype(bool))
        actions = batch.sample_actions(rng)
        step = batch.step(actions)
        shown["action_mask"][...] = 0  # the caller's
        shown, reward, terminated, truncated, infos = envs.step(actions.reshape(-1))
        for one, other in (
            (reward, step.reward),
            (terminated, step.terminated),
            (truncated, step.truncated),
        ):
            assert plain(one) == plain(other.reshape(-1))
        told = infos if step.finished is None else infos["final_info"]
        for key, values in step.info.items():
            assert told[key].tolist() == values.reshape(-1).tolist()
            assert told[f"_{key}"].all()
        if step.finished is not None:  # all copies end together
            ends += 1
            last = envs.layout.columns(step.finished.observations)
            for column, seen in enumerate(infos["final_obs"]):
                assert plain(seen) == plain({key: values[column] for key, values in last.items()})
            assert infos["_final_obs"].all()
            assert all(not infos[key].any() for key in step.info)  # new episodes
        observations = step.observations
    assert ends >= 2
    mode = envs.metadata["autoreset_mode"]
    assert getattr(mode, "value", mode) == "SameStep"  # gymnasium has the enumeration from 1.1 on


@pytest.mark.skipif(
    not hasattr(gymnasium.vector, "AutoresetMode"), reason="gymnasium 1.0 knows one mode only"
)
def test_a_seat_of_many_copies_plays_like_gymnasiums_own_vector_of_seats() -> None:
    """two_step_v0 knows no chance: everything must be the same, infos too."""
    kwargs = {"seat": "agent_1", "opponents": lambda seen: int(seen["observation"].argmax() % 2)}
    ours = BatchVectorEnv("two_step_v0", 3, **kwargs)
    theirs = gymnasium.vector.SyncVectorEnv(
        [lambda: SeatEnv("two_step_v0", **kwargs)] * 3,
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    rng = np.random.default_rng(0)
    ours_seen, theirs_seen = ours.reset(seed=0), theirs.reset(seed=0)
    for _ in range(9):
        _require_alike(ours_seen, theirs_seen)
        actions = rng.integers(2, size=3)
        ours_seen, theirs_seen = ours.step(actions), theirs.step(actions)
    _require_alike(ours_seen, theirs_seen)
    assert "final_obs" not in ours_seen[4]  # nine steps of games of two


def _require_alike(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    *one, infos = ours
    *other, told = theirs
    for mine, its in zip(one, other, strict=True):
        if isinstance(mine, dict):
            assert plain(mine) == plain(its)
        else:
            assert mine.tolist() == pytest.approx(its.tolist())
    told = dict(told)
    for key in ("episode_return", "_episode_return"):  # SeatEnv's alone
        told.pop(key, None)
    assert set(infos) == set(told)
    for key, values in infos.items():
        if key == "final_obs":
            assert [plain(seen) for seen in values] == [plain(seen) for seen in told[key]]
        elif key == "final_info":
            assert set(values) <= set(told[key])
            for name, numbers in values.items():
                assert numbers.tolist() == told[key][name].tolist()
        else:
            assert values.tolist() == told[key].tolist()


def test_copies_end_at_their_own_time() -> None:
    """Copies whose agents live for 1 to 6 steps: final values where one ended, and only there."""

    class Together(MortalRules):
        def start(self, rngs: Any) -> Any:
            state = super().start(rngs)
            state.lives[:, 1] = state.lives[:, 0]
            return state

    envs = BatchVectorEnv(Together((3, 3), illegal="raise"), 10)
    shown, _ = envs.reset(seed=0)
    some = 0
    for _ in range(30):
        actions = shown["action_mask"].argmax(axis=1)
        shown, _, terminated, truncated, infos = envs.step(actions)
        assert not truncated.any()
        assert infos.get("_final_obs", np.zeros(10, bool)).tolist() == terminated.tolist()
        if 0 < terminated.sum() < 10:
            some += 1
            for column, ended in enumerate(terminated):
                assert (infos["final_obs"][column] is not None) == ended
                assert infos["final_info"]["_t"][column] == ended
                assert (infos["final_info"]["t"][column] > 0) == ended
                assert (infos["t"][column] == 0) == ended
        assert (shown["observation"][terminated, 0] == 0).all()
        assert shown["action_mask"].any(axis=1).all()
    assert some > 5


def test_games_that_are_no_columns_are_refused_with_the_way_out() -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"turn-based.*corral\.adapters\.SeatEnv"):
        BatchVectorEnv(PileRules(), 4)
    with pytest.raises(UnsupportedSpaceError, match=r"columns are alike.*SeatEnv"):
        BatchVectorEnv("probe_p11_v0", 4)
    envs = BatchVectorEnv(MortalRules((2, 2), lives=(1, 3)), 4)
    envs.reset(seed=0)
    with pytest.raises(UnsupportedSpaceError, match=r"agent_0 ended before the others.*SeatEnv"):
        envs.step(np.zeros(4, dtype=int))


def test_turn_based_games_are_refused_by_stable_baselines3s_columns_with_the_way_out() -> None:
    pytest.importorskip("supersuit", reason="needs the extra sb3")
    from corral.adapters import make_vec_env

    for env, kind in (("probe_p12_v0", "turn-based"), ("probe_p11_v0", "columns are alike")):
        with pytest.raises(UnsupportedSpaceError, match=rf"{kind}.*corral\.adapters\.SeatEnv"):
            make_vec_env(env)


def test_wrong_columns_and_actions_are_named() -> None:
    with pytest.raises(ValueError, match=r"num_envs=3: the 2 agents .* give a multiple of 2"):
        BatchVectorEnv("arena_v0", 3)
    with pytest.raises(ValueError, match="who is the learner"):
        BatchVectorEnv("arena_v0", 2, opponents="random")
    envs = BatchVectorEnv("arena_v0", 2)
    with pytest.raises(ResetNeededError, match="call reset"):
        envs.step(np.zeros(2, dtype=int))
    envs.reset(seed=0)
    for actions in (np.zeros(3, dtype=int), np.zeros(2), np.zeros((2, 1), dtype=int)):
        with pytest.raises(ActionError, match=r"give integers of shape \(2,\)"):
            envs.step(actions)
    with pytest.raises(ActionError, match="copy 0, agent_2: action 4 is out of range"):
        envs.step(np.array([0, 4]))


def test_gymnasium_makes_them_by_name() -> None:
    envs = gymnasium.make_vec("corral/arena-v0", num_envs=6, width=4)
    assert isinstance(envs, BatchVectorEnv)
    assert envs.reset(seed=0)[0]["observation"].shape == (6, 80)
    envs.close()
    env = gymnasium.make("corral/arena-v0", seat="agent_2", opponents="nearest/still")
    env.reset(seed=0)
    env.step(1)
    env.close()


# --- Learning ------------------------------------------------------------------------------------


def taught(env: SeatEnv, steps: int, **settings: Any) -> Any:
    contrib = pytest.importorskip("sb3_contrib", reason="needs the extra sb3")
    kwargs = {"n_steps": 256, "batch_size": 64, "seed": 0, "device": "cpu", **settings}
    return contrib.MaskablePPO("MultiInputPolicy", env, **kwargs).learn(steps)


def mean_return(env: SeatEnv, model: Any, episodes: int = 20) -> float:
    total = 0.0
    for episode in range(episodes):
        seen, _ = env.reset(seed=1000 + episode)
        over = False
        while not over:
            masks = env.action_masks()
            if model is None:
                action = np.random.default_rng(episode).choice(np.flatnonzero(masks))
            else:
                action, _ = model.predict(seen, action_masks=masks, deterministic=True)
            seen, reward, terminated, truncated, _ = env.step(action)
            total += reward
            over = terminated or truncated
    return total / episodes


def test_maskable_ppo_learns_to_explore_beside_a_still_blocker() -> None:
    """3 x 3 fields, walls masked; 8 fields can be reached, and ``raise`` sees every mask lost."""
    kwargs = {"width": 3, "height": 3, "max_cycles": 10, "walls": "mask", "illegal": "raise"}
    env = SeatEnv("arena_v0", "agent_1", "random/still", observation="visited", **kwargs)
    untaught = mean_return(env, None)
    model = taught(env, 1536, learning_rate=0.003, n_epochs=5)
    assert mean_return(env, model) > untaught + 2.5


def test_maskable_ppo_learns_a_turn_based_game() -> None:
    """Five stones, up to three each turn, against one who takes one: 1 first, then the rest."""
    rules = PileRules((5, 6), illegal="raise")
    env = SeatEnv(rules, "agent_0", first_legal)
    assert mean_return(env, None) < 0.9
    model = taught(env, 1024, learning_rate=0.005, n_epochs=5)
    assert mean_return(env, model, episodes=2) == 1.0
