"""Networks and their hidden states, against literals and independent restatements."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.adapters.networks import Network
from corral.trainers.on_policy.learner import Sequences, ValueNorm


def random_numbers(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


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
        ((3, 32, 32), {"cnn_patch": 5}, "cnn_patch=5"),
        ((3, 32, 32), {"cnn_arch": (8, 16)}, "such as (32, 64, 64, 128)"),
        ((3, 8, 8), {"cnn_arch": (8, 16, 16, 8)}, "(8, 16, 16, 8)"),
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
            continues = torch.from_numpy(sequences.continues[chosen])
            before = kept[sequences.column[chosen]] * continues[:, None]
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
