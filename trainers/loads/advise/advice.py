"""What an advice holds, in words and as advice.json; docs/advise.md explains its layout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from corral.envs.dfaas_v0.baselines import meaning
from corral.text import pasted
from corral.trainers.evaluation.tables import table_of
from corral.trainers.loads.advise.team import Team
from corral.trainers.loads.advise.verdict import LOCAL, Decision, Saving
from corral.trainers.loads.advise.what_ifs import WhatIf
from corral.trainers.loads.paired import has_costs, paired_headings, paired_lines
from corral.trainers.loads.replay import Replay
from corral.trainers.loads.report import write_report
from corral.trainers.loads.scores import ordered
from corral.trainers.runs.files import replace_text
from corral.trainers.runs.run_config import versions

__all__ = ["ADVICE", "FORMAT", "NOT_CONSIDERED", "Advice", "Chosen", "written"]

ADVICE = "advice.json"
FORMAT = 1

SHOWN = 5
"""Rules in the table of the terminal, but for those that do the same as one before."""

SECOND_OFFER = (
    "A request that is refused is offered to the others once more: the gateway must do that."
)
"""It is not considered whether it does; with ``second_offer``."""

HEADINGS = {"post_mortem": "The costliest day", "rule_of_thumb": "A rule of thumb"}

NOT_CONSIDERED = (
    "A node knows how many requests arrive in a step before it chooses; a gateway knows them only "
    "when the step is over.",
    "Requests are all alike: each takes one unit of capacity, and those forwarded arrive in the "
    "same step.",
    "Days to come are taken to be like these, and one like any other of its kind.",
    "Capacity is as the trace says, whatever is forwarded; servers that are down are a what-if.",
)


@dataclass(frozen=True)
class Chosen:
    """The rule that is recommended, and what choosing it so costs on days it was not chosen on."""

    rule: str  # of least cost over all days
    cost: float  # share of the arrivals, each day by the rule that was the best on the others
    lost: float
    days: Mapping[str, int]  # rule -> days whose others chose it; one day alone: empty
    alike: Sequence[str] = ()  # other rules that cost the same on every day
    beside_local: Saving | None = None
    runner_up: tuple[str, Saving] | None = None  # where it is local play: the best other one

    def to_json(self) -> dict[str, Any]:
        """Return its values."""
        beside = None if self.beside_local is None else self.beside_local.to_json()
        other = None
        if self.runner_up is not None:
            other = {"rule": self.runner_up[0], "saving": self.runner_up[1].to_json()}
        plain = {k: getattr(self, k) for k in ("rule", "cost", "lost")}
        lists = {"days": dict(self.days), "alike": list(self.alike)}
        return {**plain, **lists, "beside_local": beside, "runner_up": other}


@dataclass(frozen=True)
class Advice:
    """What to run on the nodes of a load, what it saves, and how sure that is."""

    verdict: tuple[str, ...]  # sentences; the first says what to run
    chosen: Chosen
    replay: Replay = field(repr=False)  # of all rules, on all days
    worth: float  # points
    team: Team | None = None
    decision: Decision | None = None  # of the team; None: none was judged
    no_team: str = ""  # why there is none
    what_ifs: Sequence[WhatIf] = ()
    notes: Sequence[str] = ()  # how it was judged, and what is in doubt
    not_considered: Sequence[str] = NOT_CONSIDERED
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else was found out about the team, by its name in advice.json: each has ``lines()`` and
    ``to_json()``."""
    folder: Path = Path()

    @property
    def run(self) -> str:
        """What to run: "team" or "rule"."""
        worth_it = self.decision is not None and self.decision.answer == "worth it"
        return "team" if worth_it else "rule"

    def table(self) -> Table:
        """Return the best rules and local play on all days, and the team on those held out, for 80
        columns."""
        rules, replay = len(self.replay.sums), self.replay
        if replay.best_rule is None:  # one window
            return self._plain_table()
        table = table_of(f"best of {rules} rules", paired_headings(replay))
        seen: set[tuple[str, ...]] = set()
        for policy, *cells in paired_lines(replay):
            if (tuple(cells) not in seen and len(seen) < SHOWN) or policy == LOCAL:
                table.add_row(policy, *cells)
            seen.add(tuple(cells))
        if self.team is not None:
            table.add_section()
            for policy, *cells in paired_lines(self.team.replay):
                if policy in ("team", self.team.rule):
                    table.add_row(f"{policy}, days held out", *cells)
        return table

    def _plain_table(self) -> Table:
        """Return what rules lost, where there are no other windows to choose a rule on."""
        table = table_of("rule", ["cost %", "lost %", "forwarded %"])
        scores = [score for score in ordered(self.replay.scores) if score.policy != "optimum"]
        for place, score in enumerate(scores):
            if place < SHOWN or score.policy == LOCAL:
                shares = score.cost, score.lost, score.forwarded
                table.add_row(score.policy, *(f"{100 * share:.2f}" for share in shares))
        return table

    def lines(self) -> list[str]:
        """Return all of it in words; the verdict comes last."""
        found = [line for each in self.more.values() for line in each.lines()]
        return [*found, *(line for _, part in self.sections() for line in part)]

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Yield headings and sentences, as they are printed after what is in ``more``; the verdict
        is the last."""
        if self.what_ifs:
            yield "What if", [line for each in self.what_ifs for line in each.lines()]
        yield "How it was judged", list(self.notes)
        yield "Not considered", list(self.not_considered)
        yield "Verdict", list(self.verdict)

    def files(self) -> list[str]:
        """Return where what was found is, in lines."""
        found = [f"Report: {self.folder / 'report.html'}", f"Advice: {self.folder / ADVICE}"]
        if self.team is not None:
            found[1:1] = [f"Report of the rules on all days: {self.folder / 'rules/report.html'}"]
            folder = pasted(self.team.run.folder)
            found.append(f"The team: {folder} (corral evaluate {folder}@best)")
        if len(self.replay.trace.nodes) > 1:
            found.append(f"Put it to work: corral serve {pasted(self.folder)}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return what advice.json holds."""
        trace, (low, high) = self.replay.trace, self.replay.rows
        decision = self.decision
        team = None if self.team is None or decision is None else self.team.to_json()
        if team is not None and decision is not None:
            team["more_windows"] = decision.more
        scores = [score for score in self.replay.scores if score.policy != "optimum"]
        columns = ["policy", "cost", "lost", "forwarded"]
        columns += ["difference", "difference_low", "difference_high"]
        rules = [{k: getattr(score, k) for k in columns} for score in scores]
        return {
            "format": FORMAT,
            "verdict": list(self.verdict),
            "run": self.run,
            "answer": None if decision is None else decision.answer,
            "rule": self.chosen.to_json(),
            "meaning": meaning(self.chosen.rule),
            "team": team,
            "no_team": self.no_team,
            "worth": self.worth,
            "costs": has_costs(self.replay),
            "unit": "day" if self.replay.days else "window",
            "windows": self.replay.windows,
            "remainder": self.replay.remainder,
            "window": self.replay.window,
            "rules": sorted(rules, key=lambda row: float(row["cost"])),
            "what_ifs": [each.to_json() for each in self.what_ifs],
            "notes": list(self.notes),
            "not_considered": list(self.not_considered),
            **{name: found.to_json() for name, found in self.more.items()},
            "trace": {
                "name": trace.name,
                "digest": trace.digest,
                "nodes": list(trace.nodes),
                "rows": [low, high],
                "from": trace.clock_text(low),
                "to": trace.clock_text(high - 1),
            },
            "settings": {k: v for k, v in self.replay.settings.items() if k != "trace"},
            "versions": versions(learning=self.team is not None),
        }

    def write(self) -> Path:
        """Write advice.json into its folder; return its path."""
        text = json.dumps(self.to_json(), indent=2, allow_nan=False, default=list)
        return replace_text(self.folder / ADVICE, text + "\n")


