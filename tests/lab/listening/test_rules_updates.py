"""Each rule about updates: a small faulty training names its cause, and sound ones are silent."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from corral.lab.listening.heard import Heard, Step
from corral.lab.listening.rules_steps import without_rate
from corral.lab.listening.rules_updates import RULES
from support.updates import (
    ACTIONS,
    FEATURES,
    ActorCritic,
    Listener,
    Loop,
    Rows,
    entropy_of,
    masked,
    network,
    policy_loss,
    value_loss,
)

Loss = Callable[[torch.Tensor, Rows], torch.Tensor]


def found(**parts: Any) -> dict[str, int]:
    """Return the certainty of each cause that was found in a training."""
    return Loop(parts.pop("network", None) or network(), **parts).run().findings()


def plain(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    return -(new * rows.advantages).mean()


# --- Sound trainings -----------------------------------------------------------------------------


def clipped_values(values: torch.Tensor, rows: Rows) -> torch.Tensor:
    near = rows.values + (values - rows.values).clamp(-0.2, 0.2)
    worse = torch.maximum((values - rows.returns) ** 2, (near - rows.returns) ** 2)
    return 0.5 * worse.mean()


def huber(values: torch.Tensor, rows: Rows) -> torch.Tensor:
    return nn.functional.smooth_l1_loss(values, rows.returns)


def dual_clip(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    ratio = (new - rows.log_probs).exp()
    usual = torch.minimum(ratio * rows.advantages, ratio.clamp(0.8, 1.2) * rows.advantages)
    return -torch.where(
        rows.advantages < 0, torch.maximum(usual, 3.0 * rows.advantages), usual
    ).mean()


def kl_penalty(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    ratio = (new - rows.log_probs).exp()
    return (-ratio * rows.advantages + 0.2 * (ratio - 1 - (new - rows.log_probs))).mean()


def weighted(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Return a loss with positive weights of rows, such as those of V-trace."""
    weights = rows.log_probs.exp().clamp(max=0.5)
    return -(weights * new * rows.advantages).mean()


