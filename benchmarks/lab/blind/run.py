"""Run planted trainings by name: faulty, sound, or both with scores.

python run.py 01_next_mover_paid            faulty training; corral runs go to out/01_next_mover_paid
python run.py --sound 01_next_mover_paid    the same training without the fault
python run.py --measure NAME NAME ...       both, scored next to random play; merged into results.json
python run.py --list half_a.txt             names from a file instead of the command line
"""

import argparse
import contextlib
import importlib.util
import inspect
import io
import json
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch

torch.set_num_threads(1)
warnings.simplefilter("ignore")
HERE = Path(__file__).resolve().parent


def module_of(name, alias=None):
    """Import a planted training from its file, afresh."""
    path = HERE / f"{name}.py"
    spec = importlib.util.spec_from_file_location(alias or f"plant_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def is_learner(module):
    return hasattr(module, "learn")


def judged_in(module, which):
    """The environment in which to score: (text, function or class; arguments)."""
    if is_learner(module):
        return module.make_env, {}
    env = getattr(module, "SOUND_JUDGE", None) if which == "sound" else None
    env = env or module.JUDGE
    kwargs = dict(getattr(module, "JUDGE_ARGS", {}))
    return (getattr(module, env) if hasattr(module, env) else env), kwargs


def rows_of(observation, rows):
    if isinstance(observation, dict):
        return {key: rows_of(part, rows) for key, part in observation.items()}
    return observation[rows]


def decide(policy, observation, count, rng, greedy):
    if policy is None:
        mask = np.asarray(observation["action_mask"], dtype=float)
        draws = rng.random(mask.shape) * (mask > 0)
        return draws.argmax(-1)
    if hasattr(policy, "act"):
        return policy.act(
            observation, state=policy.initial_state(count), rng=rng, deterministic=greedy
        ).action
    single = [rows_of(observation, i) for i in range(count)]
    if hasattr(policy, "predict"):
        return np.array([policy.predict(one, deterministic=greedy)[0] for one in single])
    return np.array([policy(one) for one in single])


def score(env, kwargs, policies, *, episodes=2, copies=16, seed=9_000, greedy=False, limit=20_000):
    """Mean return of an episode, per agent; policies: agent -> policy, None for random play."""
    from corral.adapters import make_batch

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        batch = make_batch(env, num_envs=copies, seed=seed, **kwargs)
    agents, rng = list(batch.rules.agents), np.random.default_rng(seed)
    box = any(not hasattr(batch.rules.action_space(a), "n") for a in agents)
    observations = batch.reset()
    running, done = np.zeros((copies, len(agents))), [[] for _ in range(copies)]
    for _ in range(limit // copies):
        acting = np.asarray(batch.acting)
        if box:
            actions = batch.sample_actions(rng)
        else:
            actions = np.zeros((copies, len(agents)), dtype=np.int64)
        for column, agent in enumerate(agents):
            rows = np.flatnonzero(acting[:, column])
            policy = policies.get(agent)
            if len(rows) == 0 or (box and policy is None):
                continue
            chosen = decide(policy, rows_of(observations[agent], rows), len(rows), rng, greedy)
            if not box:  # an illegal choice is replaced by the first legal one
                mask = np.asarray(observations[agent]["action_mask"])[rows] == 1
                if mask.ndim == 2:
                    chosen = np.where(mask[np.arange(len(rows)), chosen], chosen, mask.argmax(-1))
            if box:
                actions[agent][rows] = chosen if isinstance(actions, dict) else chosen
            else:
                actions[rows, column] = chosen
        step = batch.step(actions)
        observations = step.observations
        running += step.reward
        for row in np.flatnonzero(step.over):
            done[row].append(running[row].copy())
            running[row] = 0
        if all(len(some) >= episodes for some in done):
            break
    whole = [r for some in done for r in some[:episodes]]
    return dict(zip(agents, np.mean(whole, axis=0).tolist() if whole else [np.nan], strict=False))


def points(module, which, policies, greedy):
    """One number for a team: its return, or in a zero-sum game its return against random play."""
    env, kwargs = judged_in(module, which)
    if getattr(module, "ZERO_SUM", False):
        seats = []
        for agent in getattr(module, "AGENTS", list(policies)):
            team = {a: (policies.get(a) if a == agent else None) for a in [*policies, agent]}
            seats.append(score(env, kwargs, team, greedy=greedy)[agent])
        return float(np.mean(seats))
    return float(np.sum(list(score(env, kwargs, policies, greedy=greedy).values())))


@contextlib.contextmanager
def at_most(seconds):
    """Raise TimeoutError after so many CPU seconds."""

    def late(*_):
        raise TimeoutError(f"more than {seconds} CPU seconds")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def trained(name, which, seed=0, out=None, limit=40):
    """Train; return module, policies and CPU seconds."""
    module = module_of(name)
    begun = time.process_time()
    with at_most(limit):
        if is_learner(module):
            module.FAULT = which == "faulty"
            result = module.learn(module.make_env, module.STEPS, seed)
            policies = getattr(result, "policies", result)
        else:
            folder = Path(out or HERE / "out" / (name if which == "faulty" else f"{name}_sound"))
            shutil.rmtree(folder, ignore_errors=True)
            run = (module.train if which == "faulty" else module.sound)(str(folder), seed)
            deploy = getattr(module, "deploy", None)
            policies = dict(run.policies) if deploy is None else deploy(run, which)
    return module, policies, time.process_time() - begun


def measure(name, seed=0):
    entry = {"name": name}
    module = module_of(name)
    doc = inspect.getdoc(module)
    source = next(line for line in doc.splitlines() if line.startswith("Source: "))
    entry["fault"] = " ".join(doc.split("\n\n")[0].split())
    entry["source"] = source[8:] if "http" in source else None
    entry["kind"] = module.KIND
    greedy = getattr(module, "GREEDY", False)  # play the likeliest action, or sample
    entry["expected"] = next(line[9:] for line in doc.splitlines() if line.startswith("Harmful: "))
    for which in ("faulty", "sound"):
        try:
            module, policies, cpu = trained(name, which, seed)
            entry[f"cpu_{which}"] = round(cpu, 1)
            entry[which] = round(points(module, which, policies, greedy), 4)
        except Exception as error:
            text = traceback.format_exc().splitlines()
            entry[f"{which}_error"] = f"{type(error).__name__}: {error}"[:300]
            print("\n".join(text[-6:]))
    agents = dict.fromkeys(getattr(module, "AGENTS", ["agent_0"]))
    entry["random"] = round(points(module, "sound", agents, False), 4)
    bad, good = entry.get("faulty"), entry.get("sound")
    gain = None if good is None else good - entry["random"]
    if bad is None or gain is None or gain <= 0:
        entry["share_lost"], entry["harmful"] = None, "unmeasured"
    else:
        entry["share_lost"] = round((good - bad) / gain, 3)
        entry["harmful"] = bool(entry["share_lost"] >= 1 / 3)
    return entry


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", help="file with one name a line")
    parser.add_argument("--sound", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    names = args.names + ((HERE / args.list).read_text().split() if args.list else [])
    names = [Path(name).stem for name in names]
    results = HERE / "results.json"
    for name in names:
        if not args.measure:
            module, _, cpu = trained(name, "sound" if args.sound else "faulty", args.seed)
            print(f"{name}: trained in {cpu:.1f} CPU seconds")
            continue
        try:
            entry = measure(name, args.seed)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}"[:300], flush=True)
            continue
        known = json.loads(results.read_text()) if results.exists() else []
        known = sorted([e for e in known if e["name"] != name] + [entry], key=lambda e: e["name"])
        results.write_text(json.dumps(known, indent=1) + "\n")
        shown = {k: v for k, v in entry.items() if k not in ("fault", "expected", "source")}
        print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    main()
