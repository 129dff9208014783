"""Rules about rollouts: each with a faulty rollout and its sound counterpart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening.heard import Heard, Layer, Minibatch, Rollout
from corral.lab.listening.minibatches import log_softmax
from corral.lab.listening.rules import findings_of
from corral.lab.listening.rules_obs import equal_starts
from corral.lab.listening.rules_play import late_masks, still_masks
from corral.lab.listening.rules_rollouts import RULES

STEPS, COPIES = 256, 8


def walked(seed: int = 0, steps: int = STEPS, copies: int = COPIES, late: int = 0) -> Rollout:
    """Play a walk on a line with 3 actions: left, stay, right. The goals are at -1 and 1.

    ``late``: the observation is that of so many steps before.
    """
    rng = np.random.default_rng(seed)
    spot, age = rng.uniform(-0.3, 0.3, copies), np.zeros(copies, int)
    begin = spot.copy()
    record: dict[str, list[Any]] = {name: [] for name in ("obs", "actions", "rewards")}
    ends: dict[str, list[Any]] = {"terminated": [], "truncated": []}
    states = [[item] * (late + 1) for item in spot]
    for _ in range(steps):
        shown = np.array([past[-1 - late] for past in states])
        record["obs"].append(np.stack([shown, begin, rng.normal(size=copies)], axis=1))
        action = rng.integers(0, 3, copies)
        spot = spot + 0.2 * (action - 1) + rng.normal(0, 0.01, copies)
        age += 1
        terminated = np.abs(spot) > 1
        truncated = ~terminated & (age >= 20)
        record["actions"].append(action)
        record["rewards"].append(np.where(terminated, np.sign(spot), -0.01))
        ends["terminated"].append(terminated)
        ends["truncated"].append(truncated)
        over = terminated | truncated
        spot = np.where(over, rng.uniform(-0.3, 0.3, copies), spot)
        begin, age = np.where(over, spot, begin), np.where(over, 0, age)
        states = [
            [spot[k]] * (late + 1) if over[k] else [*past, spot[k]] for k, past in enumerate(states)
        ]
    arrays = {name: np.array(values) for name, values in {**record, **ends}.items()}
    shape = (steps, copies)
    probabilities = rng.dirichlet((5, 5, 5), shape)
    log_probs = np.log(np.take_along_axis(probabilities, arrays["actions"][..., None], -1))[..., 0]
    return Rollout(**arrays, log_probs=log_probs, values=rng.normal(size=shape))


def heard(*rollouts: Rollout, updates: int = 1, **fields: Any) -> Heard:
    return Heard("policy", rollouts=list(rollouts), updates=updates, **fields)


def findings(of: Heard) -> dict[str, Finding]:
    return {found.cause: found for rule in RULES if (found := rule(of)) is not None}


ROLLOUT = walked()
LINE = ROLLOUT.obs


@pytest.mark.parametrize("seed", range(4))
def test_sound(seed: int) -> None:
    assert findings(heard(walked(seed), walked(seed + 10), updates=30)) == {}


def sparse(rewards: Any) -> Any:
    return np.where(rewards > 0.5, 1.0, 0.0)


def one_hot(values: Any, count: int) -> Any:
    return np.eye(count)[np.clip(values, 0, count - 1)]


CELL = ((LINE[..., 0] + 1.2) * 5).astype(int)

SOUND: dict[str, dict[str, Any]] = {
    "sparse rewards": {"rewards": sparse(ROLLOUT.rewards)},
    "1 in each step": {"rewards": np.ones((STEPS, COPIES))},
    "one-hot columns": {"obs": one_hot(CELL, 40)},
    "padded columns": {"obs": np.concatenate([LINE, np.zeros((STEPS, COPIES, 3))], axis=-1)},
    "images": {"obs": (255 * one_hot(CELL, 144)).astype(np.uint8).reshape(STEPS, COPIES, 12, 12)},
    "codes of states": {"obs": 100 * CELL},
    "huge rewards": {"rewards": 1e5 * ROLLOUT.rewards},
    "dicts": {"obs": {"a": LINE[..., :2], "b": (LINE[..., 2:],)}},
    "an image in a dict": {
        "obs": {"a": LINE, "b": (255 * one_hot(CELL, 16)).astype(np.uint8).reshape(256, 8, 4, 4)}
    },
    "continuous actions": {
        "actions": np.random.default_rng(0).normal(size=(STEPS, COPIES, 2)),
        "log_probs": np.full((STEPS, COPIES), 0.3),
    },
    "uniform policy": {"log_probs": np.full((STEPS, COPIES), -np.log(3))},
    "no ends given": {"terminated": None, "truncated": None},
    "nothing but rewards": dict.fromkeys(
        ("obs", "actions", "terminated", "truncated", "values", "log_probs")
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_kinds(name: str) -> None:
    assert findings(heard(replace(ROLLOUT, **SOUND[name]), updates=30)) == {}


def test_one_short_copy() -> None:
    assert findings(heard(walked(steps=16, copies=1), updates=30)) == {}


def test_turns() -> None:
    """Two agents decide in turn; the steps of the other one are not valid."""
    turn = (np.arange(STEPS)[:, None] + np.arange(COPIES)) % 2 == 0
    rewards = np.where(turn & (ROLLOUT.rewards > 0.5), 1.0, 0.0)
    obs = np.where(turn[..., None], LINE, 0.0)
    assert findings(heard(replace(ROLLOUT, valid=turn, rewards=rewards, obs=obs), updates=30)) == {}


# --- Faults --------------------------------------------------------------------------------------


def last(values: Any, changed: Any) -> Any:
    result = np.array(values, dtype=float)
    result[-1, -1] = changed
    return result


def stuck(obs: Any, ended: Any) -> Any:
    """Show the first observation of each episode again and again."""
    result = obs.copy()
    for t in range(1, len(obs)):
        result[t] = np.where(ended[t - 1][:, None], obs[t], result[t - 1])
    return result


ENDED = ROLLOUT.terminated | ROLLOUT.truncated
MASK = np.random.default_rng(1).random((STEPS, COPIES, 3)) < 0.6
np.put_along_axis(MASK, ROLLOUT.actions[..., None], True, axis=-1)
ALIKE = replace(walked(copies=1), last_values=None)


def repeated(rollout: Rollout) -> Rollout:
    fields = ("obs", "actions", "rewards", "terminated", "truncated")
    return Rollout(**{name: np.repeat(getattr(rollout, name), 4, axis=1) for name in fields})


def running(rewards: Any, ended: Any) -> Any:
    steps = np.random.default_rng(2).integers(0, 2, rewards.shape).astype(float)
    result = steps.copy()
    for t in range(1, len(steps)):
        result[t] += np.where(ended[t - 1], 0.0, result[t - 1])
    return result


NEVER = np.zeros((STEPS, COPIES), bool)
NOISE = np.random.default_rng(3)

FAULTS: dict[str, tuple[str, int, Callable[[], Heard]]] = {
    "infinite reward": (
        "reward-not-finite",
        3,
        lambda: heard(replace(ROLLOUT, rewards=last(ROLLOUT.rewards, np.inf))),
    ),
    "observation of nan": (
        "observation-not-finite",
        3,
        lambda: heard(replace(ROLLOUT, obs=last(LINE, np.nan))),
    ),
    "forbidden actions": (
        "mask-ignored-in-play",
        3,
        lambda: heard(
            replace(ROLLOUT, mask=np.random.default_rng(1).random((STEPS, COPIES, 3)) < 0.6)
        ),
    ),
    "masks of the step before": (
        "mask-lost-in-rollout",
        3,
        lambda: heard(replace(ROLLOUT, mask=np.roll(MASK, 1, axis=0))),
    ),
    "empty masks": (
        "mask-empty",
        3,
        lambda: heard(replace(ROLLOUT, mask=MASK & (np.arange(STEPS) % 64 > 0)[:, None, None])),
    ),
    "copies with the same episodes": ("copies-alike", 3, lambda: heard(repeated(walked(copies=1)))),
    "stuck observations": (
        "observation-constant",
        2,
        lambda: heard(replace(ROLLOUT, obs=stuck(LINE, ENDED))),
    ),
    "late observations": (
        "observation-late",
        2,
        lambda: heard(replace((late := walked(late=1)), obs=late.obs[..., :1])),
    ),
    "blank column": (
        "observation-blank",
        1,
        lambda: heard(
            replace(
                ROLLOUT,
                obs=np.concatenate([LINE[..., :1], 0 * LINE[..., :1], LINE], axis=-1),
            )
        ),
    ),
    "large columns": (
        "observation-unscaled",
        2,
        lambda: heard(replace(ROLLOUT, obs=LINE * [1.0, 1.0, 1e4])),
    ),
    "an end in each step": (
        "ends-each-step",
        2,
        lambda: heard(
            Rollout(
                rewards=NOISE.normal(size=(STEPS, COPIES)),
                obs=np.cumsum(NOISE.normal(size=(STEPS, COPIES, 2)), axis=0),
                terminated=~NEVER,
            )
        ),
    ),
    "no marks of ends": (
        "end-ignored",
        2,
        lambda: heard(
            Rollout(
                rewards=NOISE.normal(size=(STEPS, COPIES)),
                obs=(np.arange(STEPS)[:, None, None] % 20) + 0.3 * NOISE.random((STEPS, COPIES, 2)),
                terminated=NEVER,
            )
        ),
    ),
    "equal rewards": (
        "same-rewards",
        2,
        lambda: heard(replace(ROLLOUT, rewards=0 * ROLLOUT.rewards), updates=30),
    ),
    "tiny rewards": (
        "reward-tiny",
        2,
        lambda: heard(replace(ROLLOUT, rewards=1e-6 * ROLLOUT.rewards)),
    ),
    "running totals": (
        "reward-running-total",
        1,
        lambda: heard(replace(ROLLOUT, rewards=running(ROLLOUT.rewards, ENDED))),
    ),
    "one action": (
        "action-constant",
        2,
        lambda: heard(replace(ROLLOUT, actions=0 * ROLLOUT.actions)),
    ),
    "probabilities": (
        "log-probs-wrong",
        3,
        lambda: heard(replace(ROLLOUT, log_probs=np.exp(ROLLOUT.log_probs))),
    ),
    "log-probabilities of 0": (
        "log-probs-wrong",
        3,
        lambda: heard(replace(ROLLOUT, log_probs=0 * ROLLOUT.log_probs)),
    ),
    "values of nan": (
        "diverged",
        3,
        lambda: heard(replace(ROLLOUT, values=last(ROLLOUT.values, np.nan))),
    ),
    "equal values": (
        "values-constant",
        2,
        lambda: heard(replace(ROLLOUT, values=0 * ROLLOUT.values), updates=30),
    ),
    "misleading values": (
        "critic-misleads",
        2,
        lambda: heard(*[replace(ROLLOUT, returns=np.roll(ROLLOUT.values, 9) / 3)] * 3, updates=30),
    ),
    "idle actions": (
        "actions-idle",
        1,
        lambda: heard(
            replace(ROLLOUT, actions=np.random.default_rng(7).integers(0, 3, (STEPS, COPIES)))
        ),
    ),
    "huge targets": (
        "reward-huge",
        2,
        lambda: heard(replace(ROLLOUT, returns=1e5 * ROLLOUT.values)),
    ),
    "short horizon": (
        "myopic",
        2,
        lambda: heard(
            replace(ROLLOUT, rewards=np.where(ENDED, NOISE.normal(size=ENDED.shape), 0.0)),
            gamma=0.5,
            lengths=[20] * 50,
            returns=[0.0] * 50,
        ),
    ),
    "gamma 0 and equal rewards": (
        "myopic",
        2,
        lambda: heard(replace(ROLLOUT, rewards=np.ones(ROLLOUT.rewards.shape)), gamma=0.0),
    ),
    "falling returns": (
        "returns-fell",
        1,
        lambda: heard(
            ROLLOUT,
            updates=30,
            returns=list(np.linspace(10, 0, 600) + NOISE.normal(size=600)),
            lengths=[20] * 600,
        ),
    ),
    "episodes of one step after the first": (
        "reset-incomplete",
        2,
        lambda: heard(ROLLOUT, updates=30, lengths=[*[20] * 8, *[1] * 800], returns=[0.0] * 808),
    ),
    "normalization that drifts": (
        "observation-drifts",
        1,
        lambda: heard(*[replace(walked(k), obs=walked(k).obs + k) for k in range(7)], updates=64),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    cause, certainty, make = FAULTS[name]
    found = findings(make())
    assert found[cause].certainty == certainty
    others = {item.cause for item in found.values() if item.certainty >= 2} - {cause}
    assert others <= CONSEQUENCES.get(name, set())


CONSEQUENCES = {
    "equal rewards": {"values-constant"},
    "forbidden actions": {"mask-empty"},
}
"""Fault -> other findings that also hold."""


# --- Minibatches ---------------------------------------------------------------------------------


def batch(rows: int = 128, seed: int = 0, greedy: bool = False) -> Minibatch:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, 4))
    log_table = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    actions = (
        logits.argmax(axis=1)
        if greedy
        else np.array([rng.choice(4, p=np.exp(row)) for row in log_table])
    )
    stored = log_table[np.arange(rows), actions]
    return Minibatch(actions=actions, logits=logits, log_probs=stored, first=True)


def test_greedy_play() -> None:
    assert findings(heard(minibatches=[batch()])) == {}
    found = findings(heard(minibatches=[batch(greedy=True)]))
    assert {item.cause: item.certainty for item in found.values()} == {"play-greedy": 3}


def test_uniform_play_is_not_greedy() -> None:
    even = replace(batch(), logits=np.zeros((128, 4)), log_probs=np.full(128, -np.log(4)))
    assert findings(heard(minibatches=[even])) == {}


def test_a_game_that_sends_the_agent_back_to_a_fixed_start() -> None:
    obs = (np.arange(STEPS)[:, None, None] % 20) * np.ones((1, COPIES, 2))
    rewards = NOISE.normal(size=(STEPS, COPIES))
    found = findings(heard(Rollout(obs=obs, rewards=rewards, terminated=NEVER)))
    assert all(item.certainty == 1 for item in found.values())


@pytest.mark.parametrize("by", ["action", "row"])
def test_log_probs_of_another(by: str) -> None:
    item = batch()
    assert item.actions is not None
    assert item.log_probs is not None
    if by == "row":
        wrong = replace(item, log_probs=np.roll(item.log_probs, 1))
    else:
        wrong = replace(item, actions=(item.actions + 1) % 4)
    found = findings(heard(minibatches=[wrong]))
    assert {one.cause: one.certainty for one in found.values()} == {"probability-of-another": 3}


def test_late_minibatches_are_not_compared() -> None:
    item = replace(batch(), log_probs=-np.random.default_rng(0).random(128), first=False)
    assert findings(heard(minibatches=[item])) == {}


# --- Silence -------------------------------------------------------------------------------------


def test_values_in_the_scale_of_huge_targets() -> None:
    targets = 1e5 * ROLLOUT.values
    near = targets + NOISE.normal(size=targets.shape)
    assert "reward-huge" not in findings(heard(replace(ROLLOUT, values=near, returns=targets)))


def test_large_observations_that_the_network_divides() -> None:
    layers = {"first": Layer("Conv2d", inputs=np.ones(1)), "second": Layer("Linear")}
    of = heard(replace(ROLLOUT, obs=200 * LINE), layers=layers)
    assert "observation-unscaled" not in findings(of)


def test_gamma_0_in_episodes_of_one_step() -> None:
    rewards = np.ones(ROLLOUT.rewards.shape)
    assert "myopic" not in findings(
        heard(replace(ROLLOUT, rewards=rewards), gamma=0.0, lengths=[1])
    )


@pytest.mark.parametrize("lengths", [[1] * 800, [20] * 400 + [1] * 400])
def test_episodes_of_one_step(lengths: list[int]) -> None:
    """A bandit, and a policy that learned to end its episodes."""
    of = heard(ROLLOUT, updates=30, lengths=lengths, returns=[0.0] * len(lengths))
    assert "reset-incomplete" not in findings(of)


def test_equal_lengths_matter_for_equal_rewards() -> None:
    rollout = replace(ROLLOUT, rewards=np.ones((STEPS, COPIES)))
    lengths = list(range(10, 60))
    of = heard(rollout, updates=30, lengths=lengths, returns=[float(item) for item in lengths])
    assert "same-rewards" not in findings(of)


@pytest.mark.parametrize(("updates", "certainty"), [(2, 1), (16, 2)])
def test_short_rollouts_with_equal_rewards(updates: int, certainty: int) -> None:
    """The returns of all episodes are heard, also those of rollouts that are not recorded."""
    short = replace(ROLLOUT, rewards=0 * ROLLOUT.rewards)
    rows = {name: getattr(short, name) for name in ("obs", "actions", "rewards", "terminated")}
    of = heard(
        Rollout(**{name: column[:128] for name, column in rows.items()}),
        updates=updates,
        lengths=[20] * 200,
        returns=[0.0] * 200,
    )
    assert findings(of)["same-rewards"].certainty == certainty


def test_actions_that_matter_only_together_with_the_observation() -> None:
    """A contextual bandit: the reward tells if the action equals the observation."""
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 3, (STEPS, COPIES, 1)).astype(float)
    actions = rng.integers(0, 3, (STEPS, COPIES))
    rollout = Rollout(
        obs=obs,
        actions=actions,
        rewards=(actions == obs[..., 0]).astype(float),
        terminated=np.ones((STEPS, COPIES), bool),
    )
    assert findings(heard(rollout, updates=30)) == {}


@pytest.mark.parametrize("late", [True, False])
def test_rewards_that_follow_the_next_observation(late: bool) -> None:
    """A contextual bandit whose observation shows the question of the step before."""
    rng = np.random.default_rng(0)
    asked, actions = rng.integers(0, 4, (2, STEPS, COPIES))
    shown = np.roll(asked, 1, axis=0) if late else asked
    rollout = Rollout(
        obs=np.eye(4)[shown],
        actions=actions,
        rewards=(actions == asked).astype(float),
        terminated=np.repeat((np.arange(STEPS) % 16 == 15)[:, None], COPIES, axis=1),
    )
    found = findings(heard(rollout, updates=30))
    assert ("observation-late" in found) is late
    assert not late or found["observation-late"].certainty == 1


def test_equal_observations_of_agents_in_one_copy() -> None:
    """Agents may share an observation; they choose different actions."""
    shared = np.repeat(LINE[:, :1], COPIES, axis=1)
    ended = np.repeat(ENDED[:, :1], COPIES, axis=1)
    rollout = replace(ROLLOUT, obs=shared, terminated=ended, truncated=NEVER)
    assert "copies-alike" not in findings(heard(rollout))


def masked(how: str) -> Rollout:
    """The walk, with a mask that forbids to go on to the nearer goal, and no such actions."""
    part = walked()
    spot, begin = part.obs[..., 0], part.obs[..., 1]
    if how == "of the last copy":
        spot = np.repeat(spot[:, -1:], COPIES, axis=1)
    elif how == "of the reset":
        spot = begin
    mask = np.stack([spot > -0.1, np.ones_like(spot, bool), spot < 0.1], axis=-1)
    return replace(part, mask=mask, actions=np.ones_like(part.actions))


@pytest.mark.parametrize(
    ("how", "cause"),
    [("of the last copy", "mask-of-another"), ("of the reset", "mask-constant"), ("own", "")],
)
def test_masks_of_another_copy_or_step(how: str, cause: str) -> None:
    finding = still_masks(heard(masked(how)))
    assert ("" if finding is None else finding.cause) == cause


def cells(late: int) -> Rollout:
    """Walk on a circle of 8 cells, three of which forbid action 2; masks are ``late`` steps old."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (STEPS, COPIES))
    moved = np.cumsum(np.concatenate([np.zeros((1, COPIES), int), actions]), axis=0) % 8
    mask = np.ones((STEPS, COPIES, 3), bool)
    mask[..., 2] = moved[np.maximum(np.arange(STEPS) - late, 0)] < 5
    ended = np.zeros((STEPS, COPIES), bool)
    return Rollout(
        obs=one_hot(moved[:-1], 8),
        actions=actions,
        mask=mask,
        rewards=rng.normal(size=(STEPS, COPIES)),
        terminated=ended,
    )


