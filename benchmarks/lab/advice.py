"""The doctor's first advice, followed in 20 faulty runs: is the run mended?

    OMP_NUM_THREADS=1 python benchmarks/lab/advice.py run [--only NAME]
    OMP_NUM_THREADS=1 python benchmarks/lab/advice.py follow
    python benchmarks/lab/advice.py report

``run`` trains a faulty and a sound version with equal budgets, plays both and random play, and asks
the doctor (--no-audit --no-clone) for its first advice, if the fault is harmful. A reader of the
advice then fills in ``FOLLOWED``, and ``follow`` trains again. Lines go to results/advice.jsonl.

Candidates, in this order: every tenth fault of tests/faults, every second plant of
blind/half_a.txt that trains corral's own trainers, and the other such plants. The first 20 harmful
ones count. A fault is harmful if it costs a third of the sound version's gain over random play or
more, and mended if it no longer does.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).with_name("blind")))

import run as planted
from common import RESULTS, append_row, kept_rows, machine
from parallel import cpu_seconds, play

from corral import algorithms as alg

FOLDER = Path(__file__).with_name("blind")
FILE = RESULTS / "advice.jsonl"
WANTED = 20
LOST = 1 / 3
"""Share of the gain from which a fault is harmful."""

GROWTH = 20
"""Factor on the env steps of a gallery's run, which has three updates."""

SOUND = "the sound piece"


def sound_gallery() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the environment and the arguments of each drawn fault's run, without the fault.

    The draw was every tenth fault, and is kept: a fault that is added later moves none.
    """
    from corral.envs import arena_v0
    from faults import masks, networks, views
    from faults.sound import Pictured, depots

    dfaas: tuple[Any, dict[str, Any]] = ("dfaas_v0", {})
    return {
        "advantages_never_filled": dfaas,
        "rewards_divided_in_advantages": dfaas,
        "normalized_in_loss_by_itself": ("dfaas_v0", {"ent_coef": 0.01}),
        "value_clip_tiny": dfaas,
        "learning_rate_tiny": dfaas,
        "mask_dropped_in_rollout_where_it_is_penalised": (
            "arena_v0",
            {"env_kwargs": masks.OPEN_WALLS},
        ),
        "mask_lost_after_reload": ("arena_v0", {"env_kwargs": masks.WALLS}),
        "image_branch_frozen": (
            depots(Pictured),
            {"model": lambda space, *, role: networks.Pictures(), "trainer": "ippo"},
        ),
        "reward_of_another_in_the_update": (depots(), {"policies": "separate"}),
        "hidden_state_zero_in_the_update": (
            depots(),
            {"trainer": "ippo", "memory": 8, "n_steps": 30},
        ),
        "half_of_a_minibatch_dropped": dfaas,
        "observation_late_in_a_wrapper": (arena_v0.parallel_env(max_cycles=12), {}),
        "everybody_is_the_first": (depots(views.AllLoads), {}),
    }


@contextlib.contextmanager
def changed(growth: int = 1, **settings: Any) -> Iterator[None]:
    """Add settings, or another env, to all trainings of the block; multiply their env steps."""
    import corral

    train: Callable[..., Any] = corral.train

    def other(env: Any, **given: Any) -> Any:
        return train(**{"env": env, **given, "steps": growth * given["steps"], **settings})

    corral.train = other
    try:
        yield
    finally:
        corral.train = train


@dataclass(frozen=True)
class Case:
    """A fault of the gallery or a plant."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def planted(self) -> bool:
        return self.name[0].isdigit()

    @property
    def fault(self) -> str:
        from faults import FAULTS

        if not self.planted:
            return FAULTS[self.name].mistake
        return " ".join(str(planted.module_of(self.name).__doc__).split("\n\n")[0].split())

    def train(self, which: str, folder: Path, **settings: Any) -> Any:
        """Train the "faulty" or the "sound" version; return what ``points`` and ``ask`` need."""
        if self.planted:
            with changed(**settings):
                module, policies, _ = planted.trained(self.name, which, out=folder, limit=200)
            return module, policies
        from faults import FAULTS, trained

        with changed(GROWTH, **settings):
            if which == "faulty":
                run = FAULTS[self.name].make(folder)
            else:
                env, given = sound_gallery()[self.name]
                run = trained(folder, env, **given)
            stopped = not (folder / "checkpoints").exists()  # by an exception
        return run, dict.fromkeys(run.config.policies) if stopped else run.policies

    def points(self, which: str, trained: Any) -> float:
        """Return the return of a team in the sound environment; of random play without a team."""
        if self.planted:
            module, policies = trained
            greedy = bool(policies) and getattr(module, "GREEDY", False)
            agents = policies or dict.fromkeys(getattr(module, "AGENTS", ["agent_0"]))
            return planted.points(module, which, agents, greedy)
        env, given = sound_gallery()[self.name]
        scored = planted.score(env, given.get("env_kwargs", {}), trained[1])
        return float(sum(scored.values()))

    def ask(self, folder: Path, trained: Any) -> Any:
        """Return the diagnosis of the faulty run."""
        import corral

        if not self.planted:
            return corral.diagnose(trained[0], audited=False, cloned=False)
        module, file = trained[0], FOLDER / f"{self.name}.py"
        named = {
            word: f"{file}:{value}" if value is not None and hasattr(module, value) else value
            for word, value in (
                ("env", module.ENV),
                ("trainer", module.TRAINER),
                ("model", module.MODEL),
            )
        }
        return corral.diagnose(folder, **named, audited=False, cloned=False)


