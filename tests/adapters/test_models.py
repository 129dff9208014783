"""Networks of a user's own: what they are given, and what is refused with a remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch", reason="needs the extra mappo")

import torch
from torch import nn

from corral.adapters.models import (
    Branch,
    Leaf,
    Model,
    make_model,
    require_separate_weights,
    view_of,
)
from corral.adapters.networks import Network
from corral.adapters.spaces import ObservationCodec
from corral.envs.masks import masked_space
from corral.errors import ModelError
from support.messages import refused
from support.own_networks import Flat, leaves, made_of, make

INNER = spaces.Dict(
    {
        "picture": spaces.Box(0, 255, (9, 8, 3), np.uint8),
        "level": spaces.Box(0, 200, (2,), np.uint8),
        "which": spaces.Discrete(3, start=5),
        "both": spaces.MultiDiscrete([2, 3]),
        "flags": spaces.MultiBinary(4),
        "speed": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    }
)
LAYOUT = ObservationCodec.of("a", masked_space(INNER, 4))


def parts_of(observation: dict[str, Any], layout: ObservationCodec = LAYOUT) -> Any:
    rows = len(next(iter(observation.values())))
    vector = np.zeros((rows, layout.width), np.float32)
    images = [np.zeros((rows, *image), np.uint8) for image in layout.images]
    layout.write(observation, vector, images)
    return [torch.from_numpy(each) for each in (vector, *images)]


def observed(rows: int = 5) -> dict[str, Any]:
    INNER.seed(0)
    each = [INNER.sample() for _ in range(rows)]
    return {key: np.stack([one[key] for one in each]) for key in INNER.spaces}


# --- What they are given -------------------------------------------------------------------------


def test_a_model_gets_each_entry_as_its_space_says() -> None:
    view, given = view_of(LAYOUT), observed()
    obs = view.read(parts_of(given))
    assert obs.keys() == INNER.spaces.keys()  # and no mask
    assert torch.equal(obs["which"], torch.from_numpy(given["which"]))
    assert torch.equal(obs["both"], torch.from_numpy(given["both"]))
    assert torch.equal(obs["flags"], torch.from_numpy(given["flags"]).float())
    assert torch.equal(obs["speed"], torch.from_numpy(given["speed"]).float())
    assert torch.equal(obs["level"], torch.from_numpy(given["level"]).float() / 200)
    picture = given["picture"].transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    assert np.array_equal(obs["picture"].numpy(), picture)
    space = view.space
    assert isinstance(space, spaces.Dict)
    assert space["picture"] == spaces.Box(0, 1, (3, 9, 8), np.float32)
    assert space["level"] == spaces.Box(0, 1, (2,), np.float32)
    assert (space["which"], space["both"]) == (INNER["which"], INNER["both"])
    for row in range(5):
        for key, part in space.spaces.items():
            value = obs[key][row].numpy()
            value = value.astype(np.int8) if key == "flags" else value[()]
            assert part.contains(value), key


def test_numbers_are_views_and_no_copies() -> None:
    parts = parts_of(observed())
    obs = view_of(LAYOUT).read(parts)
    memory = parts[0].untyped_storage().data_ptr()
    for key in ("level", "speed", "flags"):
        assert obs[key].untyped_storage().data_ptr() == memory, key


def test_a_plain_observation_is_one_tensor_and_a_tuple_a_tuple() -> None:
    plain = ObservationCodec.of("a", spaces.Box(-1, 1, (3,), np.float32))
    view = view_of(plain)
    assert view.space == spaces.Box(-1, 1, (3,), np.float32)
    assert view.read([torch.ones(2, 3)]).shape == (2, 3)
    pair = Branch((view, Leaf(spaces.Discrete(2), 3, 5)))
    assert pair.space == spaces.Tuple([view.space, spaces.Discrete(2)])
    first, second = pair.read([torch.tensor([[0.1, 0.2, 0.3, 0.0, 1.0]])])
    assert (first.shape, second.tolist()) == ((1, 3), [1])


def test_samples_are_of_the_space() -> None:
    bounded = spaces.Dict(
        {
            "far": spaces.Box(3, 7, (50,), np.float32),
            "up": spaces.Box(2, np.inf, (50,), np.float32),
            "huge": spaces.Box(*(s * np.finfo(np.float32).max for s in (-1, 1)), (50,), np.float32),
            **INNER.spaces,
        }
    )
    layout = ObservationCodec.of("a", bounded)
    model = model_of(make, layout)
    obs = model.view.read(model.sample(6, torch.device("cpu")))
    assert (obs["far"] >= 3).all()
    assert (obs["far"] <= 7).all()
    assert (obs["up"] >= 2).all()
    assert (obs["huge"].abs() <= 1e6).all()
    assert set(obs["flags"].flatten().tolist()) == {0.0, 1.0}
    assert 0.9 < obs["picture"].max() <= 1.0


# --- How they are made ---------------------------------------------------------------------------


def model_of(
    maker: Any, layout: ObservationCodec = LAYOUT, identities: int = 0, seed: int = 0
) -> Model:
    return make_model(
        maker,
        view_of(layout),
        "actor",
        policy="p",
        identities=identities,
        inputs=(layout.width + identities, layout.images),
        rng=torch.Generator().manual_seed(seed),
    )


def test_the_same_seed_gives_the_same_weights_and_disturbs_nothing() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = model_of(make).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    again, other = model_of(make).state_dict(), model_of(make, seed=1).state_dict()
    assert all(torch.equal(values, again[name]) for name, values in first.items())
    assert not torch.equal(first["module.layer.weight"], other["module.layer.weight"])


def test_which_agent_it_is_joins_the_features() -> None:
    model = model_of(make, identities=2)
    parts = parts_of(observed())
    parts[0] = torch.cat([parts[0], torch.tensor([[0.0, 1.0]]).expand(5, 2)], dim=1)
    features = model(parts)
    assert features.shape == (5, model.out_features) == (5, 8)
    assert (features[:, -2:] == torch.tensor([0.0, 1.0])).all()
    network = Network(
        0, (), (), outputs=4, gain=0.01, net_arch=(9,), activation="relu", encoder=model
    )
    assert network.head.in_features == 8
    assert not hasattr(network, "layers")
    assert network(parts).shape == (5, 4)


def test_a_network_with_own_weights_keeps_them() -> None:
    """Corral's beginning is for its own layers alone."""
    model = model_of(make)
    before = model.module.layer.weight.detach().clone()
    Network(0, (), (), outputs=4, gain=0.01, net_arch=(), activation="relu", encoder=model)
    assert torch.equal(model.module.layer.weight, before)