def test_masks_of_the_step_before_are_named() -> None:
    found = late_masks(heard(cells(1)))
    assert found is not None
    assert (found.cause, found.certainty) == ("mask-late", 2)
    assert late_masks(heard(cells(0))) is None


@pytest.mark.parametrize(
    ("starts", "certainty"), [("own", 0), ("same", 1), ("same in each column", 2)]
)
def test_episodes_that_begin_alike(starts: str, certainty: int) -> None:
    rollout = walked(3)
    obs, begins = rollout.obs.copy(), rollout.terminated | rollout.truncated
    if starts != "own":
        rows, columns = np.nonzero(begins[:-1])
        first = np.arange(COPIES) if starts == "same in each column" else np.zeros(COPIES, int)
        obs[rows + 1, columns] = first[columns, None] + 0.125
    found = equal_starts(heard(replace(rollout, obs=obs)))
    assert (0 if found is None else found.certainty) == certainty


@pytest.mark.parametrize(
    ("gain", "play", "cause"),
    [(1.0, "samples", ""), (1.0, "modes", "play-greedy"), (300.0, "samples", "policy-sure")],
)
def test_play_is_as_random_as_the_policy(gain: float, play: str, cause: str) -> None:
    draws = np.random.default_rng(0)
    batches = []
    for update in range(1, 7):
        table = log_softmax(gain * draws.normal(size=(256, 4)))
        noise = draws.gumbel(size=table.shape) * (play == "samples")
        actions = (table + noise).argmax(axis=1)
        chosen = table[np.arange(256), actions]
        entropy = -(np.exp(table) * table).sum(axis=1)
        batches.append(
            Minibatch(
                actions=actions,
                log_probs=chosen,
                new_log_probs=chosen,
                entropy=entropy,
                first=True,
                update=update,
            )
        )
    causes = set(findings(Heard("policy", minibatches=batches)))
    assert causes == ({cause} if cause else set())


