"""Self-play with and without a pool of frozen snapshots: how much can be won of what comes out.

    OMP_NUM_THREADS=1 python benchmarks/core/self_play.py [--part tictactoe|rps|arena]
                                                          [--runs FOLDER]

**tictactoe_v0.** mappo with its preset, plain and with a pool drawn by pfsp, at equal env steps,
three seeds. Judged: 1,000 games in each seat against perfect play, drawn at random among best
moves, and against random play; and the exact exploitability (what a best response wins of a game,
mean over both seats) of every checkpoint, greedy and sampled.

**rps_v0.** Plain self-play, a pool drawn uniformly, a pool drawn by pfsp: exact exploitability of
the policy as it is at each checkpoint, and of the mean of the checkpoints so far. Beside it the run
that beats beat-last in every round, and what ``corral.exploit`` says of it.

**arena_v0.** Two policies. Plain, and with the explorer against a pool of blockers in half of the
episodes: each checkpoint's explorer plays each checkpoint's blocker, sampled. A rating is the mean
return against all checkpoints of the other side. arena_v0 is no zero-sum game: there is nothing to
win or lose, so ratings are returns, not Elo's.

Each finished run's figures are kept in results/self_play.json at once: a benchmark that was cut off
goes on where it was, and so does a training whose run is in ``--runs``. ``--draw`` draws the
pictures and the table again; ``--fresh`` forgets the figures of the parts that are played.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save
from self_play_pictures import arena_picture, rps_picture, tictactoe_picture

import corral
from corral.envs import make_rules
from corral.envs.policy import Decision, PolicyBase
from corral.envs.reference import reference_player
from corral.lab.exploit.exact import exploitability
from corral.trainers.evaluation.episodes import play_episodes
from corral.trainers.evaluation.zero_sum import evaluate_seat

SEEDS = (0, 1, 2)
EPISODES = 1000
TICTACTOE: dict[str, Any] = {"steps": 600_000, "checkpoint_every": 60_000}
TICTACTOE_POOLS = {"no pool": None, "pfsp": "past=0.2,every=20000,draw=pfsp"}
RPS: dict[str, Any] = {
    "steps": 100_000,
    "checkpoint_every": 4_096,
    "learning_rate": 1e-3,
    "ent_coef": 0.1,
}
RPS_POOLS = {
    "no pool": None,
    "uniform": "past=0.5,every=5000,draw=uniform,best=0",
    "pfsp": "past=0.5,every=5000,draw=pfsp,best=0",
}
ARENA: dict[str, Any] = {"steps": 150_000, "checkpoint_every": 25_000, "policies": "separate"}
ARENA_POOLS = {"no pool": None, "pool of blockers": "past=0.5,every=10000,seat=agent_1,best=0"}
ARENA_EPISODES = 32
ONE_SIDE = {"steps": 16_000, "opponents": {"player_1": "beat-last"}}
Found = dict[str, Any]
Train = Callable[..., Path]


# --- Training and keeping -------------------------------------------------------------------------


def train(runs: Path, env: str, what: str, seed: int, **settings: Any) -> Path:
    """Train, or go on with what is there; return the run's folder."""
    folder = runs / f"{env}-{what.replace(' ', '_')}-{seed}"
    if folder.is_dir():
        every = settings.get("checkpoint_every")
        corral.resume(folder, checkpoint_every=every, progress=False)
    else:
        corral.train(
            env, trainer="mappo", seed=seed, out=folder, keep="all", progress=False, **settings
        )
    return folder


def moments(folder: Path) -> list[int]:
    """Return the env steps of a run's checkpoints, in order."""
    return sorted(int(path.name[5:]) for path in (folder / "checkpoints").glob("step_*"))


def team(folder: Path, env_steps: int) -> Mapping[str, Any]:
    return corral.load_run(f"{folder}@{env_steps}").policies


def known() -> Found:
    path = RESULTS / "self_play.json"
    return json.loads(path.read_text()) if path.exists() else {}


def keep(part: str, key: str, value: Any) -> None:
    """Add a figure to what is in the results by now: another part may run beside this one."""
    found = known()
    found.setdefault(part, {})[key] = value
    (RESULTS / "self_play.json").write_text(json.dumps(found, indent=1) + "\n")
    print(part, key, "done", file=sys.stderr, flush=True)


