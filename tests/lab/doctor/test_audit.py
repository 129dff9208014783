"""The audit of small trainers: what it says of sound ones, of broken ones, and of all kinds."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.adapters.snapshots import proof
from corral.adapters.snapshots.games import Pickled, Replay
from corral.adapters.sources import rules_of
from corral.adapters.zoo.batch import zoo_rules
from corral.algorithms import Advantages, gae, ippo
from corral.envs.arena_v0 import ArenaRules
from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.probes.episodes import CutOrEnd, Death, LaterReward, Memory
from corral.envs.probes.one_step import BitOrOpposite, EqualAdvantages, OneLegal
from corral.envs.probes.turns import ReplyPays
from corral.envs.registry import make
from corral.envs.rps_v0 import RpsRules
from corral.envs.tictactoe_v0 import TicTacToeRules
from corral.envs.tiles_v0 import TilesRules
from corral.lab.doctor import audit as audits
from corral.lab.doctor.audit import audit, sentence
from corral.lab.doctor.audit.audited import Audit, Decision
from corral.lab.doctor.audit.findings import against_truth
from corral.lab.doctor.audit.truth import CANDIDATES, candidates
from corral.trainers.capabilities import Seats
from corral.trainers.evaluation.intervals import largest_share
from corral.trainers.on_policy.trainer import IPPO, MAPPO, trainer_of
from corral.trainers.pool import Pool
from support.arena_scalar import PlainArena
from support.loads import days, small_trace
from support.messages import refused, shown
from support.probing import make_trainer
from support.thinned import fast_every

SMALL: dict[str, Any] = {"num_envs": 16, "n_steps": 8, "steps": 1000}


def causes(report: Audit) -> list[str]:
    return [one.cause for one in against_truth(report)]


def trained(rules: Any, trainer: Any = IPPO, updates: int = 30, **given: Any) -> Any:
    found = make_trainer(rules, trainer, **{"steps": updates * 64 * 8, **given})
    for _ in found.learn():
        pass
    return found


# --- Moments --------------------------------------------------------------------------------------


def test_what_snapshots_decided_is_not_asked_about() -> None:
    rules = TicTacToeRules()
    trainer = make_trainer(rules, seats=Seats(pool=Pool(past=0.7)), **SMALL)
    trainer.begin()
    seen = audits._watch_rollout(trainer, 8, 6, np.random.default_rng(0))
    learned = trainer.rollout.groups[0].learned
    frozen = 0
    for j, each in enumerate(audits._asked(trainer, rules, 0, seen)):
        assert learned[each.t, each.env_row, j].all()
        frozen += sum(int((~learned[one.t, one.rows, j]).sum()) for one in seen)
    assert frozen > 10


@pytest.mark.parametrize(
    "rules", [Death(), ReplyPays(), Memory(), TicTacToeRules()], ids=lambda rules: rules.name
)
def test_what_is_asked_about_is_what_was_decided(rules: Any) -> None:
    trainer = make_trainer(rules, **SMALL, memory=4 if isinstance(rules, Memory) else 0)
    trainer.begin()
    seen = audits._watch_rollout(trainer, 8, 6, np.random.default_rng(0))
    asked = audits._asked(trainer, rules, 0, seen)
    buffer = trainer.rollout.groups[0]
    assert sum(len(each.t) for each in asked) > 20
    for j, each in enumerate(asked):
        assert buffer.acting[each.t, each.env_row, j].all()
        observed = each.moments.observation()
        own = buffer.vector[each.t, each.env_row, j]
        flat = observed["observation"].reshape(len(each.t), -1)
        np.testing.assert_array_equal(own[:, : flat.shape[1]], flat)
        legal = np.take_along_axis(observed["action_mask"], each.taken[:, None], axis=1)
        assert legal.all()


def test_a_memory_is_the_one_before_the_decision_and_ends_with_the_episode() -> None:
    rules = Memory()
    trainer = make_trainer(rules, **SMALL, memory=4)
    trainer.begin()
    seen = audits._watch_rollout(trainer, 8, 6, np.random.default_rng(0))
    for each in audits._asked(trainer, rules, 0, seen):
        hidden = each.moments.hidden[each.agent]
        begins = each.moments.elapsed == 0
        assert begins.any()
        assert not hidden[begins].any()
        assert hidden[~begins].any(axis=1).all()


# --- Sound ones -----------------------------------------------------------------------------------


def test_a_sound_critic_is_right() -> None:
    report = audit(trained(LaterReward(), updates=60))
    (found,) = report.policies
    assert report.given_this_future
    assert (found.value_correlation or 0) > 0.99
    np.testing.assert_allclose(found.values.said, found.values.true, atol=0.2)
    np.testing.assert_allclose(found.values.error, 0, atol=1e-12)
    assert found.fitted is not None
    assert found.fitted > 0.9
    assert causes(report) == []


@pytest.mark.slow
def test_v_of_a_time_limit_is_in_the_truth() -> None:
    report = audit(trained(CutOrEnd(), updates=80))
    (found,) = report.policies
    first = np.arange(found.moments) < found.moments // 2  # agent by agent
    np.testing.assert_allclose(found.values.true[first].mean(), 9.5, atol=1.5)
    assert (found.values.true[~first] <= 3.439 + 1e-5).all()
    assert 0.3 < found.assumed < 0.5  # of one agent alone: 0.9 ** 1 .. 0.9 ** 4
    assert causes(report) == []


def test_advantages_are_compared_with_those_of_forks() -> None:
    """One step, the whole reward by the action: one sample is all there is to know."""
    trainer = make_trainer(BitOrOpposite(), **{**SMALL, "num_envs": 64})
    (found,) = audit(trainer).policies
    assert found.credit is not None
    assert found.sample is not None
    assert (found.credit.correlation or 0) > 0.9
    assert found.sample[0] > 0.8
    assert (found.advantage_correlation or 0) > 0.8
    assert found.credit.same_sign == 1.0
    assert (found.actor_gradient or 0) > 0


@pytest.mark.parametrize("rules", [OneLegal(), EqualAdvantages()], ids=lambda rules: rules.name)
def test_nothing_is_wrong_where_no_action_matters(rules: Any) -> None:
    assert causes(audit(make_trainer(rules, **SMALL))) == []


# --- Broken ones ----------------------------------------------------------------------------------


def with_advantages(change: Any) -> Any:
    def advantages(trajectories: Any, settings: Any) -> Advantages:
        found = gae(trajectories, settings)
        return Advantages(change(found.advantage), found.value_target)

    return trainer_of(ippo.but(name="planted", advantages=advantages))


def shuffled(advantage: Array) -> Array:
    flat = advantage.reshape(-1)
    return np.random.default_rng(3).permutation(flat).reshape(advantage.shape)


def planted(change: Any) -> Audit:
    rules = BitOrOpposite()
    return audit(make_trainer(rules, with_advantages(change), **{**SMALL, "num_envs": 64}))


def test_zeroed_advantages_cut_the_loss_off() -> None:
    report = planted(lambda advantage: advantage * 0)
    (finding,) = against_truth(report)
    assert finding.cause == "loss-cut-off"
    assert report.policies[0].actor_gradient == 0
    assert finding.certainty == 3


@pytest.mark.parametrize(
    ("change", "title"),
    [(shuffled, "unrelated"), (lambda advantage: -advantage, "wrong sign")],
    ids=["shuffled", "flipped"],
)
def test_advantages_of_others(change: Any, title: str) -> None:
    found = list(against_truth(planted(change)))
    assert {one.cause for one in found} == {"advantages-unrelated-to-truth"}
    assert title in found[0].title


def test_advantages_that_are_changed_after_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function itself is sound: what it returns is turned over afterwards."""
    whole = audits._learned_from

    def turned(trainer: Any) -> Any:
        found = whole(trainer)
        for each in found.values():
            each.advantage[...] = -each.advantage
        return found

    monkeypatch.setattr(audits, "_learned_from", turned)
    trainer = make_trainer(BitOrOpposite(), **{**SMALL, "num_envs": 64})
    (finding,) = against_truth(audit(trainer))
    assert finding.cause == "advantages-unrelated-to-truth"
    shown(finding.measured, 192)


