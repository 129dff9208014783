"""How quick the in-house learner is, beside a bare torch loop and a CleanRL-style one.

    OMP_NUM_THREADS=1 python benchmarks/core/learner_speed.py
    OMP_NUM_THREADS=1 python benchmarks/core/learner_speed.py --against ../other/.venv/bin/python

All at equal settings: dfaas_v0, three agents of edge3 that share one policy, 64 environments x 64
steps in a rollout, 4 epochs of 4 minibatches, actor and critic apart with two layers of 64, Adam,
gradients clipped at 0.5, one thread. Once with mappo's own activation and entropy bonus (relu,
none), once with those of the example (tanh, 0.003).

- mappo and ippo, whole, and the learning part of each update: values, advantages, epochs. Like the
  example's, ippo's critic sees the agent's observation; mappo's sees the global state too.
- The bare loop: the epochs of one update as a textbook writes them, on random tensors of mappo's
  shapes, and nothing else: shuffled rows, torch's Categorical, the losses, clip_grad_norm_, Adam.
- The example: docs/plug_it_in/cleanrl_example.py, with these settings in place of its constants.

Each is a process of its own; they take turns in every round, and ratios are taken within a round,
so that a machine that slows down slows all of them. Seconds are those of the process on its core,
so that waiting for a busy machine does not count. ``--against`` names the interpreter of another
version of corral, whose mappo and ippo then take their turns too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributions import Categorical

sys.path.insert(0, str(Path(__file__).parents[1]))

from alternating import Rounds, alternate, quotients, serve, spread
from common import machine, save

from corral.envs.registry import make_rules

ROUNDS, UPDATES, SEED = 5, 8, 0
GAME: dict[str, Any] = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48}
NUM_ENVS, STEPS, EPOCHS, MINIBATCHES, UNITS = 64, 64, 4, 4, 64
LEARNING_RATE, GAMMA, LAMBDA, CLIP, MAX_GRAD_NORM = 2e-3, 0.5, 0.9, 0.2, 0.5
SETTINGS = {"relu, no entropy bonus": ("relu", 0.0), "tanh, entropy bonus": ("tanh", 0.003)}
TRAINERS = ("mappo", "ippo")
BARE, EXAMPLE, OTHER = "bare loop", "example", ", other version"
Run = Callable[[], dict[str, float]]


def told(seconds: float, learning: float | None = None) -> dict[str, float]:
    """Return the env steps per second and the seconds of learning, per update, of a measurement."""
    found = {"env_steps_per_s": UPDATES * NUM_ENVS * STEPS / seconds}
    return found if learning is None else {**found, "learning": learning / UPDATES}


# --- The contenders ------------------------------------------------------------------------------


def in_house(name: str, activation: str, ent_coef: float) -> Run:
    """A trainer of whichever corral is imported, this version or an older one."""
    try:
        from corral.trainers.base import trainer_class
    except ImportError:
        from corral.trainers.trainer import trainer_class

    rules = make_rules("dfaas_v0", **GAME)
    trainer = trainer_class(name)
    names = {field.name for field in fields(trainer.Settings)}
    settings = {
        "num_envs" if "num_envs" in names else "copies": NUM_ENVS,
        "n_steps": STEPS,
        "n_epochs": EPOCHS,
        "n_minibatches": MINIBATCHES,
        "net_arch": (UNITS, UNITS),
        "activation": activation,
        "learning_rate": LEARNING_RATE,
        "anneal": False,
        "gamma": GAMMA,
        "gae_lambda": LAMBDA,
        "clip_range": CLIP,
        "ent_coef": ent_coef,
        "huber_delta": None,
        "max_grad_norm": MAX_GRAD_NORM,
    }
    updates = trainer(
        rules,
        trainer.Settings(**settings),
        seed=SEED,
        policies=dict.fromkeys(rules.agents, "all"),
        policies_to_train=["all"],
        steps=10**9,
    ).learn()

    def run() -> dict[str, float]:
        began, parts = time.process_time(), [next(updates).seconds for _ in range(UPDATES)]
        seconds = time.process_time() - began
        # The trainer's parts are told by the clock: learning has its share of what the core gave.
        learning = sum(part["learning"] for part in parts)
        return told(seconds, seconds * learning / sum(sum(part.values()) for part in parts))

    return run


def network(features: int, outputs: int, activation: str) -> nn.Sequential:
    act = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
    hidden = (nn.Linear(features, UNITS), act(), nn.Linear(UNITS, UNITS), act())
    return nn.Sequential(*hidden, nn.Linear(UNITS, outputs))


def bare_loop(activation: str, ent_coef: float) -> Run:
    """The epochs of an update in plain torch, on random tensors of a rollout of mappo."""
    rules = make_rules("dfaas_v0", **GAME)
    agents, (agent, *_) = len(rules.agents), rules.agents
    features = rules.observation_space(agent)["observation"].shape[0] + agents
    actions = int(rules.action_space(agent).n)
    rows, state = NUM_ENVS * STEPS * agents, rules.state_space().shape[0]

    torch.manual_seed(SEED)
    b_obs, b_state = torch.randn(rows, features), torch.randn(rows, features + state)
    # As in dfaas_v0 the legal actions are the first ones; scattered masks would cost more.
    b_mask = torch.arange(actions) < torch.randint(1, actions + 1, (rows, 1))
    b_action, b_log_prob = torch.zeros(rows, dtype=torch.int64), torch.full((rows,), -3.0)
    b_advantage, b_return = torch.randn(rows), torch.randn(rows)
    actor = network(features, actions, activation)
    critic = network(features + state, 1, activation)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, eps=1e-5)

    def run() -> dict[str, float]:
        began = time.process_time()
        for _ in range(UPDATES * EPOCHS):
            for mb in torch.randperm(rows).chunk(MINIBATCHES):
                policy = Categorical(logits=actor(b_obs[mb]).masked_fill(~b_mask[mb], -torch.inf))
                ratio = (policy.log_prob(b_action[mb]) - b_log_prob[mb]).exp()
                mb_advantage = b_advantage[mb]
                surrogate = torch.min(
                    ratio * mb_advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * mb_advantage
                )
                value = critic(b_state[mb]).squeeze(-1)
                loss = (value - b_return[mb]).square().mean() - surrogate.mean()
                if ent_coef:
                    loss = loss - ent_coef * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
                optimizer.step()
        return {"learning": (time.process_time() - began) / UPDATES}

    return run


def cleanrl_example(activation: str, ent_coef: float) -> Run:
    """The example in docs/plug_it_in with other constants, and two hidden layers, not one."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from support.frameworks import example

    module = example("cleanrl")
    constants = {
        "NUM_ENVS" if hasattr(module, "NUM_ENVS") else "COPIES": NUM_ENVS,
        "ROLLOUT": STEPS,
        "EPOCHS": EPOCHS,
        "MINIBATCHES": MINIBATCHES,
        "LEARNING_RATE": LEARNING_RATE,
        "GAMMA": GAMMA,
        "LAMBDA": LAMBDA,
        "CLIP": CLIP,
        "ENTROPY": ent_coef,
    }
    for name, value in constants.items():
        getattr(module, name)  # raises where the example no longer has it
        setattr(module, name, value)

    class Agent(module.Agent):
        def __init__(self, features: int, actions: int) -> None:
            nn.Module.__init__(self)
            self.actor = network(features, actions, activation)
            self.critic = network(features, 1, activation)

    module.Agent = Agent

    def run() -> dict[str, float]:
        began = time.process_time()
        module.learn(UPDATES * NUM_ENVS * STEPS, SEED)
        return told(time.process_time() - began)

    return run


