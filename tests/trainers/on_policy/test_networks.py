"""What networks are shown and what they play, against literals and independent restatements."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.adapters.masked_distribution import MaskedCategorical
from corral.errors import MaskError, NonFiniteError, UnsupportedSpaceError
from corral.trainers.on_policy.learner import Sequences, ValueNorm
from corral.trainers.on_policy.networks import (
    Actions,
    Categorical,
    Gaussian,
    Layout,
    MultiCategorical,
    Network,
    image_scales,
    legal_mask,
)


def random_numbers(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


# --- What is seen --------------------------------------------------------------------------------


def written(space: spaces.Space[Any], observation: Any, rows: int) -> tuple[Any, list[Any]]:
    layout = Layout.of("agent", space)
    vector = np.zeros((rows, layout.width), np.float32)
    images = [np.zeros((rows, *image), np.uint8) for image in layout.images]
    layout.write(layout.inner(observation), vector, images)
    return vector, images


def test_numbers_of_every_kind_become_columns() -> None:
    space = spaces.Dict(
        {
            "real": spaces.Box(-1, 1, (2,), np.float64),
            "grid": spaces.Box(0, 9, (1, 2), np.int64),
            "level": spaces.Box(0, 200, (1,), np.uint8),
            "which": spaces.Discrete(3, start=5),
            "both": spaces.MultiDiscrete([2, 3]),
            "flags": spaces.MultiBinary(2),
        }
    )
    observation = {
        "real": np.array([[0.5, -1.0]]),
        "grid": np.array([[[7, 9]]]),
        "level": np.array([[50]], np.uint8),
        "which": np.array([6]),
        "both": np.array([[1, 2]]),
        "flags": np.array([[0, 1]], np.int8),
    }
    names = sorted(space.spaces)  # both, flags, grid, level, real, which
    assert names == ["both", "flags", "grid", "level", "real", "which"]
    parts = {
        "real": [0.5, -1.0],
        "grid": [7, 9],
        "level": [0.25],
        "which": [0, 1, 0],
        "both": [0, 1, 0, 0, 1],
        "flags": [0, 1],
    }
    vector, images = written(space, observation, 1)
    assert vector[0].tolist() == [number for key in space.spaces for number in parts[key]]
    assert images == []


@pytest.mark.parametrize(
    ("shape", "image"), [((3, 8, 9), (3, 8, 9)), ((8, 9, 3), (3, 8, 9)), ((3, 3, 3), (3, 3, 3))]
)
def test_images_come_with_their_channels_in_front(shape: Any, image: Any) -> None:
    space = spaces.Dict({"observation": spaces.Box(0, 255, shape, np.uint8)})
    pixels = np.arange(2 * math.prod(shape)).reshape(2, *shape).astype(np.uint8)
    vector, images = written(space, {"observation": pixels}, 2)
    assert vector.shape == (2, 0)
    assert images[0].shape == (2, *image)
    expected = pixels if shape == image else np.moveaxis(pixels, -1, 1)
    assert (images[0] == expected).all()


def test_images_are_scaled_by_the_bound_of_their_space() -> None:
    space = spaces.Dict(
        {
            "plane": spaces.Box(0, 1, (1, 4, 4), np.uint8),
            "picture": spaces.Box(0, 255, (3, 4, 4), np.uint8),
        }
    )
    layout = Layout.of("agent", space)
    by_name = dict(zip([part.key for part in layout.parts], image_scales(layout), strict=True))
    assert by_name == {"plane": 1.0, "picture": 255.0}


def test_what_is_too_narrow_for_an_image_is_a_vector() -> None:
    for shape in ((2, 3), (3, 2, 8), (4,)):
        space = spaces.Box(0, 255, shape, np.uint8)
        vector, images = written(space, np.full((1, *shape), 51, np.uint8), 1)
        assert vector == pytest.approx(np.full((1, math.prod(shape)), 0.2))
        assert images == []


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(5), "agent: the observation is Text"),
        (
            spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})}),
            "entry 'a' of the observation is Dict",
        ),
        (
            spaces.Dict({"action_mask": spaces.MultiBinary(2), "seen": spaces.Discrete(2)}),
            r"beside action_mask there is \['seen'\]",
        ),
    ],
)
def test_other_spaces_are_refused_by_name(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=message):
        Layout.of("agent", space)


def test_masks_hold_zero_and_one() -> None:
    assert legal_mask("a", np.array([0, 1], np.int8)).tolist() == [False, True]
    assert legal_mask("a", np.array([0.0, 1.0])).tolist() == [False, True]
    assert legal_mask("a", np.array([False, True])).tolist() == [False, True]
    for wrong in (np.array([0, 2], np.int8), np.array([-1, 1], np.int8), np.array([0.5, 1.0])):
        with pytest.raises(MaskError, match="a: action_mask holds"):
            legal_mask("a", wrong)


# --- What is played ------------------------------------------------------------------------------


@st.composite
def logits_and_masks(draw: Any) -> tuple[Any, Any]:
    rows, actions = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.1, 3.0, 1e4, 2e8]))
    mask = rng.random((rows, actions)) < draw(st.sampled_from([0.2, 0.7, 1.0]))
    mask[np.arange(rows), rng.integers(actions, size=rows)] = True
    logits = rng.normal(size=(rows, actions)).astype(np.float32) * np.float32(scale)
    return torch.from_numpy(logits), torch.from_numpy(mask)


@settings(max_examples=200, deadline=None)
@given(logits_and_masks())
def test_categorical_agrees_with_masked_categorical(case: tuple[Any, Any]) -> None:
    logits, mask = case
    ours, theirs = Categorical(logits, mask), MaskedCategorical(logits, mask)
    assert torch.equal(ours.mode, theirs.mode)
    assert torch.allclose(ours.entropy(), theirs.entropy(), atol=1e-5)
    for action in range(logits.shape[1]):
        taken = torch.full((len(logits),), action)
        assert torch.equal(ours.log_prob(taken), theirs.log_prob(taken))
    for seed in range(5):
        drawn = ours.sample(random_numbers(seed))
        assert mask.gather(-1, drawn[:, None]).all()


@settings(max_examples=50, deadline=None)
@given(logits_and_masks())
def test_illegal_logits_get_no_gradient(case: tuple[Any, Any]) -> None:
    logits, mask = case[0].requires_grad_(), case[1]
    choice = Categorical(logits, mask)
    loss = choice.log_prob(choice.mode).sum() + choice.entropy().sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(gradient).all()
    assert not gradient[~mask].any()


def test_a_single_legal_action_has_no_gradient_at_all() -> None:
    logits = torch.tensor([[3.0, -200.0, 1.0]], requires_grad=True)
    choice = Categorical(logits, torch.tensor([[False, True, False]]))
    log_prob, entropy = choice.log_prob(torch.tensor([1])), choice.entropy()
    assert log_prob.item() == 0.0
    assert entropy.item() == 0.0
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), logits)
    assert gradient.tolist() == [[0.0, 0.0, 0.0]]


def test_samples_come_as_often_as_they_should_and_illegal_ones_never() -> None:
    logits = torch.tensor([[0.0, 50.0, 1.0, -3.0, 2.0]]).expand(200_000, 5)
    mask = torch.tensor([[True, False, True, True, False]]).expand(200_000, 5)
    drawn = Categorical(logits, mask).sample(random_numbers())
    shares = np.bincount(drawn.numpy(), minlength=5) / len(drawn)
    weights = np.array([1.0, 0.0, math.e, math.exp(-3), 0.0])
    assert shares == pytest.approx(weights / weights.sum(), abs=0.005)
    assert shares[1] == shares[4] == 0.0


def test_what_cannot_be_chosen_from_is_named() -> None:
    mask = torch.tensor([[True, True], [False, False]])
    choice = Categorical(torch.zeros(2, 2), mask)
    with pytest.raises(MaskError, match="no action is legal in row 1"):
        choice.sample(random_numbers())
    with pytest.raises(MaskError, match="no action is legal in row 1"):
        _ = choice.mode
    with pytest.raises(NonFiniteError, match="row 0"):
        Categorical(torch.tensor([[math.nan, 0.0]]), torch.tensor([[True, True]]))
    with pytest.raises(NonFiniteError, match="not finite"):
        Gaussian(torch.tensor([[math.inf]]), torch.zeros(1))


def test_several_choices_are_independent() -> None:
    first, second = torch.randn(4, 2, generator=random_numbers()), torch.zeros(4, 3)
    space = spaces.MultiDiscrete([2, 3])
    actions = Actions("agent", space)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[:, 4] = False
    choice = actions.distribution(torch.cat([first, second], -1), mask, None)
    assert isinstance(choice, MultiCategorical)
    taken = torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0]])
    each = first.log_softmax(-1).gather(-1, taken[:, :1])[:, 0] + math.log(0.5)
    assert choice.log_prob(taken).tolist() == pytest.approx(each.tolist(), abs=1e-6)
    entropy = Categorical(first, mask[:, :2]).entropy() + math.log(2)
    assert choice.entropy().tolist() == pytest.approx(entropy.tolist(), abs=1e-6)
    drawn = torch.stack([choice.sample(random_numbers(seed)) for seed in range(50)])
    assert drawn.shape == (50, 4, 2)
    assert set(drawn[..., 1].unique().tolist()) == {0, 1}
    assert choice.mode.tolist() == [[row.argmax().item(), 0] for row in first]
    played = actions.played(taken.numpy())
    assert all(space.contains(row) for row in played)
    assert actions.shown(taken.numpy())[0].tolist() == [1, 0, 0, 1, 0]


def test_gaussian_agrees_with_torch() -> None:
    mean, log_std = torch.randn(5, 2, generator=random_numbers()), torch.tensor([-0.5, 0.7])
    ours, theirs = Gaussian(mean, log_std), torch.distributions.Normal(mean, log_std.exp())
    taken = torch.randn(5, 2, generator=random_numbers(1))
    assert torch.allclose(ours.log_prob(taken), theirs.log_prob(taken).sum(-1), atol=1e-5)
    assert torch.allclose(ours.entropy(), theirs.entropy().sum(-1), atol=1e-6)
    many = Gaussian(mean[:1].expand(100_000, 2), log_std).sample(random_numbers())
    assert many.mean(0).tolist() == pytest.approx(mean[0].tolist(), abs=0.03)
    assert many.std(0).tolist() == pytest.approx(log_std.exp().tolist(), abs=0.03)


def test_boxes_are_stored_unclipped_and_played_within_their_bounds() -> None:
    low, high = np.array([0, -np.inf, 0], np.float32), np.array([4, np.inf, np.inf], np.float32)
    actions = Actions("agent", spaces.Box(low, high))
    stored = np.array([[0.0, 3.0, -1.0], [0.5, -3.0, 2.0], [7.0, 0.0, 0.0]], np.float32)
    assert actions.played(stored).tolist() == [[2, 3, 0], [3, -3, 2], [4, 0, 0]]
    assert actions.played(stored).dtype == np.float32
    shaped = Actions("agent", spaces.Box(-1, 1, (2, 2), np.float64))
    assert shaped.played(np.zeros((3, 4), np.float32)).shape == (3, 2, 2)


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3, start=1), spaces.Box(0, 5, (2,), np.int64), spaces.MultiBinary(3)],
)
def test_other_actions_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(UnsupportedSpaceError, match="agent: action space"):
        Actions("agent", space)


def test_a_mask_must_fit_the_actions() -> None:
    seen = spaces.Dict(
        {"observation": spaces.Discrete(2), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
    )
    layout = Layout.of("agent", seen)
    Actions("agent", spaces.Discrete(3)).require_mask("agent", layout, seen)
    Actions("agent", spaces.MultiDiscrete([2, 1])).require_mask("agent", layout, seen)
    for space in (spaces.Discrete(4), spaces.Box(0, 1, (3,), np.float32)):
        with pytest.raises(UnsupportedSpaceError, match=r"a mask of shape \(3,\)"):
            Actions("agent", space).require_mask("agent", layout, seen)


# --- Networks ------------------------------------------------------------------------------------


def network(width: int = 6, images: Any = (), seed: int = 0, **changes: Any) -> Network:
    given: dict[str, Any] = {
        "outputs": 4,
        "gain": 0.01,
        "net_arch": (16, 8),
        "activation": "tanh",
        "memory": 0,
        "generator": random_numbers(seed),
    }
    return Network(width, images, [255.0] * len(images), **{**given, **changes})


def test_weights_begin_orthogonal() -> None:
    made = network(memory=8)
    for layer in (made.layers[0], made.layers[2]):
        wide = layer.weight.detach()
        gram = wide @ wide.T if wide.shape[0] <= wide.shape[1] else wide.T @ wide
        assert torch.allclose(gram, 2 * torch.eye(len(gram)), atol=1e-5)
    head = made.head.weight.detach()
    assert torch.allclose(head @ head.T, 1e-4 * torch.eye(4), atol=1e-8)
    for gate in made.gru.weight_hh_l0.detach().chunk(3):
        assert torch.allclose(gate @ gate.T, torch.eye(8), atol=1e-5)
    assert not any(values.any() for name, values in made.named_parameters() if "bias" in name)


def test_weights_come_from_the_generator_given_and_from_no_other() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = network(images=[(3, 8, 8)], memory=4).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again = network(images=[(3, 8, 8)], memory=4).state_dict()
    other = network(images=[(3, 8, 8)], memory=4, seed=1).state_dict()
    assert all(torch.equal(values, again[name]) for name, values in first.items())
    drawn = [name for name in first if "bias" not in name]
    assert len(drawn) == 2 + 1 + 2 + 2 + 1  # of the CNN, its layer, hidden, GRU, head
    assert not any(torch.equal(first[name], other[name]) for name in drawn)


@pytest.mark.parametrize(
    ("image", "features"),
    [((3, 3, 3), 128), ((1, 5, 9), 128), ((3, 9, 16), 128), ((2, 35, 35), 128), ((3, 36, 36), 256)],
)
def test_images_of_every_size_reach_all_layers(image: Any, features: int) -> None:
    made = network(width=2, images=[image], activation="relu")
    assert made.layers[0].in_features == 2 + features
    pixels = torch.randint(0, 256, (5, *image), dtype=torch.uint8, generator=random_numbers())
    outputs = made([torch.ones(5, 2), pixels])
    assert outputs.shape == (5, 4)
    outputs.square().sum().backward()
    for name, values in made.named_parameters():
        assert values.grad is not None, name
        assert torch.isfinite(values.grad).all()
        assert values.grad.abs().sum() > 0, name
    darker = made([torch.ones(5, 2), pixels // 2])
    assert not torch.equal(outputs, darker)


@pytest.mark.parametrize(
    ("image", "arch", "patch", "weights", "features"),
    [
        ((3, 32, 32), (8, 16), 8, [(8, 3, 8, 8), (16, 8 * 16)], 16),
        ((1, 12, 8), (4, 6, 10), 4, [(4, 1, 4, 4), (6, 4, 3, 3), (10, 6 * 6)], 10),
        ((3, 32, 32), None, 16, [(32, 3, 16, 16), (128, 32 * 4)], 128),
        (
            *((3, 16, 16), (4, 5, 6, 7), 0),
            *([(4, 3, 3, 3), (5, 4, 3, 3), (6, 5, 3, 3), (7, 6 * 4)], 7),
        ),
        ((3, 8, 8), (4, 5, 7), 0, [(4, 3, 3, 3), (5, 4, 3, 3), (7, 5 * 64)], 7),
        (
            *((3, 36, 36), (4, 5, 6, 7), 0),
            *([(4, 3, 8, 8), (5, 4, 4, 4), (6, 5, 3, 3), (7, 6)], 7),
        ),
    ],
)
def test_a_cnn_can_be_given(
    image: Any, arch: Any, patch: int, weights: list[tuple[int, ...]], features: int
) -> None:
    made = network(width=2, images=[image], cnn_arch=arch, cnn_patch=patch)
    found = [tuple(w.shape) for name, w in made.cnns[0].named_parameters() if "weight" in name]
    assert found == weights
    assert made.layers[0].in_features == 2 + features
    pixels = torch.randint(0, 256, (5, *image), dtype=torch.uint8, generator=random_numbers())
    outputs = made([torch.ones(5, 2), pixels])
    outputs.square().sum().backward()
    assert outputs.shape == (5, 4)
    assert all(w.grad is not None and w.grad.abs().sum() > 0 for w in made.cnns.parameters())


def test_squares_of_an_image_are_taken_in_apart() -> None:
    """What one square shows changes the features of that square alone."""
    made = network(width=0, images=[(3, 32, 32)], cnn_arch=(8, 16), cnn_patch=8)
    image = torch.zeros(1, 3, 32, 32)
    other = image.clone()
    other[0, 1, 9, 17] = 1.0  # in the square of row 1, column 2
    with torch.inference_mode():
        change = (made.cnns[0][0](other) - made.cnns[0][0](image)).abs().sum(dim=1)[0]
    assert change.shape == (4, 4)
    assert change.nonzero().tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("image", "given", "message"),
    [
        ((3, 32, 32), {"cnn_patch": 5}, "cnn_patch=5: images of 32 x 32 pixels do not fall into"),
        ((3, 32, 32), {"cnn_arch": (8, 16)}, "such as (32, 64, 64, 128)"),
        ((3, 8, 8), {"cnn_arch": (8, 16, 16, 8)}, "give 3 numbers"),
    ],
)
def test_a_cnn_that_does_not_fit_is_named(image: Any, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        network(images=[image], **given)


def test_images_are_shown_between_zero_and_one() -> None:
    made = network(width=0, images=[(1, 4, 4)])
    seen: list[Any] = []
    made.cnns[0].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    made([torch.zeros(1, 0), torch.full((1, 1, 4, 4), 51, dtype=torch.uint8)])
    assert seen[0].unique().tolist() == pytest.approx([0.2])


# --- Memory --------------------------------------------------------------------------------------


@st.composite
def plays(draw: Any) -> tuple[Any, Any]:
    steps, columns = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    acted = rng.random((steps, columns)) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    begins = rng.random((steps, columns)) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    begins[0] = False
    return acted, begins


@settings(max_examples=200, deadline=None)
@given(plays())
def test_going_through_sequences_is_playing_step_by_step(case: tuple[Any, Any]) -> None:
    acted, begins = case
    steps, columns = acted.shape
    made = network(width=3, memory=5, gain=1.0)
    seen = torch.randn(steps * columns, 3, generator=random_numbers())
    kept = torch.randn(columns, 5, generator=random_numbers(1))
    held, outputs, after = kept.clone(), {}, np.zeros((steps, columns, 5), np.float32)
    with torch.no_grad():
        for t in range(steps):
            for c in range(columns):
                if begins[t, c]:
                    held[c] = 0
                if acted[t, c]:
                    row = t * columns + c
                    out, new = made.step([seen[row : row + 1]], held[c : c + 1])
                    outputs[row], held[c] = out[0], new[0]
                after[t, c] = held[c]
        sequences = Sequences(acted, begins)
        found: dict[int, Any] = {}
        order = np.random.default_rng(0).permutation(len(sequences.lengths))
        for chosen in np.array_split(order, 2):
            if not len(chosen):
                continue
            decisions, padded, at = sequences.pick(chosen)
            rows = sequences.rows[decisions]
            goes_on = torch.from_numpy(sequences.goes_on[chosen])
            before = kept[sequences.column[chosen]] * goes_on[:, None]
            states = made.unroll(
                [seen[rows]], before, torch.from_numpy(padded), torch.from_numpy(at)
            )
            for row, state in zip(rows.tolist(), states, strict=True):
                assert row not in found
                found[row] = state
    assert found.keys() == outputs.keys()
    for row, state in found.items():
        assert torch.allclose(made.head(state), outputs[row], atol=1e-5)
    latest = sequences.last_decision()
    for t in range(steps):
        for c in range(columns):
            if latest[t, c] >= 0:
                state = found[int(sequences.rows[latest[t, c]])].numpy()
            else:
                state = kept[c].numpy() if sequences.episode[t, c] == 0 else np.zeros(5)
            assert after[t, c] == pytest.approx(state, abs=1e-5)


# --- Values --------------------------------------------------------------------------------------


def test_value_norm_has_no_bias_of_its_beginning() -> None:
    norm = ValueNorm(decay=0.9)
    assert (norm.mean, norm.scale) == (0.0, 1.0)
    norm.update(torch.tensor([1.0, 3.0]))
    assert norm.mean == pytest.approx(2.0)
    assert norm.scale == pytest.approx(1.0)
    norm.update(torch.tensor([10.0, 10.0]))
    weights = np.array([0.9, 1.0]) / 1.9
    mean = weights @ [2, 10]
    assert norm.mean == pytest.approx(mean)
    assert norm.scale == pytest.approx(math.sqrt(weights @ [5, 100] - mean**2))


def test_value_norm_goes_there_and_back() -> None:
    norm = ValueNorm()
    returns = torch.randn(1000, generator=random_numbers()) * 30 - 500
    norm.update(returns)
    scaled = norm.normalize(returns)
    assert scaled.mean().item() == pytest.approx(0, abs=1e-4)
    assert scaled.std(correction=0).item() == pytest.approx(1, abs=1e-4)
    assert torch.allclose(norm.restore(scaled), returns, atol=1e-3)
    other = ValueNorm()
    other.load_state_dict(norm.state_dict())
    assert (other.mean, other.scale) == (norm.mean, norm.scale)


def test_value_norm_of_constant_returns_and_of_none() -> None:
    norm = ValueNorm()
    norm.update(torch.zeros(0))
    assert (norm.mean, norm.scale) == (0.0, 1.0)
    norm.update(torch.full((5,), 7.0))
    assert norm.normalize(torch.full((5,), 7.0)).tolist() == [0.0] * 5
    assert torch.isfinite(norm.normalize(torch.tensor([8.0]))).all()
    off = ValueNorm(enabled=False)
    off.update(torch.full((5,), 7.0))
    assert off.normalize(torch.tensor([8.0])).tolist() == [8.0]
