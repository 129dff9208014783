"""MAPPO and IPPO with networks of a user's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch
from torch import nn

from corral.envs.registry import REGISTERED, make_rules
from corral.errors import CheckpointError, ModelError
from corral.trainers.arguments import have_equal_spaces
from corral.trainers.on_policy.algorithms import adam
from corral.trainers.on_policy.trainer import IPPO, MAPPO, trainer_of
from corral.trainers.runs.checkpoint import Content
from support.mappo_teams import CRITICS, content, make, separate
from support.mask_rules import FifteenRules
from support.own_networks import Counting, Flat, leaves, made_of, weights_of, with_parts
from support.own_networks import make as make_network
from support.thinned import fast_every
from support.turn_rules import MortalRules, PileRules

# --- What critics are given ----------------------------------------------------------------------


def flat(tree: Any) -> Any:
    return torch.cat([each.reshape(len(each), -1) for each in leaves(tree)], dim=1)


@pytest.mark.parametrize("kind", ["own", *CRITICS])
def test_the_view_of_a_critic_holds_all_that_it_is_given(kind: str) -> None:
    rules = make_rules("dfaas_v0")
    trainer = make(rules, IPPO if kind == "own" else MAPPO, **_critic(kind), model=make_network)
    trainer.begin()
    trainer.collect()
    group, rollout = trainer.groups[0], trainer.rollout
    parts = trainer.critic_input.tensors(trainer.learners["shared"], rollout, 0)
    view = trainer.critic_input.view(group)
    found = view.read([part[:-1].flatten(0, 2) for part in parts])
    buffer = rollout.groups[0]
    rows = torch.from_numpy(buffer.vector[:-1].reshape(-1, buffer.vector.shape[-1]))
    own, identity = rows[:, : group.layout.width], rows[:, group.layout.width :]
    agents = rules.agents
    if kind == "own":
        assert isinstance(view.space, spaces.Box)
        assert torch.equal(found, own)
        return
    assert torch.equal(found["agent"], identity)
    if kind == "state":
        assert list(found) == ["state", "observation", "agent"]
        assert torch.equal(found["observation"], own)
        state = torch.from_numpy(np.repeat(rollout.state[:-1], len(agents), axis=1))
        assert torch.equal(found["state"], state.flatten(0, 1))
        return
    each = own.reshape(-1, len(agents), own.shape[1]).repeat_interleave(len(agents), dim=0)
    for j, agent in enumerate(agents):
        assert torch.equal(found["observations"][agent], each[:, j])
    if kind == "observations":
        assert list(found) == ["observations", "agent"]
        return
    played = torch.from_numpy(buffer.action[:-1].reshape(-1, len(agents)))
    played = played.repeat_interleave(len(agents), dim=0)
    for j, agent in enumerate(agents):
        others = identity[:, j] == 0  # who decides is not told its own action
        assert (found["actions"][agent][~others] == 0).all()
        told = found["actions"][agent][others]
        assert torch.equal(told.argmax(dim=1), played[others, j])
        assert (told.sum(dim=1) == 1).all()


def _critic(kind: str) -> dict[str, Any]:
    return {} if kind == "own" else {"critic_input": kind}


def test_images_of_all_agents_reach_the_critic_under_their_names() -> None:
    rules = make_rules("tiles_v0")
    given = {"model": make_network, "policies": separate(rules), "critic_input": "observations"}
    trainer = make(rules, **given)
    trainer.begin()
    trainer.collect()
    for i, group in enumerate(trainer.groups):
        parts = trainer.critic_input.tensors(trainer.learners[group.policy], trainer.rollout, i)
        found = trainer.critic_input.view(group).read([part.flatten(0, 2) for part in parts])
        for other in trainer.rollout.groups:
            (agent,) = other.group.agents
            pixels = torch.from_numpy(other.images[0]).flatten(0, 2)
            image = found["observations"][agent]["image"]
            assert torch.equal(image, pixels / 255)
            vector = torch.from_numpy(other.vector).flatten(0, 2)
            assert torch.equal(found["observations"][agent]["vector"], vector)


# --- Learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize("rules", [PileRules, FifteenRules, MortalRules])
def test_it_learns_and_goes_on_bit_for_bit_with_its_buffers(rules: Any, memory: int) -> None:
    def fresh() -> Any:
        made = rules(illegal="raise") if rules is not FifteenRules else rules()
        own = {"model": lambda space, *, role: Counting(), "memory": memory}
        return make(made, updates=3, n_steps=13, **own)

    whole = fresh()
    before = content(whole)
    metrics = [update.metrics for update in whole.learn()]
    assert content(whole) != before
    trainer = fresh()
    assert content(trainer) == before  # the same seed, the same weights
    told = []
    for _ in range(3):
        told.append(next(trainer.learn()).metrics)
        saved = trainer.save()
        trainer = fresh()
        for learner in trainer.learners.values():
            learner.actor.encoder.module.scale.fill_(7.0)  # buffers are saved, too
        trainer.load(Content(json.loads(json.dumps(saved.documents)), saved.arrays))
    assert told == metrics
    trainer.begin()
    assert content(trainer) == content(whole)


def test_the_probability_of_a_decision_is_that_of_playing_it() -> None:
    """In the first minibatch nothing was learned yet: the ratio of new to old is 1."""
    ratios = []

    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        ratios.append((outputs.log_prob - minibatch.log_prob).abs().max().item())
        return MAPPO.algorithm.loss(minibatch, outputs, settings)

    Trainer = trainer_of(MAPPO.algorithm.but(name="watched", loss=loss))
    trainer = make(make_rules("dfaas_v0"), Trainer, model=make_network, n_epochs=1)
    next(trainer.learn())
    assert ratios[0] < 1e-6


def test_another_seed_gives_other_weights() -> None:
    rules = make_rules("dfaas_v0")
    first, other = (make(rules, model=make_network, seed=seed) for seed in (0, 1))
    pair = [each.learners["shared"].actor.encoder.module for each in (first, other)]
    assert not np.array_equal(weights_of(pair[0])[0], weights_of(pair[1])[0])


def test_actor_and_critic_may_not_share_weights() -> None:
    network = Flat()
    flat_rules = make_rules("dfaas_v0")
    shared = make(flat_rules, IPPO, model=lambda space, *, role: network)
    with refused(ModelError, "critic", "actor", "shared"):
        shared.check()
    one_each = {"actor": Flat(), "critic": Flat()}
    apart = make(
        flat_rules,
        IPPO,
        model=lambda space, *, role: one_each[role],
        policies=separate(flat_rules),
    )
    with refused(ModelError, "node_1", "node_0"):
        apart.check()


# --- Frozen parts --------------------------------------------------------------------------------


def frozen_layer(space: Any, *, role: str) -> nn.Module:
    network = Flat()
    network.layer = nn.Sequential(nn.LazyLinear(6), nn.Tanh(), nn.Linear(6, 6))
    network(_zeros(space))
    network.layer[0].requires_grad_(False)
    return network


def _zeros(space: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _zeros(part) for key, part in space.spaces.items()}
    return torch.zeros(1, *space.shape)


def test_a_frozen_part_stays_as_it_is_and_is_saved() -> None:
    rules = make_rules("dfaas_v0")
    given: list[int] = []

    def optimizer(parameters: Any, settings: Any) -> Any:
        listed = list(parameters)
        given.append(sum(each.requires_grad is False for each in listed))
        return adam(listed, settings)

    Trainer = trainer_of(MAPPO.algorithm.but(name="watched", optimizer=optimizer))
    trainer = make(rules, Trainer, updates=2, model=frozen_layer)
    module = trainer.learners["shared"].actor.encoder.module
    before = weights_of(module)
    for _ in trainer.learn():
        pass
    after = weights_of(module)
    assert given == [0]
    assert [np.array_equal(a, b) for a, b in zip(before, after, strict=True)] == [True] * 2 + [
        False
    ] * 2
    again = make(rules, Trainer, updates=2, model=frozen_layer, seed=5)
    again.load(trainer.save())
    again.begin()
    assert content(again) == content(trainer)


# --- Gradients -----------------------------------------------------------------------------------


def detached(self: Flat, obs: Any) -> Any:
    return Flat.forward(self, obs).detach()


FAULTY = {
    "unused": (with_parts(more=lambda: nn.Linear(2, 3)), ("more.weight", "more.bias")),
    "detached": (made_of(detached), ("layer.weight", "layer.bias")),
    "times 0": (
        made_of(lambda self, obs: Flat.forward(self, obs) * 0),
        ("layer.weight", "layer.bias"),
    ),
}


@pytest.mark.parametrize("memory", [0, 3])
@pytest.mark.parametrize("fault", FAULTY)
def test_a_part_that_learns_nothing_ends_training_by_name(fault: str, memory: int) -> None:
    model, weights = FAULTY[fault]
    trainer = make(make_rules("dfaas_v0"), model=model, memory=memory)
    with refused(ModelError, "actor", "shared", *weights, "requires_grad_(False)"):
        next(trainer.learn())


def test_what_is_unused_may_be_frozen() -> None:
    spare = with_parts(more=lambda: nn.Linear(2, 3).requires_grad_(False))
    trainer = make(make_rules("dfaas_v0"), model=spare)
    next(trainer.learn())


def test_only_the_first_update_is_looked_at() -> None:
    """A layer may fall silent later: with a bias of -100 no ReLU lets anything through."""

    class Silent(Flat):
        def forward(self, obs: Any) -> Any:
            return self.layer(self.join(obs)).relu()

    def model(space: Any, *, role: str) -> nn.Module:
        return Silent()

    trainer = make(make_rules("dfaas_v0"), updates=3, model=model)
    next(trainer.learn())
    again = make(make_rules("dfaas_v0"), updates=3, model=model)
    again.load(trainer.save())
    for each in (trainer, again):
        with torch.no_grad():
            each.learners["shared"].actor.encoder.module.layer.bias.fill_(-100.0)
        next(each.learn())


def test_a_policy_that_does_not_learn_is_not_looked_at() -> None:
    rules = make_rules("dfaas_v0")
    names = separate(rules)

    def model(space: Any, *, role: str) -> nn.Module:
        network = Flat()
        made.append(network)
        if len(made) > 2:  # node_1 and those after it
            network.more = nn.Linear(1, 1)
        return network

    made: list[nn.Module] = []
    trainer = make(rules, model=model, policies=names, to_train=["node_0"])
    next(trainer.learn())


@pytest.mark.parametrize("trainer", [MAPPO, IPPO])
@pytest.mark.parametrize("env", ["probe_p16_v0", "probe_p17_v0"])
def test_where_there_is_nothing_to_learn_there_is_no_alarm(env: str, trainer: Any) -> None:
    made = make(make_rules(env), trainer, updates=3, model=make_network)
    assert len(list(made.learn())) == 3


def test_a_loss_without_the_critic_is_no_fault_of_the_network() -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        terms = dict(MAPPO.algorithm.loss(minibatch, outputs, settings).terms)
        return type(MAPPO.algorithm.loss(minibatch, outputs, settings))(
            terms | {"value_loss": terms["value_loss"].detach()}
        )

    Trainer = trainer_of(MAPPO.algorithm.but(name="actors", loss=loss))
    next(make(make_rules("dfaas_v0"), Trainer, model=make_network).learn())


HEALTHY = [name for name in REGISTERED if name not in ("probe_p16_v0", "probe_p17_v0")]


@pytest.mark.parametrize("env", fast_every(3, HEALTHY))
def test_no_layer_of_corrals_own_is_idle_in_any_environment(env: str) -> None:
    """They are not looked at while they train: small ones may rightly fall silent."""
    rules = make_rules(env)
    policies = None if have_equal_spaces(rules, rules.agents) else separate(rules)
    trainer = make(rules, IPPO, policies=policies, net_arch=(32, 32), num_envs=16)
    alive: set[str] = set()
    step = trainer.update_minibatch

    def watched(learner: Any, minibatch: Any, outputs: Any) -> Any:
        found = step(learner, minibatch, outputs)
        prefix = learner.group.policy
        alive.update(
            f"{prefix}.{name}"
            for name, values in learner.named_parameters()
            if values.grad is not None and values.grad.any()
        )
        return found

    trainer.update_minibatch = watched
    next(trainer.learn())
    every = {
        f"{policy}.{name}"
        for policy, learner in trainer.learners.items()
        for name, _ in learner.named_parameters()
    }
    assert alive == every


# --- Export and other shapes ---------------------------------------------------------------------


def test_an_export_says_whose_network_it_is(tmp_path: Path) -> None:
    trainer = make(make_rules("dfaas_v0"), model=make_network)
    trainer.export(tmp_path)
    about = json.loads((tmp_path / "shared.json").read_text())
    assert about["model"]["name"] == "support.own_networks:make"
    assert len(about["model"]["sha256"]) == 64
    assert "net_arch" not in about
    make(make_rules("dfaas_v0")).export(tmp_path)
    about = json.loads((tmp_path / "shared.json").read_text())
    assert "model" not in about
    assert about["net_arch"] == [16]


def test_a_checkpoint_of_another_network_does_not_fit() -> None:
    rules = make_rules("dfaas_v0")
    saved = make(rules, model=make_network).save()
    wide = make(rules, model=lambda space, *, role: Flat(9))
    with pytest.raises(CheckpointError, match=r"actor\.encoder\.module\.layer\.weight"):
        wide.load(saved)
    with refused(CheckpointError, "policy_shared", "'actor.layers.0.bias'"):
        make(rules).load(saved)