def contender(worker: str, activation: str, ent_coef: float) -> Run:
    if worker in TRAINERS:
        return in_house(worker, activation, ent_coef)
    return {BARE: bare_loop, EXAMPLE: cleanrl_example}[worker](activation, ent_coef)


# --- The tables ----------------------------------------------------------------------------------


def ratios(answers: Rounds, task: str) -> dict[str, list[float]]:
    """Return the ratios that tell how quick mappo and ippo are, each round by round."""

    def of(name: str, what: str) -> list[float]:
        return [answer[what] for answer in answers[name][task]]

    found: dict[str, list[float]] = {}
    for name in TRAINERS:
        others = [(OTHER, "other version")] if name + OTHER in answers else []
        learning, whole = of(name, "learning"), of(name, "env_steps_per_s")
        found[f"seconds of learning, {name} / {BARE}"] = quotients(learning, of(BARE, "learning"))
        for suffix, label in others:
            theirs = of(name + suffix, "learning")
            found[f"seconds of learning, {name} / {label}"] = quotients(learning, theirs)
        theirs = of(EXAMPLE, "env_steps_per_s")
        found[f"env steps/s, {name} / {EXAMPLE}"] = quotients(whole, theirs)
        for suffix, label in others:
            theirs = of(name + suffix, "env_steps_per_s")
            found[f"env steps/s, {name} / {label}"] = quotients(whole, theirs)
    return found


def page(answers: Rounds) -> str:
    lines = ["# How quick the in-house learner is", ""]
    for task in SETTINGS:
        lines += [
            f"## {task}",
            "",
            "| what | env steps/s, median | min | max | ms of learning per update, median | min "
            "| max |",
            "|---|--:|--:|--:|--:|--:|--:|",
        ]
        for name, tasks in answers.items():
            cells = ["| | ", "| | "]
            found = {key: [answer[key] for answer in tasks[task]] for key in tasks[task][0]}
            if "env_steps_per_s" in found:
                cells[0] = spread(found["env_steps_per_s"], ",.0f")
            if "learning" in found:
                cells[1] = spread([1000 * s for s in found["learning"]], ".1f")
            lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
        lines += ["", "| ratio | median of the rounds | min | max |", "|---|--:|--:|--:|"]
        for name, numbers in ratios(answers, task).items():
            lines.append(f"| {name} | {spread(numbers, '.2f')} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="PYTHON", help="interpreter of another version")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.worker:
        serve({task: contender(asked.worker, *given) for task, given in SETTINGS.items()})
        return
    workers = {}
    for name in TRAINERS:
        workers[name] = (sys.executable, name)
        if asked.against:
            workers[name + OTHER] = (asked.against, name)
    workers |= {name: (sys.executable, name) for name in (BARE, EXAMPLE)}
    answers, checkouts = alternate(workers, __file__, list(SETTINGS), ROUNDS)
    about = {
        **machine("torch"),
        "OMP_NUM_THREADS": "1",  # of each contender
        "seed": SEED,
        "rounds": ROUNDS,
        "checkout": checkouts["mappo"],
    }
    if asked.against:
        about["other version"] = checkouts["mappo" + OTHER]
    found = {task: ratios(answers, task) for task in SETTINGS}
    save("learner_speed", page(answers), {"rounds": answers, "ratios": found}, about)


if __name__ == "__main__":
    main()