@pytest.mark.parametrize(
    ("axis", "cause"), [(None, ""), ("agents", ""), ("copies", "reward-shared")]
)
def test_rewards_averaged_over_copies(axis: str | None, cause: str) -> None:
    draws = np.random.default_rng(0)
    paid = draws.normal(size=(STEPS, COPIES // 2, 2))  # two agents in each copy
    if axis is not None:
        paid = np.broadcast_to(paid.mean(1 + (axis == "agents"), keepdims=True), paid.shape)
    found = findings(heard(replace(ROLLOUT, rewards=paid.reshape(STEPS, COPIES))))
    assert ("reward-shared" in found) == bool(cause)


@pytest.mark.parametrize(("limit", "certainty"), [(9.0, 0), (0.3, 2)])
def test_clipped_rewards(limit: float, certainty: int) -> None:
    paid = np.random.default_rng(0).normal(size=(STEPS, COPIES)).clip(-limit, limit)
    found = findings(heard(replace(ROLLOUT, rewards=paid)))
    assert (found["reward-clipped"].certainty if found else 0) == certainty


def test_a_constant_cost_beside_other_rewards_is_not_clipped() -> None:
    draws = np.random.default_rng(0)
    paid = np.where(
        draws.random((STEPS, COPIES)) < 0.1, draws.uniform(1, 3, (STEPS, COPIES)), -0.05
    )
    assert "reward-clipped" not in findings(heard(replace(ROLLOUT, rewards=paid)))


def test_episodes_that_end_at_once() -> None:
    found = findings(heard(lengths=[24, 24, 24, 24] + [1] * 96))
    assert found["reset-incomplete"].certainty == 2
    assert findings(heard(lengths=[1] * 100)) == {}
    assert findings(heard(lengths=[24] * 100)) == {}


def test_all_steps_that_end_an_episode_are_noted() -> None:
    all_end = np.ones((STEPS, COPIES), bool)
    rollout = replace(ROLLOUT, terminated=all_end, truncated=~all_end)
    record = heard(rollout, replace(rollout))
    findings_of([record])
    assert record.failed == {}


@pytest.mark.parametrize(("slope", "certainty"), [(0.0, 2), (1.0, 1)])
def test_huge_targets_that_are_learned_anyway(slope: float, certainty: int) -> None:
    draws = np.random.default_rng(0)
    targets = 3000 * draws.normal(size=(STEPS, COPIES)) + 9000
    returns = (slope * np.arange(200) + draws.normal(size=200)).tolist()
    found = findings(heard(replace(ROLLOUT, returns=targets), returns=returns))
    assert found["reward-huge"].certainty == certainty