# --- tictactoe_v0 ---------------------------------------------------------------------------------


def tictactoe(train: Train, what: str, seed: int) -> Found:
    folder = train("tictactoe_v0", what, seed, self_play=TICTACTOE_POOLS[what], **TICTACTOE)
    rules = make_rules("tictactoe_v0", illegal="raise")
    found: Found = {"curve": []}
    for at in moments(folder):
        now = team(folder, at)
        both = (exploitability(rules, now, deterministic=greedy) for greedy in (True, False))
        found["curve"].append([at, *both])
    for which in ("latest", "best"):
        judged = corral.load_run(f"{folder}@{which}")
        found[which] = {"source": judged.source()}
        for mode, greedy in (("greedy", True), ("sampled", False)):
            own: Found = {}
            for seat, other in itertools.permutations(rules.agents):
                for opponent in ("perfect", "random"):
                    score = evaluate_seat(
                        rules,
                        seat,
                        judged.policies[seat],
                        reference_player(opponent, rules, other),
                        episodes=EPISODES,
                        num_envs=500,
                        deterministic=greedy,
                    )
                    shares = (score.won, score.drawn, score.lost)
                    own[f"{seat}, {opponent}"] = [round(share * EPISODES) for share in shares]
            own["exploitability"] = exploitability(rules, judged.policies, deterministic=greedy)
            found[which][mode] = own
    return found


