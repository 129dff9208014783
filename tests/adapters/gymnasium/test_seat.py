"""One seat of any game as a gymnasium.Env."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium.utils.env_checker import check_env

from corral.adapters import SeatEnv, make_batch
from corral.envs import ENVIRONMENTS, PROBES, make_rules
from corral.envs.registry import registered_name
from corral.errors import (
    ActionError,
    CorralError,
    IllegalActionError,
    ResetNeededError,
)
from support.contract import plain
from support.messages import refused
from support.seat_games import GAMES, SHORT, first_legal, play
from support.steady_rules import SteadyRules
from support.turn_rules import PileRules

SEATS = [
    pytest.param(name, seat, id=f"{name}-{seat}")
    for name in [*ENVIRONMENTS, *PROBES]
    for seat in make_rules(name).agents
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seat"), SEATS)
# The checker samples without the mask, of which the environments rightly warn.
@pytest.mark.filterwarnings("ignore::corral.errors.IllegalActionWarning")
def test_gymnasium_finds_no_fault(name: str, seat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("PIL", "pygame"):
        pytest.importorskip(module, reason="the checker asks for pictures: needs the extra render")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gymnasium.make("corral/" + name.replace("_v", "-v"), seat=seat)
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
    with refused(ResetNeededError, "pile_v0", "reset()", "step()"):
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
    with refused(CorralError, "pile_v0", "agent_1", "1000 episodes", "seat"):
        env.reset(seed=0)


def test_actions_are_judged_before_anything_changes() -> None:
    env = SeatEnv(PileRules((2, 3), illegal="raise"), "agent_0")
    with refused(ResetNeededError, "pile_v0", "reset()", "step()"):
        env.step(0)
    with refused(ResetNeededError, "pile_v0", "reset()", "action_masks()"):
        env.action_masks()
    seen, _ = env.reset(seed=0)
    seen["action_mask"][:] = 1  # the caller's, and no concern of the environment
    before = pickle.dumps(env)
    for action, error in ((2, IllegalActionError), (3, ActionError), (0.5, ActionError)):
        with refused(error, "agent_0", action):
            env.step(action)
    assert pickle.dumps(env) == before
    assert env.step(1)[1:4] == (1.0, True, False)


def test_nested_observations_become_one_level() -> None:
    env = SeatEnv(SteadyRules(nested=True))
    seen, _ = env.reset(seed=0)
    names = {"observation_level_now", "observation_picture", "action_mask"}
    assert set(seen) == set(env.observation_space.spaces) == names
    assert seen["observation_picture"].shape == (2, 3)


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


@pytest.mark.slow  # learns
def test_maskable_ppo_learns_to_explore_beside_a_still_blocker() -> None:
    """3 x 3 fields, walls masked; 8 fields can be reached, and ``raise`` sees every mask lost."""
    kwargs = {"width": 3, "height": 3, "max_cycles": 10, "walls": "mask", "illegal": "raise"}
    env = SeatEnv("arena_v0", "agent_1", "random/still", observation="visited", **kwargs)
    untaught = mean_return(env, None)
    model = taught(env, 1536, learning_rate=0.003, n_epochs=5)
    assert mean_return(env, model) > untaught + 2.5


@pytest.mark.slow  # learns
def test_maskable_ppo_learns_a_turn_based_game() -> None:
    """Five stones, up to three each turn, against one who takes one: 1 first, then the rest."""
    rules = PileRules((5, 6), illegal="raise")
    env = SeatEnv(rules, "agent_0", first_legal)
    assert mean_return(env, None) < 0.9
    model = taught(env, 1024, learning_rate=0.005, n_epochs=5)
    assert mean_return(env, model, episodes=2) == 1.0


def test_ids_with_dashes_alone() -> None:
    for id in ("corral/two-step-v0", "corral/two_step-v0", "corral/probe-p01-v0"):
        assert gymnasium.make(id).reset(seed=0)
        assert registered_name(id) in ("two_step_v0", "probe_p01_v0")
    if hasattr(pettingzoo, "register"):  # 1.27 or newer
        assert pettingzoo.make("parallel", "corral/two-step-v0").possible_agents
