"""What the critics of MAPPO and IPPO see, and what they know by it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch", reason="needs the extra mappo")


from corral.algorithms import Advantages, Trajectories, gae, ippo
from corral.envs.batch import Batch
from corral.envs.core import agent_views
from corral.trainers.on_policy.trainer import IPPO, MAPPO, trainer_of
from support.mappo_teams import CRITICS, make, separate
from support.steady_rules import SteadyRules
from support.turn_rules import PileRules

# --- Critics -------------------------------------------------------------------------------------


class SignRules(SteadyRules):
    """One step; both are paid the sign that agent_1 alone sees. Fields of the state are rows."""

    name = "sign_v0"

    def __init__(self) -> None:
        super().__init__(1)

    def start(self, rngs: Any) -> Any:
        state = super().start(rngs)
        state.pay[...] = np.array([rng.choice([-1.0, 1.0]) for rng in rngs])[:, None]
        return state

    def observation_space(self, agent: str) -> spaces.Dict:
        seen = spaces.Box(-1, 1, (1,), np.float32)
        return spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (3,), np.int8)})

    def observe(self, state: Any) -> Any:
        shown = state.pay[..., None] * np.array([[0.0], [1.0]], np.float32)
        mask = np.tile(np.array([1, 1, 0], np.int8), (len(state.t), 2, 1))
        return agent_views(self.agents, observation=shown.astype(np.float32), action_mask=mask)

    def step(self, state: Any, action: Any) -> Any:
        outcome = super().step(state, action)
        outcome.reward = outcome.reward.copy()  # the state's own is that of the next episode soon
        outcome.terminated = np.ones(action.shape, dtype=bool)
        return outcome

    def global_state(self, state: Any) -> Any:
        return state.pay[:, :1].copy()


@pytest.mark.parametrize("critic_input", [*CRITICS, "own"])
def test_what_the_critic_sees_decides_what_it_knows(critic_input: str) -> None:
    trainer = IPPO if critic_input == "own" else MAPPO
    given = {} if critic_input == "own" else {"critic_input": critic_input}
    learner = make(SignRules(), trainer, 60, num_envs=16, learning_rate=0.01, **given)
    for _ in learner.learn():
        pass
    batch = Batch(SignRules(), 32, 5)
    seen = batch.reset()
    signs = batch.global_state()[:, 0]
    values = learner.values(seen, batch.global_state())
    assert values["agent_1"] == pytest.approx(signs, abs=0.15)
    expected = np.zeros(32) if critic_input == "own" else signs
    assert values["agent_0"] == pytest.approx(expected, abs=0.25)
    # Nothing of what the other sees reaches an actor.
    views = [{**seen["agent_0"]} for _ in range(2)]
    chances = [
        learner.policies["agent_0"].act(view, deterministic=True).extra["probabilities"]
        for view in views
    ]
    assert (chances[0] == chances[0][0]).all()


def test_critics_are_shown_what_the_others_do_and_not_what_oneself_does() -> None:
    rules = PileRules((20, 30), takes=(2, 3), illegal="raise", max_cycles=3)
    policies = separate(rules)
    learner = make(rules, policies=policies, critic_input="observations+actions", n_epochs=1)
    list(learner.learn())
    rollout = learner.rollout
    for i, others in ((0, slice(3 + 3 + 2, None)), (1, slice(3 + 3, 3 + 3 + 2))):
        shown = learner.critic_input.parts(rollout, i)[0]  # [T + 1, B, 1, 6 + 2 + 3]
        assert shown.shape == (17, 4, 1, 11)
        both = np.concatenate([buffer.vector for buffer in rollout.groups], axis=-1)
        assert (shown[..., :6] == both).all()
        actions = shown[:, :, 0, 6:].copy()
        own = slice(0, 2) if i == 0 else slice(2, 5)
        assert not actions[..., own].any()
        told = shown[:16, :, 0, others].argmax(-1)
        other = rollout.groups[1 - i]
        acted = other.acting[:16, :, 0]
        assert (shown[:16, :, 0, others].sum(-1) == acted).all()
        assert (told == other.action[:16, ..., 0])[acted].all()
        # What would follow is drawn too: at the cut of the rollout, and at those of episodes.
        assert (shown[16, :, 0, others].sum(-1) == other.acting[16, :, 0]).all()
        final = learner.critic_input.parts(rollout.finals, i)[0]
        assert len(final) == 20
        moves = rollout.finals.groups[1 - i].mask[:4, 0].any(-1)
        assert (final[:4, 0, others].sum(-1) == moves).all()


def test_the_own_action_in_the_critic_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="own_action=True"):
        learner = make(SteadyRules(), critic_input="observations+actions", own_action=True)
    list(learner.learn())
    shown = learner.critic_input.parts(learner.rollout, 0)[0]
    assert (shown[:16, :, :, 2:8].sum(-1) == 2).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(SteadyRules(), critic_input="observations+actions")


def test_agents_of_one_policy_are_told_apart_unless_told_otherwise() -> None:
    with_id, without = make(SteadyRules()), make(SteadyRules(), agent_id=False)
    assert with_id.learners["shared"].actor.layers[0].in_features == 1 + 2
    assert without.learners["shared"].actor.layers[0].in_features == 1
    alone = make(SteadyRules(), policies=separate(SteadyRules()))
    assert alone.learners["agent_0"].actor.layers[0].in_features == 1
    seen = {"observation": np.ones((1, 1), np.float32), "action_mask": np.array([[1, 1, 0]])}
    played = [with_id.policies[agent].act(seen, deterministic=True) for agent in with_id.policies]
    chances = [decision.extra["probabilities"] for decision in played]
    assert (chances[0] != chances[1]).any()


def test_images_and_vectors_together() -> None:
    for critic_input in CRITICS:
        learner = make(SteadyRules(nested=True), critic_input=critic_input)
        list(learner.learn())
        played = learner.policies["agent_0"].act(
            {
                "observation": {
                    "level.now": np.ones(1, np.float32),
                    "picture": np.zeros((2, 3), np.uint8),
                },
                "action_mask": np.array([1, 1, 0], np.int8),
            },
            rng=np.random.default_rng(0),
        )
        assert played.action in (0, 1)


def test_final_observations_are_valued_with_the_hidden_state_of_their_episode() -> None:
    """All observations are equal, so that a cut has the same value wherever in the rollout it is,
    in its last step too."""
    rollouts: list[Trajectories] = []

    def remember(trajectories: Trajectories, settings: Any) -> Advantages:
        rollouts.append(trajectories)
        return gae(trajectories, settings)

    trainer = make(SteadyRules(4), trainer_of(ippo.but(advantages=remember)), n_steps=8, memory=8)
    next(trainer.learn())
    final = rollouts[0].final_obs_value  # [8, C]
    assert (final[3] != 0).all()
    np.testing.assert_allclose(final[7], final[3], rtol=1e-5)