def tictactoe_table(runs: Found) -> list[str]:
    lines = [
        f"## tictactoe_v0, {TICTACTOE['steps']:,} env steps",
        "",
        "![exploitability while training](self_play_tictactoe.svg)",
        "",
        f"Won/drawn/lost of {EPISODES:,} games by the latest checkpoint; what a best response wins "
        "of a game, exactly.",
        "",
        "| self-play | seed | plays | player_1: perfect | random | player_2: perfect | random "
        "| exploitability | of @best |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for what, seed in itertools.product(TICTACTOE_POOLS, SEEDS):
        if (run := runs.get(f"{what} {seed}")) is None:
            continue
        for mode in ("greedy", "sampled"):
            own = run["latest"][mode]
            cells = [
                "/".join(map(str, own[f"{seat}, {other}"]))
                for seat in ("player_1", "player_2")
                for other in ("perfect", "random")
            ]
            best = run["best"][mode]["exploitability"]
            lines.append(
                f"| {what} | {seed} | {mode} | {' | '.join(cells)} "
                f"| {own['exploitability']:.4f} | {best:.4f} |"
            )
    return lines


# --- rps_v0 ---------------------------------------------------------------------------------------


class Mean(PolicyBase):
    """Plays each action with the mean of its probabilities under several policies."""

    def __init__(self, policies: Sequence[Any]) -> None:
        self.policies = policies

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(
        self, observation: Any, state: Any = None, rng: Any = None, deterministic: bool = False
    ) -> Decision:
        told = [
            policy.act(observation, None, np.random.default_rng(0)).extra["probabilities"]
            for policy in self.policies
        ]
        mean = np.mean(told, axis=0)  # [..., A]
        action = mean.argmax(axis=-1)
        if not deterministic:
            drawn = rng.random(mean.shape[:-1])[..., None]
            action = np.minimum((mean.cumsum(axis=-1) < drawn).sum(axis=-1), mean.shape[-1] - 1)
        return Decision(action, extra={"probabilities": mean})


def rps(train: Train, what: str, seed: int) -> Found:
    folder = train("rps_v0", what, seed, self_play=RPS_POOLS[what], **RPS)
    rules, curve, teams = make_rules("rps_v0"), [], []
    for at in moments(folder):
        teams.append(team(folder, at))
        mean = {agent: Mean([each[agent] for each in teams]) for agent in rules.agents}
        curve.append([at, exploitability(rules, teams[-1]), exploitability(rules, mean)])
    return {"curve": curve}


def one_side(train: Train, seed: int) -> Found:
    """Learn to beat beat-last; return rounds won and lost of 10, and what exploit says of it."""
    folder = train("rps_v0", "beat-last", seed, **ONE_SIDE)
    run, rules = corral.load_run(folder), make_rules("rps_v0")
    found: Found = {}
    for name in ("beat-last", "copy-last", "always-same"):
        other = reference_player(name, rules, "player_1")
        score = evaluate_seat(rules, "player_0", run.policies["player_0"], other, episodes=200)
        found[name] = [score.kpis["won"], score.kpis["lost"]]
    greedy, sampled = (corral.exploit(run, sampled=each) for each in (False, True))
    for mode, told in (("greedy", greedy), ("sampled", sampled)):
        says, known = str(told).splitlines()[0], told.headline.references
        best = max(known, key=lambda name: known[name])  # of the game's own players
        row = {"value": told.headline.value, "says": says, "named": [best, known[best]]}
        found[f"exploit, {mode}"] = row
    return found


def rps_table(runs: Found) -> list[str]:
    lines = [
        f"## rps_v0, {RPS['steps']:,} env steps",
        "",
        "![exploitability while training](self_play_rps.svg)",
        "",
        "What a best response wins of an episode of 10 rounds, sampled play; random play: 0, a "
        "player that can be foreseen: 10.",
        "",
        "| self-play | seed | mean of the checkpoints | least | most | at the end "
        "| mean policy, at the end |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for what, seed in itertools.product(RPS_POOLS, SEEDS):
        if (run := runs.get(f"{what} {seed}")) is None:
            continue
        own = [value for _, value, _ in run["curve"]]
        values = (float(np.mean(own)), min(own), max(own), own[-1], run["curve"][-1][2])
        lines.append(f"| {what} | {seed} | " + " | ".join(f"{v:.2f}" for v in values) + " |")
    lines += [
        "",
        f"player_0 against beat-last, {ONE_SIDE['steps']:,} env steps; greedy, rounds won and lost "
        "of 10.",
        "",
        "| seed | beat-last | copy-last | always-same | corral exploit, greedy | sampled |",
        "|--:|--:|--:|--:|---|---|",
    ]
    for seed in SEEDS:
        if (run := runs.get(f"beat-last {seed}")) is None:
            continue
        rounds = [f"{won:.2f}, {lost:.2f}" for won, lost in list(run.values())[:3]]
        told = [run[f"exploit, {mode}"] for mode in ("greedy", "sampled")]
        said = [f"{e['says']} {e['named'][0]} gets {e['named'][1]:.2f}." for e in told]
        lines.append(f"| {seed} | {' | '.join([*rounds, *said])} |")
    return lines


# --- arena_v0 -------------------------------------------------------------------------------------


def arena(train: Train, what: str, seed: int) -> Found:
    """Return the mean returns of explorer and blocker, by the checkpoints of both."""
    folder = train("arena_v0", what, seed, self_play=ARENA_POOLS[what], **ARENA)
    times = moments(folder)
    teams = [team(folder, at) for at in times]
    blockers = [each["agent_2"] for each in teams]
    returns = [[meet(mine["agent_1"], other) for other in blockers] for mine in teams]
    rules = make_rules("arena_v0")
    references = {
        name: meet(teams[-1]["agent_1"], reference_player(name, rules, "agent_2"))
        for name in ("random", "chase")
    }
    return {"times": times, "returns": returns, "references": references}


def meet(explorer: Any, blocker: Any) -> list[float]:
    rules = make_rules("arena_v0")
    greedy = dict.fromkeys(rules.agents, False)
    players = {"agent_1": explorer, "agent_2": blocker}
    played, _ = play_episodes(rules, players, greedy, episodes=ARENA_EPISODES)
    return [round(float(mean), 3) for mean in played.returns.mean(axis=0)]


def crossing(train: Train, seed: int) -> Found:
    """Return what the last explorer of each run earns against the last blocker of each."""
    last = {}
    for what, pool in ARENA_POOLS.items():
        folder = train("arena_v0", what, seed, self_play=pool, **ARENA)
        last[what] = team(folder, moments(folder)[-1])
    return {
        f"{mine}; {other}": meet(last[mine]["agent_1"], last[other]["agent_2"])
        for mine, other in itertools.product(last, repeat=2)
    }


def arena_table(runs: Found) -> list[str]:
    lines = [
        f"## arena_v0, {ARENA['steps']:,} env steps",
        "",
        "![ratings while training, and who met whom](self_play_arena.svg)",
        "",
        f"Mean returns, sampled, {ARENA_EPISODES} episodes for each pair of checkpoints. A rating "
        "is the mean over all checkpoints of the other side.",
        "",
        "| self-play | seed | explorer's rating: first | half | last | least, last explorer "
        "| blocker's rating: first | half | last | last explorer: random | chase |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for what, seed in itertools.product(ARENA_POOLS, SEEDS):
        if (run := runs.get(f"{what} {seed}")) is None:
            continue
        table = np.array(run["returns"])  # [explorer, blocker, 2]
        mine, theirs = table[..., 0].mean(axis=1), table[..., 1].mean(axis=0)
        half = len(mine) // 2
        values = [mine[0], mine[half], mine[-1], table[-1, :, 0].min()]
        values += [theirs[0], theirs[half], theirs[-1]]
        values += [run["references"][name][0] for name in ("random", "chase")]
        lines.append(f"| {what} | {seed} | " + " | ".join(f"{v:.1f}" for v in values) + " |")
    pairs = list(itertools.product(ARENA_POOLS, repeat=2))
    lines += [
        "",
        "Return of the last explorer of one training against the last blocker of another, same "
        "seed.",
        "",
        "| seed | " + " | ".join(f"explorer: {one}; blocker: {two}" for one, two in pairs) + " |",
        "|--:|" + "--:|" * len(pairs),
    ]
    for seed in SEEDS:
        if run := runs.get(f"crossing {seed}"):
            cells = (f"{run[f'{one}; {two}'][0]:.1f}" for one, two in pairs)
            lines.append(f"| {seed} | {' | '.join(cells)} |")
    return lines


# --- All of it ------------------------------------------------------------------------------------


def plan(part: str) -> dict[str, Callable[[Train], Found]]:
    """Return what is to be found for a part: key -> what finds it."""
    play, pools = {
        "tictactoe": (tictactoe, TICTACTOE_POOLS),
        "rps": (rps, RPS_POOLS),
        "arena": (arena, ARENA_POOLS),
    }[part]
    found = {
        f"{what} {seed}": functools.partial(play, what=what, seed=seed)
        for seed, what in itertools.product(SEEDS, pools)
    }
    also = {"rps": ("beat-last", one_side), "arena": ("crossing", crossing)}
    if part in also:
        name, play_also = also[part]
        found |= {f"{name} {seed}": functools.partial(play_also, seed=seed) for seed in SEEDS}
    return found


def draw_all() -> None:
    """Write the table and the pictures of what is known."""
    found = known()
    tables = {"tictactoe": tictactoe_table, "rps": rps_table, "arena": arena_table}
    pictures = {"tictactoe": tictactoe_picture, "rps": rps_picture, "arena": arena_picture}
    lines = ["# Self-play"]
    for part, table in tables.items():
        if part in found:
            lines += ["", *table(found[part])]
            (RESULTS / f"self_play_{part}.svg").write_text(pictures[part](found[part]))
    found.pop("about", None)
    save("self_play", "\n".join(lines), found, machine("torch", "gymnasium", "pettingzoo"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=("tictactoe", "rps", "arena", "all"), default="all")
    parser.add_argument("--runs", type=Path, help="folder of the runs; default: for the time being")
    parser.add_argument("--draw", action="store_true", help="table and pictures alone")
    parser.add_argument("--fresh", action="store_true", help="forget the figures of these parts")
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts = ("tictactoe", "rps", "arena") if given.part == "all" else (given.part,)
    with tempfile.TemporaryDirectory() as folder:
        runs = functools.partial(train, given.runs or Path(folder))
        for part in () if given.draw else parts:
            if given.fresh:
                found = known()
                found.pop(part, None)
                (RESULTS / "self_play.json").write_text(json.dumps(found))
            for key, find in plan(part).items():
                if key not in known().get(part, {}):
                    keep(part, key, find(runs))
    draw_all()


if __name__ == "__main__":
    main()