def candidates() -> list[Case]:
    plants = [
        name
        for name in (FOLDER / "half_a.txt").read_text().split()
        if planted.module_of(name).KIND == "corral"
    ]
    return [Case(name) for name in (*sound_gallery(), *plants[::2], *plants[1::2])]


def first_advice(diagnosis: Any, run: Path) -> dict[str, Any]:
    """Return what a reader meets first: the first command, or the first finding."""
    advice: dict[str, Any] = {"verdict": diagnosis.verdict}
    if diagnosis.next_steps:
        step = diagnosis.next_steps[0]
        command = step.command.replace(str(run), "RUN")
        return {**advice, "title": step.reason, "todo": command}
    for finding in diagnosis.findings:
        if not finding.follows:
            return {
                **advice,
                "cause": finding.cause,
                "certainty": finding.certainty,
                "title": finding.title,
                "measured": finding.measured,
                "todo": finding.todo,
            }
    return advice


def harms(row: dict[str, Any], value: float) -> bool:
    """Return True if a return is a third of the sound gain or more below the sound one."""
    gain = row["sound"] - row["random"]
    return bool(gain > 0 and value <= row["sound"] - LOST * gain)


def measured(case: Case) -> dict[str, Any] | None:
    """Return the returns of a plant that blind/run.py --measure has stored; None without them."""
    stored = json.loads((FOLDER / "results.json").read_text())
    row = next((row for row in stored if row["name"] == case.name), {})
    if row.get("harmful", "unmeasured") == "unmeasured":
        return None
    return {"before": row["faulty"], "sound": row["sound"], "random": row["random"]}


def examined(case: Case, folder: Path) -> dict[str, Any]:
    """Measure the harm of a fault, ask for advice if it is harmful, and return the line."""
    place, faulty, scores = folder / case.name, None, measured(case)
    if scores is None:
        sound = case.train("sound", folder / f"{case.name}_sound")
        faulty = case.train("faulty", place)
        nobody = (sound[0], None if case.planted else dict.fromkeys(sound[1]))
        scores = {
            "before": case.points("faulty", faulty),
            "sound": case.points("sound", sound),
            "random": case.points("sound", nobody),
        }
    row = {"name": case.name, "fault": case.fault, **scores, "about": machine("torch")}
    row["harmful"] = harms(row, row["before"])
    if row["harmful"]:
        faulty = faulty or case.train("faulty", place)
        began = cpu_seconds()
        row["advice"] = first_advice(case.ask(place, faulty), place)
        row["doctor_cpu"] = round(cpu_seconds() - began, 1)
    return row


# --- Advice, followed ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Followed:
    """What a reader did on the first advice."""

    did: str
    change: Any  # SOUND, settings of the next training, or None: nothing could be done


def normalized(trajectories: Any, settings: Any) -> Any:
    """Return the faulty advantages of ``rewards_divided_in_advantages``, normalized."""
    found, valid = alg.gae(trajectories, settings), trajectories.valid
    tiny = found.advantage * 1e-6
    scaled = (tiny - tiny[valid].mean()) / tiny[valid].std()
    return alg.Advantages(scaled, found.value_target)


class Potential(planted.module_of("10_circling_pays").SoundGrid):  # type: ignore[misc]
    """The grid of ``10_circling_pays``; a step away takes the bonus back."""

    metadata = {"name": "potential"}  # noqa: RUF012

    def step(self, action: Any) -> Any:
        far = abs(self.here - self.goal).sum()
        view, reward, *ends = super().step(action)
        return view, reward + 0.3 * float(far - abs(self.here - self.goal).sum()), *ends