# --- What is refused -----------------------------------------------------------------------------


def fails(space: Any, *, role: str) -> nn.Module:
    raise KeyError("image")


def without_features(space: Any, *, role: str) -> nn.Module:
    return nn.Identity()


def with_text(space: Any, *, role: str) -> nn.Module:
    found = nn.Identity()
    found.out_features = "64"
    return found


MAKES = {
    "no callable": (3, ("int", "make(observation_space, *, role)")),
    "one argument": (
        lambda space: Flat(),
        ("make(observation_space, role='actor')", "unexpected", "'role'"),
    ),
    "another word": (
        lambda space, kind: Flat(),
        ("make(observation_space, role='actor')", "missing", "'kind'"),
    ),
    "raises": (fails, ("KeyError: 'image'", "Dict('both'")),
    "no module": (
        lambda space, *, role: torch.tanh,
        ("builtin_function_or_method", "torch.nn.Module"),
    ),
    "no out_features": (without_features, ("Identity", "self.out_features")),
    "out_features of text": (with_text, ("out_features='64'", "self.out_features")),
}


@pytest.mark.parametrize("fault", MAKES)
def test_what_makes_no_network_is_refused(fault: str) -> None:
    maker, values = MAKES[fault]
    with refused(ModelError, "actor of policy p", *values):
        model_of(maker)