def written(advice: Advice) -> Advice:
    """Write reports and advice.json; return the advice."""
    asked = [f"What if: {line}" for each in advice.what_ifs for line in each.lines()]
    notes = [*advice.notes, *(f"Not considered: {line}" for line in advice.not_considered)]
    texts = [(HEADINGS[name], found.lines()) for name, found in advice.more.items()]
    team, days = advice.team, advice.replay.windows
    unit = "day" if advice.replay.days else "window"
    every = f"all rules on all {days} {unit}s"
    if team is None:
        write_report(
            advice.replay,
            advice.folder,
            verdict=[*advice.verdict, *asked],
            notes=notes,
            texts=texts,
            title="Advice for",
        )
    else:
        where = f"Below are {every}; the team is on the days held out, in ../report.html."
        lines = [*advice.verdict, *asked, where]
        write_report(advice.replay, advice.folder / "rules", verdict=lines, notes=notes)
    if team is not None:
        from corral.trainers.loads.judge import learning_curves
        from corral.trainers.loads.policy_picture import team_pictures

        below = f"Below are the {team.saving.windows} {unit}s held out"
        rules_of_it: Any = team.run.config.env_config.rules(reward_fn=None)
        write_report(
            team.replay,
            advice.folder,
            verdict=[*advice.verdict, *asked, f"{below}; {every} are in rules/report.html."],
            notes=notes,
            texts=texts,
            title="Advice for",
            learning=learning_curves({"team": team.run}),
            pictures=team_pictures(rules_of_it, team.run.policies, label="team"),
        )
    advice.write()
    return advice