# --- All kinds ------------------------------------------------------------------------------------

APART = {"tile_0": "tile", "level_0": "level"}

KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "memory": (Memory(), IPPO, {"memory": 4}),
    "memory, cut": (ArenaRules(3, 3, max_cycles=6), IPPO, {"memory": 4}),
    "in turns": (TicTacToeRules(), MAPPO, {}),
    "zero-sum": (RpsRules(), IPPO, {}),
    "one step": (RpsRules(rounds=1), IPPO, {"n_steps": 1}),
    "no discount": (ArenaRules(3, 3, max_cycles=6), MAPPO, {"gamma": 1.0}),
    "no future": (DfaasRules(small_trace(), max_cycles=8), MAPPO, {"gamma": 0.0}),
    "actions": (ArenaRules(3, 3, max_cycles=6), MAPPO, {"critic_input": "observations+actions"}),
    "images": (TilesRules(), MAPPO, {"num_envs": 4, "n_steps": 4, "policies": APART}),
}


@pytest.mark.parametrize("kind", fast_every(2, sorted(KINDS)))
def test_every_kind_is_audited(kind: str) -> None:
    rules, trainer, given = KINDS[kind]
    report = audit(make_trainer(rules, trainer, **{**SMALL, **given}), most_steps=20_000)
    assert report.env_steps > 0
    assert report.seconds > 0
    for found in report.policies:
        assert found.moments > 0
        assert np.isfinite(found.values.true).all()
        assert all("chose" in sentence(one, False) for one in found.worst)
    assert [one for one in against_truth(report) if one.certainty > 1] == []