def in_place(self: Flat, obs: Any) -> Any:
    for each in leaves(obs):
        each.mul_(2)
    return Flat.forward(self, obs)


FORWARDS = {
    "too wide": (lambda self, obs: self.join(obs), ("forward", "(3, 226)", "(3, 6)")),
    "no batch axis": (
        lambda self, obs: Flat.forward(self, obs)[0],
        ("forward", "(6,)", "3 observations"),
    ),
    "squeezed": (lambda self, obs: Flat.forward(self, obs).squeeze(), ("forward", "(6,)", 1)),
    "double": (
        lambda self, obs: Flat.forward(self, obs).double(),
        ("forward", "torch.float64", "torch.float32"),
    ),
    "not finite": (lambda self, obs: Flat.forward(self, obs) / 0, ("forward", "finite")),
    "a tuple": (lambda self, obs: (self.layer(self.join(obs)),), ("forward", "tuple", "tensor")),
    "raises": (lambda self, obs: obs["image"], ("forward", "KeyError: 'image'")),
    "in place": (in_place, ("forward", "in place")),
    "noise": (
        lambda self, obs: Flat.forward(self, obs) + torch.randn(6),
        ("forward", "probability"),
    ),
    "mixes rows": (
        lambda self, obs: Flat.forward(self, obs) - Flat.forward(self, obs).mean(dim=0),
        ("features", "batch"),
    ),
}


@pytest.mark.parametrize("fault", FORWARDS)
def test_what_forward_must_not_do_is_found_before_training(fault: str) -> None:
    forward, values = FORWARDS[fault]
    plain = spaces.Dict({key: INNER[key] for key in ("picture", "level", "speed", "flags")})
    layout = ObservationCodec.of("a", plain)
    with refused(ModelError, "actor of policy p", *values):
        model_of(made_of(forward), layout).try_out(torch.device("cpu"))


def normed(observation_space: Any, *, role: str) -> nn.Module:
    network = Flat()
    network.layer = nn.Sequential(nn.LazyLinear(6), nn.BatchNorm1d(6))
    return network


def dropping(observation_space: Any, *, role: str) -> nn.Module:
    network = Flat()
    network.layer = nn.Sequential(nn.LazyLinear(6), nn.Dropout(0.5))
    return network


def test_layers_that_differ_in_training_are_refused_by_name() -> None:
    """The ratio of new to old probability would be of two networks."""
    with refused(ModelError, "layer.1 (Dropout)", ".eval()"):
        model_of(dropping).try_out(torch.device("cpu"))
    with refused(ModelError, "layer.1 (BatchNorm1d)", ".eval()"):
        model_of(normed).try_out(torch.device("cpu"))


@pytest.mark.parametrize("maker", [dropping, normed])
def test_in_eval_mode_they_are_taken(maker: Any) -> None:
    model = model_of(lambda space, *, role: maker(space, role=role).eval())
    model.try_out(torch.device("cpu"))
    assert not model.module.layer[1].training


def test_trying_out_leaves_no_trace() -> None:
    class Counts(Flat):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, obs: Any) -> Any:
            self.calls += 1
            torch.rand(1)
            return super().forward(obs)

    model = model_of(lambda space, *, role: Counts())
    before = torch.get_rng_state()
    model.try_out(torch.device("cpu"))
    assert model.module.calls == 0
    assert torch.equal(torch.get_rng_state(), before)


def test_networks_that_share_weights_are_refused() -> None:
    first, other = model_of(make), model_of(make)
    require_separate_weights({"actor": first, "critic": other})
    with refused(ModelError, "critic", "actor", "make"):
        require_separate_weights({"actor": first, "critic": first})