def clamped_advantages(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    return plain(new, dataclasses.replace(rows, advantages=rows.advantages.clamp(-1, 1)))


def scaled(loss: Loss) -> Loss:
    return lambda outputs, rows: 65536.0 * loss(outputs, rows)


def unscale(net: nn.Module) -> None:
    for parameter in net.parameters():
        if parameter.grad is not None:
            parameter.grad /= 65536.0


class SharedTrunk(ActorCritic):
    """Actor and critic share the first layers; units are rectified."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU())
        self.actor, self.critic = nn.Linear(32, ACTIONS), nn.Linear(32, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.trunk(obs)
        return self.actor(hidden), self.critic(hidden)[:, 0]


class ZeroHead(ActorCritic):
    """The policy is uniform at first."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.actor[2].weight)


class WithTarget(ActorCritic):
    """Holds a copy of the critic that no optimizer trains."""

    def __init__(self) -> None:
        super().__init__()
        self.target = copy.deepcopy(self.critic).requires_grad_(False)


class Recurrent(ActorCritic):
    """The memory of a single step."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(FEATURES, 16, batch_first=True)
        self.actor, self.critic = nn.Linear(16, ACTIONS), nn.Linear(16, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.memory(obs[:, None])[0][:, 0]
        return self.actor(hidden), self.critic(hidden)[:, 0]


SOUND: dict[str, dict[str, Any]] = {
    "ppo": {},
    "values clipped": {"value_loss": clipped_values},
    "huber": {"value_loss": huber},
    "dual clip": {"policy_loss": dual_clip},
    "kl penalty": {"policy_loss": kl_penalty},
    "a2c": {"policy_loss": plain, "epochs": 1},
    "weighted rows": {"policy_loss": weighted},
    "clamped advantages": {"policy_loss": clamped_advantages},
    "no entropy": {"entropy_weight": 0.0},
    "scaled loss": {
        "policy_loss": scaled(policy_loss),
        "value_loss": scaled(value_loss),
        "entropy_weight": 655.36,
        "before_step": unscale,
    },
    "shared trunk": {"network": SharedTrunk},
    "zero head": {"network": ZeroHead},
    "recurrent": {"network": Recurrent},
    "target copy": {"network": WithTarget},
    "sgd": {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)},
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_training_is_silent(name: str) -> None:
    parts = dict(SOUND[name])
    torch.manual_seed(0)
    made = parts.pop("network", ActorCritic)()
    assert found(network=made, **parts) == {}


def test_a_frozen_part_is_a_note() -> None:
    net = SharedTrunk()
    net.trunk.requires_grad_(False)
    assert found(network=net) == {"frozen-weights": 1}


class Separate(Loop):
    """Trains the actor and the critic with their own minibatches and optimizers."""

    def learn(self, rows: Rows, optimizer: Any, listener: Any) -> None:
        optimizers = [
            torch.optim.SGD(part.parameters(), lr=0.01)
            for part in (self.network.actor, self.network.critic)
        ]
        logits = torch.log_softmax(masked(self.network.actor(rows.obs), rows.mask), dim=1)
        new = logits[torch.arange(len(rows.obs)), rows.actions]
        listener.batch(
            new_log_probs=new,
            log_probs=rows.log_probs,
            advantages=rows.advantages,
            actions=rows.actions,
        )
        optimizers[0].zero_grad()
        self.policy_loss(new, rows).backward()
        optimizers[0].step()
        for _ in range(2):
            values = self.network.critic(rows.obs)
            listener.batch(values=values, returns=rows.returns)
            optimizers[1].zero_grad()
            self.value_loss(values[:, 0], rows).backward()
            optimizers[1].step()


def test_separate_updates_of_actor_and_critic() -> None:
    assert Separate(network()).run().findings() == {}
    causes = Separate(network(), value_loss=lambda v, rows: -value_loss(v, rows)).run().findings()
    assert causes == {"critic-sign": 3}
    causes = Separate(network(), policy_loss=lambda n, rows: plain(-n, rows)).run().findings()
    assert causes == {"advantage-sign": 3}


# --- The policy loss -----------------------------------------------------------------------------


def instead(make: Callable[[torch.Tensor], torch.Tensor], loss: Loss = policy_loss) -> Loss:
    """Return a loss that gets other advantages than the stored ones."""
    return lambda new, rows: loss(new, dataclasses.replace(rows, advantages=make(rows.advantages)))


def broadcast(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    return -((new - rows.log_probs).exp() * rows.advantages[:, None]).mean()


def upside_down(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    return -((rows.log_probs - new).exp() * rows.advantages).mean()


def some_rows(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    return policy_loss(new[::2], rows[torch.arange(0, len(new), 2)])


def ratio_of_another(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    return policy_loss(new, dataclasses.replace(rows, log_probs=rows.log_probs.flip(0)))


@pytest.mark.parametrize(
    ("loss", "cause", "certainty"),
    [
        (lambda new, rows: -policy_loss(new, rows), "advantage-sign", 3),
        (lambda new, rows: -plain(new, rows), "advantage-sign", 3),
        (upside_down, "advantage-sign", 3),
        (instead(torch.abs, plain), "advantage-unsigned", 3),
        (instead(torch.square), "advantage-unsigned", 3),
        (instead(lambda a: a.flip(0)), "advantage-shuffled", 3),
        (broadcast, "advantage-shuffled", 3),
        (instead(lambda a: (a - a.mean())[:, None] / a.std(), plain), "advantage-shuffled", 3),
        (lambda new, rows: -(new * rows.advantages[:, None]).sum(), "advantage-shuffled", 3),
        (lambda new, rows: 0.0 * policy_loss(new, rows), "policy-loss-cut", 3),
        (lambda new, rows: -new.mean(), "policy-loss-cut", 3),
        (some_rows, "decisions-left-out", 2),
        (ratio_of_another, "ratio-wrong-in-loss", 2),
    ],
)
def test_faults_of_the_policy_loss(loss: Loss, cause: str, certainty: int) -> None:
    assert found(policy_loss=loss).get(cause, 0) >= certainty


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_advantages_of_minibatches_that_are_all_equal(value: float) -> None:
    def equal(rows: Rows) -> Rows:
        return dataclasses.replace(rows, advantages=torch.full_like(rows.advantages, value))

    assert found(of_play=equal, policy_loss=plain)["zero-advantages"] == 3
    nothing = lambda rows: dataclasses.replace(equal(rows), returns=0 * rows.values)  # noqa: E731
    assert "zero-advantages" not in found(of_play=nothing)  # equal targets, equal advantages


def test_advantages_with_nan_are_not_reported_as_equal() -> None:
    def broken(rows: Rows) -> Rows:
        advantages = rows.advantages.clone()
        advantages[::2] = torch.nan  # some in each minibatch
        return dataclasses.replace(rows, advantages=advantages)

    def without_nan(new: torch.Tensor, rows: Rows) -> torch.Tensor:
        return -(new * rows.advantages.nan_to_num()).mean()

    assert "zero-advantages" not in found(of_play=broken, policy_loss=without_nan)


def test_normalized_advantages_that_are_broadcast() -> None:
    """Their mean is 0, but for rounding: so is the gradient."""

    class Normalized(Loop):
        def learn(self, rows: Rows, optimizer: Any, listener: Any) -> None:
            normal = (rows.advantages - rows.advantages.mean()) / rows.advantages.std()
            super().learn(dataclasses.replace(rows, advantages=normal), optimizer, listener)

    def added(new: torch.Tensor, rows: Rows) -> torch.Tensor:
        return -(new * rows.advantages[:, None]).sum()

    assert Normalized(network(), policy_loss=added).run().findings()["advantage-shuffled"] >= 2


def test_a_policy_loss_that_is_cut_off_is_certain_without_an_entropy_bonus() -> None:
    def cut(new: torch.Tensor, rows: Rows) -> torch.Tensor:
        return policy_loss(new.detach(), rows)

    assert found(policy_loss=cut, entropy_weight=0.0)["policy-loss-cut"] == 3
    assert found(policy_loss=cut)["policy-loss-cut"] == 2


def test_another_tensor_of_the_same_network_in_the_loss_is_no_cut() -> None:
    """The user may give a tensor that was computed again."""
    net = network()

    class Again(Loop):
        def learn(self, rows: Rows, optimizer: Any, listener: Any) -> None:
            give = listener.batch

            def batch(**data: Any) -> None:
                logits, values = self.network(rows.obs)
                new = torch.log_softmax(masked(logits, rows.mask), dim=1)
                new = new[torch.arange(len(rows.obs)), rows.actions]
                give(new_log_probs=new, values=values, advantages=rows.advantages)

            listener.batch = batch
            super().learn(rows, optimizer, listener)
            listener.batch = give

    assert Again(net, entropy_weight=0.0).run().findings() == {}


# --- Ratios --------------------------------------------------------------------------------------


def test_stored_log_probabilities_of_another_policy() -> None:
    def shifted(rows: Rows) -> Rows:
        return dataclasses.replace(rows, log_probs=rows.log_probs + 0.3)

    def as_chances(rows: Rows) -> Rows:
        return dataclasses.replace(rows, log_probs=rows.log_probs.exp())

    assert found(of_play=shifted)["ratio-not-one"] == 3
    assert found(of_play=as_chances)["ratio-not-one"] == 3
    assert "ratio-not-one" not in found(epochs=6)


def test_stored_log_probabilities_in_another_order() -> None:
    class Flipped(Loop):
        def learn(self, rows: Rows, optimizer: Any, listener: Any) -> None:
            flipped = dataclasses.replace(rows, log_probs=rows.log_probs.flip(0))
            super().learn(flipped, optimizer, listener)

    assert Flipped(network()).run().findings()["probability-of-another"] == 3


def test_dropout_in_the_loss_makes_ratios_differ() -> None:
    class Dropping(ActorCritic):
        def __init__(self) -> None:
            super().__init__()
            self.actor.insert(2, nn.Dropout(0.5))

    class Evaluated(Loop):
        def rollout(self) -> Rows:
            self.network.eval()
            rows = super().rollout()
            self.network.train()
            return rows

    causes = Evaluated(Dropping()).run().findings()
    assert (causes["ratio-not-one"], causes["modes-differ"]) == (3, 2)


def test_old_log_probabilities_that_are_computed_again() -> None:
    class Again(Loop):
        def learn(self, rows: Rows, optimizer: Any, listener: Any) -> None:
            with torch.no_grad():
                logits = torch.log_softmax(masked(self.network(rows.obs)[0], rows.mask), dim=1)
            rows = dataclasses.replace(
                rows, log_probs=logits[torch.arange(len(rows.obs)), rows.actions]
            )
            super().learn(rows, optimizer, listener)

    assert Again(network()).run().findings() == {"old-log-prob-recomputed": 3}


def test_a_loss_that_compares_the_policy_with_itself() -> None:
    def itself(new: torch.Tensor, rows: Rows) -> torch.Tensor:
        return -((new - new.detach()).exp() * rows.advantages).mean()

    parts: dict[str, Any] = {"optimizer": lambda p: torch.optim.Adam(p, lr=3e-2), "epochs": 4}
    assert found(policy_loss=itself, **parts) == {"old-log-prob-recomputed": 2}
    assert "old-log-prob-recomputed" not in found(**parts)


def test_a_clip_range_that_is_too_small() -> None:
    def tight(new: torch.Tensor, rows: Rows) -> torch.Tensor:
        ratio = (new - rows.log_probs).exp()
        near = ratio.clamp(1 - 1e-4, 1 + 1e-4)
        return -torch.minimum(ratio * rows.advantages, near * rows.advantages).mean()

    parts: dict[str, Any] = {"optimizer": lambda p: torch.optim.Adam(p, lr=3e-4)}
    assert found(policy_loss=tight, **parts) == {"clip-too-tight": 2}
    assert found(**parts) == {}


def test_clipping_in_reverse() -> None:
    def most(new: torch.Tensor, rows: Rows) -> torch.Tensor:
        ratio = (new - rows.log_probs).exp()
        near = ratio.clamp(0.8, 1.2)
        return -torch.maximum(ratio * rows.advantages, near * rows.advantages).mean()

    parts: dict[str, Any] = {"epochs": 8, "optimizer": lambda p: torch.optim.Adam(p, lr=1e-2)}
    assert found(policy_loss=most, **parts) == {"clip-reversed": 3}
    assert found(**parts) == {}


def test_updates_that_are_too_large() -> None:
    causes = found(optimizer=lambda p: torch.optim.Adam(p, lr=1.0), epochs=4)
    assert causes["updates-too-large"] == 2


# --- The value loss ------------------------------------------------------------------------------


def to_targets(make: Callable[[torch.Tensor], torch.Tensor]) -> Loss:
    return lambda values, rows: value_loss(
        values, dataclasses.replace(rows, returns=make(rows.returns))
    )


@pytest.mark.parametrize(
    ("loss", "cause", "certainty"),
    [
        (lambda values, rows: -value_loss(values, rows), "critic-sign", 3),
        (lambda values, rows: value_loss(values.detach(), rows), "critic-untaught", 3),
        (lambda values, rows: 0.0 * value_loss(values, rows), "critic-untaught", 3),
        (to_targets(lambda t: t[:, None]), "targets-shuffled", 3),
        (to_targets(lambda t: t.flip(0)), "targets-shuffled", 3),
        (to_targets(lambda t: 10.0 - 3.0 * t), "targets-changed", 2),
        (to_targets(lambda t: 5.0 * t), "targets-changed", 2),
        (to_targets(lambda t: (t - t.mean()) / t.std()), "targets-changed", 1),
        (to_targets(lambda t: t.clamp(-1.0, 2.0)), "targets-changed", 2),
        (to_targets(torch.zeros_like), "targets-changed", 2),
        (
            lambda values, rows: (values - rows.returns).square().clamp(max=0.5).mean(),
            "value-clipped",
            2,
        ),
    ],
)
def test_faults_of_the_value_loss(loss: Loss, cause: str, certainty: int) -> None:
    assert found(value_loss=loss).get(cause) == certainty


@pytest.mark.parametrize(
    ("make", "cause"),
    [(lambda t: t[:, None], "targets-shuffled"), (lambda t: t.flip(0), "targets-shuffled")],
)
def test_targets_far_from_all_values(make: Callable[[Any], Any], cause: str) -> None:
    """All gradients lead in the right direction, and not to the own target."""

    def far(rows: Rows) -> Rows:
        return dataclasses.replace(rows, returns=rows.returns + 20.0)

    assert found(of_play=far, value_loss=to_targets(make)).get(cause) == 3
    assert found(of_play=far) == {}
    assert found(of_play=far, value_loss=huber) == {}


def test_a_limit_of_a_huber_loss_is_no_limit_of_targets() -> None:
    def limited(values: torch.Tensor, rows: Rows) -> torch.Tensor:
        return nn.functional.huber_loss(values, rows.returns, delta=2.5)

    assert found(value_loss=limited) == {}


# --- Entropy and masks ---------------------------------------------------------------------------


def test_the_weight_of_the_entropy() -> None:
    assert found(entropy_weight=-0.05)["entropy-sign"] == 2
    causes = found(entropy_weight=50.0, optimizer=lambda p: torch.optim.Adam(p, lr=1e-4))
    assert causes == {"entropy-too-large": 2}


def no_mask(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return logits


def test_masks_that_the_loss_lost() -> None:
    assert found(in_loss=no_mask)["mask-lost-in-ratio"] == 3
    assert found(entropy_logits=no_mask) == {"mask-lost-in-entropy": 3}


def test_actions_that_the_mask_forbids() -> None:
    assert found(in_play=no_mask, in_loss=no_mask)["mask-ignored-in-play"] == 3


class SoftmaxLast(ActorCritic):
    def __init__(self) -> None:
        super().__init__()
        self.actor.append(nn.Softmax(dim=-1))


def test_a_softmax_of_probabilities() -> None:
    parts: dict[str, Any] = {"in_loss": no_mask, "in_play": no_mask, "entropy_logits": no_mask}
    assert found(network=SoftmaxLast(), **parts)["softmax-twice"] == 3

    def logarithm(net: nn.Module, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chances, values = net(obs)
        return chances.log(), values

    assert "softmax-twice" not in found(network=SoftmaxLast(), forward=logarithm, **parts)


# --- Steps ---------------------------------------------------------------------------------------


def test_an_optimizer_without_the_actor() -> None:
    assert found(parameters=lambda net: net.critic.parameters()) == {"weights-fixed": 3}


def test_an_optimizer_of_another_network() -> None:
    other = network(1)
    assert found(parameters=lambda _: other.parameters())["weights-fixed"] == 3


def test_optimizers_of_actor_and_critic() -> None:
    class Both(torch.optim.Adam):
        def __init__(self, net: ActorCritic) -> None:
            super().__init__(net.actor.parameters(), lr=3e-3)
            self.critic = torch.optim.Adam(net.critic.parameters(), lr=3e-3)

        def zero_grad(self, set_to_none: bool = True) -> None:
            super().zero_grad(set_to_none)
            self.critic.zero_grad(set_to_none)

        def step(self, closure: Any = None) -> Any:
            self.critic.step()
            return super().step(closure)

    assert found(optimizer=Both, parameters=lambda net: net) == {}


def test_an_optimizer_that_maximizes() -> None:
    parts: dict[str, Any] = {
        "optimizer": lambda p: torch.optim.Adam(p, lr=3e-3, maximize=True),
        "entropy_weight": 0.0,
    }
    assert found(**parts) == {"advantage-sign": 3, "critic-sign": 3}
    turned = {
        "policy_loss": lambda new, rows: -policy_loss(new, rows),
        "value_loss": lambda values, rows: -value_loss(values, rows),
    }
    assert found(**turned, **parts) == {}


def test_learning_rates() -> None:
    assert found(optimizer=lambda p: torch.optim.Adam(p, lr=0.0))["learning-rate-zero"] == 3
    assert found(optimizer=lambda p: torch.optim.Adam(p, lr=1e-12))["weights-fixed"] == 3
    assert found(optimizer=lambda p: torch.optim.SGD(p, lr=1e-6))["policy-unchanged"] == 2


def test_gradients_that_are_clipped_away() -> None:
    causes = found(before_step=lambda net: nn.utils.clip_grad_norm_(net.parameters(), 1e-8))
    assert causes["gradient-clipped-away"] == 3


def test_gradients_that_pile_up() -> None:
    assert found(zero_grad=False)["gradients-kept"] == 3


def test_accumulated_gradients_do_not_pile_up() -> None:
    class Accumulating(Loop):
        calls = 0

        def learn(self, rows: Rows, optimizer: Any, listener: Any) -> None:
            class Second:
                """Steps at every second call."""

                def zero_grad(self, calls: int = self.calls) -> None:
                    if calls % 2 == 0:
                        optimizer.zero_grad()

                def step(self, calls: int = self.calls) -> None:
                    if calls % 2 == 1:
                        optimizer.step()

            super().learn(rows, Second(), listener)  # type: ignore[arg-type]
            self.calls += 1

    assert Accumulating(network()).run().findings() == {}


def test_weights_that_are_put_back() -> None:
    net = network()
    before = copy.deepcopy(net.state_dict())
    causes = found(network=net, after_update=lambda loop: loop.network.load_state_dict(before))
    assert causes["weights-put-back"] == 3


def test_part_of_the_network_without_a_gradient() -> None:
    def detached(net: nn.Module, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = net.trunk(obs).detach()
        return net.actor(hidden), net.critic(hidden)[:, 0]

    def pretrained(net: nn.Module, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            hidden = net.trunk(obs)
        return net.actor(hidden), net.critic(hidden)[:, 0]

    assert found(network=SharedTrunk(), forward=detached) == {"no-gradient": 2}
    assert found(network=SharedTrunk(), forward=pretrained) == {"no-gradient": 1}


def test_an_auxiliary_head_is_a_note() -> None:
    net = ActorCritic()
    net.auxiliary = nn.Linear(FEATURES, 1)  # such as that of PPG, in the phase of the policy
    assert found(network=net) == {"no-gradient": 1}


def test_numbers_that_are_not_finite() -> None:
    def undefined(new: torch.Tensor, rows: Rows) -> torch.Tensor:
        return plain(new, rows) + (rows.advantages - rows.advantages).sum().sqrt() * new.sum() / 0

    assert found(policy_loss=undefined)["diverged"] == 3


def test_weight_decay() -> None:
    causes = found(optimizer=lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=30.0))
    assert causes["weights-decay"] == 2


# --- The network ---------------------------------------------------------------------------------


def test_a_dead_layer() -> None:
    net = ActorCritic(nn.ReLU)
    nn.init.constant_(net.actor[0].bias, -100.0)
    assert found(network=net)["dead-layer"] == 3


def test_a_dead_layer_with_a_function() -> None:
    def forward(net: nn.Module, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return net.actor[2](torch.relu(net.actor[0](obs))), net.critic(obs)[:, 0]

    net = ActorCritic()
    nn.init.constant_(net.actor[0].bias, -100.0)
    assert found(network=net, forward=forward)["dead-layer"] == 3


def test_units_that_are_alike() -> None:
    net = ActorCritic()
    for parameter in net.actor[0].parameters():
        nn.init.constant_(parameter, 0.1)
    nn.init.constant_(net.actor[2].weight, 0.1)
    assert found(network=net)["units-alike"] == 3


def test_saturated_layers_and_unscaled_inputs() -> None:
    def large(rows: Rows) -> Rows:
        return dataclasses.replace(rows, obs=1000.0 * rows.obs)

    def forward(net: nn.Module, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return net(1000.0 * obs)

    causes = found(forward=forward)
    assert (causes["observation-unscaled"], causes["layer-saturated"]) == (2, 1)


def test_a_picture_that_is_scaled_twice() -> None:
    class Sees(ActorCritic):
        def __init__(self, divisor: float) -> None:
            super().__init__()
            self.image, self.divisor = nn.Conv1d(1, 2, 1), divisor

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            pixels = (obs[:, None].abs() / obs.abs().max()) / self.divisor
            hidden = self.image(pixels).mean(dim=1)
            return self.actor(hidden), self.critic(hidden)[:, 0]

    for divisor, certainty in ((255.0, 2), (1.0, None)):
        assert found(network=Sees(divisor)).get("observation-tiny") == certainty


def test_a_value_loss_that_dominates_shared_layers() -> None:
    def heavy(values: torch.Tensor, rows: Rows) -> torch.Tensor:
        return 1000.0 * value_loss(values, rows)

    assert found(network=SharedTrunk(), value_loss=heavy)["shared-layers"] == 2
    assert "shared-layers" not in found(value_loss=heavy)  # separate networks


@pytest.mark.parametrize(("weight", "certainty"), [(0.1, 2), (1e-4, None)])
def test_a_penalty_on_logits_that_is_summed(weight: float, certainty: int | None) -> None:
    net, rng = network(), np.random.default_rng(0)
    listener = Listener(net)
    for _ in range(4):
        listener.begin_update()
        obs = torch.from_numpy(rng.normal(size=(128, FEATURES))).float()
        logits, _ = net(obs)
        chances = torch.log_softmax(logits, dim=1)
        actions = torch.from_numpy(rng.integers(0, ACTIONS, 128))
        new, entropy = chances[torch.arange(128), actions], entropy_of(logits)
        advantages = torch.from_numpy(rng.normal(size=128)).float()
        loss = -(new * advantages).mean() - 0.01 * entropy.mean() + weight * logits.square().sum()
        listener.batch(
            actions=actions,
            log_probs=new.detach(),
            new_log_probs=new,
            logits=logits,
            entropy=entropy,
            advantages=advantages,
        )
        loss.backward()
    listener.stop()
    assert listener.findings().get("loss-term-dominates") == certainty


def test_a_policy_without_data_has_no_gradient() -> None:
    heard = Heard("policy", "rllib", network=nn.Linear(3, 2), updates=4)
    heard.steps = [Step(1e-3, {"weight": 0.0, "bias": 0.0}, 0.0)] * 20
    assert [rule(heard) for rule in RULES] == [None] * len(RULES)


def test_other_algorithms_without_log_probabilities_are_silent() -> None:
    """A DQN has no log-probabilities and no rollout."""
    heard = Heard("policy", network=nn.Linear(3, 2))
    for _ in range(20):
        step = Step(1e-3, {"weight": 0.1, "bias": 0.1}, 0.2, 0.2, 0.0, {"weight": 1e-3})
        heard.steps.append(step)
    assert [rule(heard) for rule in RULES] == [None] * len(RULES)


def test_nothing_heard_is_silent() -> None:
    assert [rule(Heard("policy")) for rule in RULES] == [None] * len(RULES)


def test_places_are_in_the_users_network() -> None:
    listener = Loop(network(), parameters=lambda net: net.critic.parameters()).run()
    listener.findings()
    place = listener.heard.places["weights-fixed"]
    assert (place.module, place.name.partition(".")[0]) == ("Linear", "actor")
    assert np.isfinite(listener.heard.steps[0].norm)


@pytest.mark.parametrize(("factor", "certainty"), [(1e-9, 2), (0.5, 0)])
def test_a_schedule_of_products_ends_near_0(factor: float, certainty: int) -> None:
    rates = [1e-3] * 8 + [1e-3 * factor] * 16
    steps = [Step(rate, {}, 1.0, update=1 + number // 8) for number, rate in enumerate(rates)]
    found = without_rate(Heard("policy", steps=steps))
    assert (0 if found is None else found.certainty) == certainty