def test_opponents_play_their_part() -> None:
    trainer = IPPO(
        TicTacToeRules(),
        IPPO.Settings(num_envs=16, n_steps=8, net_arch=(16,)),
        seed=0,
        policies={"player_1": "mine"},
        policies_to_train=["mine"],
        steps=1000,
        seats=Seats({"player_2": "random"}),
    )
    (found,) = audit(trainer, most_steps=20_000).policies
    assert found.policy == "mine"
    assert found.moments > 10


def test_the_same_seed_gives_the_same_audit() -> None:
    first, second = (
        audit(make_trainer(RpsRules(), **SMALL), most_steps=10_000, seconds=3600) for _ in range(2)
    )
    np.testing.assert_array_equal(first.policies[0].values.true, second.policies[0].values.true)
    assert first.policies[0].worst == second.policies[0].worst


def test_other_days_are_an_option() -> None:
    def trainer() -> Any:
        return make_trainer(DfaasRules(), **{**SMALL, "num_envs": 4})

    assert audit(trainer(), most_steps=5000).given_this_future
    assert not audit(trainer(), most_steps=5000, other_futures=True).given_this_future
    with refused(ValueError, "dfaas_v0"):
        audit(make_trainer(DfaasRules(small_trace()), **SMALL), other_futures=True)


@pytest.mark.parametrize("trainer", [IPPO, pytest.param(MAPPO, marks=pytest.mark.slow)])
def test_what_a_step_brings_is_other_days_where_agents_cannot_know_it(trainer: Any) -> None:
    def made(count: int) -> Any:
        rules = DfaasRules(days(count), arrivals="unknown", max_cycles=8)
        return make_trainer(rules, trainer, **{**SMALL, "num_envs": 4})

    report = audit(made(5), most_steps=5000)
    assert not report.given_this_future
    again = audit(made(5), most_steps=5000, other_futures=True)
    np.testing.assert_array_equal(report.policies[0].values.true, again.policies[0].values.true)
    assert audit(made(1), most_steps=5000).given_this_future


# --- Third-party environments ---------------------------------------------------------------------