FOLLOWED: dict[str, Followed] = {
    "advantages_never_filled": Followed("the code that computes advantages, corrected", SOUND),
    "rewards_divided_in_advantages": Followed(
        "advantages normalized", {"trainer": alg.mappo.but(name="mine", advantages=normalized)}
    ),
    "normalized_in_loss_by_itself": Followed("the normalization in the loss, removed", SOUND),
    "value_clip_tiny": Followed("clip_range_vf omitted", {"clip_range_vf": None}),
    "learning_rate_tiny": Followed("learning_rate omitted: the default", SOUND),
    "mask_lost_after_reload": Followed("the loaded policies use the mask", SOUND),
    "mask_dropped_in_rollout_where_it_is_penalised": Followed("masks stored", SOUND),
    "image_branch_frozen": Followed("nothing: it asks for a larger budget", None),
    "22_each_copy_normalizes_for_itself": Followed("no code found that replaces actions", None),
    "10_circling_pays": Followed("the bonus is the difference of a potential", {"env": Potential}),
    "12_actions_count_from_one": Followed("moves matched against 0 to 3", SOUND),
    "17_bytes_wrap_around": Followed("positions converted before subtracting", SOUND),
    "33_softmax_inside_the_network": Followed("the network returns features", SOUND),
    "35_rewards_of_the_neighbour_copy": Followed("nothing: it asks for a larger budget", None),
    "40_gradients_pile_up": Followed("the pile cleared between steps", SOUND),
    "38_one_policy_without_names": Followed("agent_id kept", {"agent_id": True}),
    "24_bootstraps_through_ends": Followed("the trace cut at ends", SOUND),
    "08_names_sorted_as_text": Followed("rewards by agent name", SOUND),
    "20_rewards_in_reverse": Followed("rewards by agent name", SOUND),
    "05_mask_inverted": Followed("masks corrected: 1 for legal actions", SOUND),
}
"""Name of a case -> what was done. Names are those of cases whose advice a reader has seen."""


def followed(case: Case, rows: dict[str, dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Follow the advice, train again, and return the line."""
    row, step = rows[case.name], FOLLOWED[case.name]
    if step.change is None:
        after = row["before"]
    elif step.change == SOUND:  # the same code, settings and seed as those of the sound version
        after = row["sound"]
    else:
        after = case.points("faulty", case.train("faulty", folder / case.name, **step.change))
    return {"followed": case.name, "did": step.did, "after": after, "about": machine("torch")}


def report(rows: list[dict[str, Any]]) -> None:
    """Write the count and a table."""
    order = [case.name for case in candidates()]
    cases = sorted(
        (row for row in rows if row.get("name") in order), key=lambda row: order.index(row["name"])
    )
    after = {row["followed"]: row for row in rows if "followed" in row}
    harmful = [row for row in cases if row["harmful"]][:WANTED]
    mended = [
        row
        for row in harmful
        if row["name"] in after and not harms(row, after[row["name"]]["after"])
    ]
    lines = [
        "# The first advice of the doctor, followed",
        "",
        f"{len(mended)} of {len(harmful)} faulty runs are mended by the first advice. Rules were "
        "made or improved while the plants were read, for 05, 08, 10, 12, 17, 20, 33 and 40: "
        "unseen faults may get worse advice. See LOG.md.",
        "",
        "| fault | verdict | first advice | done | before | after | sound | random | mended |",
        "|---|---|---|---|--:|--:|--:|--:|---|",
    ]
    for row in harmful:
        advice, then = row["advice"], after.get(row["name"], {"did": "", "after": row["before"]})
        text = f"{advice.get('title', 'none')} {advice.get('todo', '')}".replace("|", "\\|")
        lines.append(
            f"| {row['name'].replace('_', ' ')}: {row['fault']} | {advice['verdict']} | {text} "
            f"| {then['did']} | {row['before']:.4g} | {then['after']:.4g} | {row['sound']:.4g} "
            f"| {row['random']:.4g} | {'yes' if row in mended else 'no'} |"
        )
    harmless = ", ".join(row["name"].replace("_", " ") for row in cases if not row["harmful"])
    lines += ["", f"Candidates that did no harm, and were left out: {harmless}."]
    text = "\n".join(lines) + "\n"
    (RESULTS / "advice.md").write_text(text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "follow", "report"))
    parser.add_argument("--only", default="", metavar="NAMES", help="cases, with commas")
    args = parser.parse_args()
    rows = kept_rows(FILE)
    if args.what == "report":
        report(rows)
        return
    cases = {row["name"]: row for row in rows if "name" in row}
    done = {row["followed"] for row in rows if "followed" in row}
    keep = functools.partial(append_row, FILE)
    with tempfile.TemporaryDirectory() as folder:
        if args.what == "follow":
            waiting = [Case(name) for name in FOLLOWED if name in cases and name not in done]
            play(waiting, functools.partial(followed, rows=cases, folder=Path(folder)), keep)
            return
        wanted = args.only.split(",") if args.only else [case.name for case in candidates()]
        for name in wanted:
            if name not in cases:
                play([Case(name)], functools.partial(examined, folder=Path(folder)), keep)


if __name__ == "__main__":
    main()