@pytest.mark.parametrize("way", [Pickled, pytest.param(Replay, marks=pytest.mark.slow)])
def test_a_class_has_the_true_values_of_its_array_rules(
    way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "WAYS", (way,))
    wrapped = zoo_rules(functools.partial(make, "tictactoe_v0"))
    exact, copied = (
        audit(make_trainer(rules, **SMALL), most_steps=1, seconds=3600)  # the fewest forks
        for rules in (TicTacToeRules(), wrapped)
    )
    assert exact.copied is None
    assert copied.copied is not None
    assert copied.copied.way == way.name
    for one, two in zip(exact.policies, copied.policies, strict=True):
        assert len(one.values.true) >= 12
        assert one.values.true == pytest.approx(two.values.true, abs=1e-6)
        assert one.values.said == pytest.approx(two.values.said, abs=1e-6, nan_ok=True)
        assert one.advantages.true == pytest.approx(two.advantages.true, abs=1e-6)


@pytest.mark.slow
def test_the_worst_decisions_in_a_class_of_others() -> None:
    rules = zoo_rules(functools.partial(PlainArena, width=3, height=3, max_cycles=8))
    report = audit(make_trainer(rules, **SMALL), most_steps=60_000, seconds=120)
    worst = [one for each in report.policies for one in each.worst]
    assert any(one.loss > 2 * one.error for one in worst)
    assert all(one.forks >= 6 for one in worst)


@pytest.mark.slow
def test_chance_that_no_seed_covers_is_another_future() -> None:
    folder = Path(__file__).parents[3] / "docs/environments"
    rules = rules_of(f"{folder / 'multi_agent_arena.py'}:MultiAgentArena")
    report = audit(make_trainer(rules, **SMALL), most_steps=1, seconds=3600)
    assert not report.given_this_future


# --- Decisions ------------------------------------------------------------------------------------


def test_candidates_are_legal_and_others() -> None:
    mask = np.zeros((3, 20), dtype=bool)
    mask[0, :12] = mask[1, [2, 5]] = mask[2, 7] = True
    taken = np.array([4, 5, 7])
    found = candidates(mask, taken)
    assert found.shape == (3, CANDIDATES)
    assert np.take_along_axis(mask, found, axis=1).all()
    assert len(set(found[0])) == CANDIDATES
    assert 4 not in found[0]
    assert {0, 11} <= set(found[0].tolist())
    assert set(found[1].tolist()) == {2, 5}
    assert set(found[2].tolist()) == {7}


@pytest.mark.slow
def test_losses_are_not_chosen_by_what_measures_them() -> None:
    """Where all actions are equal, the loss of the best that was tried is 0 on average."""
    rules = RpsRules(rounds=1)
    trainer = make_trainer(rules, **{**SMALL, "num_envs": 64})
    found = audit(trainer, rows=48, most_steps=60_000, seconds=3600)
    losses = [one.loss for each in found.policies for one in each.worst]
    error = np.mean([one.error for each in found.policies for one in each.worst])
    assert len(losses) >= 5
    assert abs(np.mean(losses)) < 4 * error / np.sqrt(len(losses)) + 0.05


def test_equal_forks_have_a_bound_instead_of_an_error() -> None:
    assert largest_share(32) == pytest.approx(0.0894, abs=1e-4)
    assert largest_share(1000) == pytest.approx(3 / 1000, rel=0.01)
    one = Decision("node_0", 3, 12, 76, 16, 0.08, 0.0, "row 1,204", forks=32)
    shown(sentence(one, False), "0.08", "32 forks", "9%")
    assert "±" not in sentence(one, False)


def test_a_decision_in_words() -> None:
    one = Decision("node_0", 3, 12, 76, 16, 0.58, 0.01, "row 1,204", (76.0, 16.0), "requests")
    assert sentence(one, True) == (
        "node_0 chose 76 requests at row 1,204; 16 is better by 0.58 ± 0.02, for the same future"
    )
    plain = Decision("agent_1", 3, 12, 0, 2, 1.5, 0.1, "step 12")
    assert sentence(plain, False) == "agent_1 chose 0 at step 12; 2 is better by 1.5 ± 0.2"
