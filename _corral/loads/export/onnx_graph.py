"""A dfaas_v0 policy as torch modules, from whole numbers to a decision.

They repeat in torch the NumPy code of ``corral.envs.dfaas_v0.features`` and ``.amounts``, with the
same tables; the tests compare both. R rows are decisions, each of one node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from corral.adapters.masked_distribution import masked_logits
from corral.data.trace import MAX_VALUE
from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.amounts import Amounts, Choices, Keeps, Shares
from corral.envs.dfaas_v0.features import HALFWAY, LARGEST, RANKS, Neighborhood, Summary
from corral.envs.dfaas_v0.plain_rules import ROUNDING, PlainRule
from corral.envs.dfaas_v0.plans import KEEP_ALL
from corral.trainers.policies import NetworkPolicy

__all__ = ["TAG", "DecisionGraph", "Inputs"]

Inputs = Mapping[str, torch.Tensor]

LARGEST_STATE = 1.001
"""Bound of a GRU's hidden state, -1 to 1, with room for rounding."""

TAG = 2
"""Numbers after a hidden state that identify its graph."""

LATEST = 2**40
"""The latest time, in seconds since 1970."""

SECONDS_PER_DAY = 86_400


class Reading(NamedTuple):
    """The inputs of a decision."""

    features: torch.Tensor  # float32 [R, F]
    arrivals: torch.Tensor  # int64 [R]; of the last step if those of this one are unknown
    room: torch.Tensor  # int64 [R] requests that the node can still serve or hold
    degree: torch.Tensor  # int64 [R] number of neighbors
    named: torch.Tensor | None  # int64 [R, m] the d-th neighbor of an action, under route "choose"
    node: torch.Tensor | None  # int64 [R] the node that decides; None: not an input
    in_range: torch.Tensor  # bool [R]
    spare: torch.Tensor  # int64 [R, D] reported by the neighbors; 0 for other nodes
    linked: torch.Tensor  # bool [R, D] which of these are neighbors
    limit: torch.Tensor  # int64 [R] the most requests that the node can serve or hold
    keep: torch.Tensor | None = None  # int64 [R] requests that the rule of offsets keeps
    above: torch.Tensor | None = None  # bool [R] whether a number is above its scale


# --- From requests to features -------------------------------------------------------------------


class OwnCounts:
    """The inputs with a node's own load."""

    def __init__(self, rules: DfaasRules) -> None:
        self.now = "arrivals" if rules.arrivals == "known" else "last_arrivals"
        self.counts = rules.last_counts
        self.past = rules.last_counts > 0

    def inputs(self) -> dict[str, tuple[int | str, ...]]:
        """Return names and shapes of the inputs."""
        shapes: dict[str, tuple[int | str, ...]] = {self.now: ("batch",)}
        if self.past:
            shapes["last_arrivals"] = ("batch",) if self.counts == 1 else ("batch", self.counts)
        return shapes

    def read(self, given: Inputs, maximum: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the arrivals, or the last count in their place, and the further counts, int64 [R]
        each; and whether all are in range, bool [R]."""
        values = []
        if self.now == "arrivals":
            values.append(given["arrivals"])
        if self.past:
            past = given["last_arrivals"]
            values += [past] if self.counts == 1 else list(past.unbind(dim=1))
        counts, in_ranges = zip(*(_clipped(value, maximum) for value in values), strict=True)
        in_range = in_ranges[0]
        for value in in_ranges[1:]:
            in_range = in_range & value
        return list(counts), in_range


class OwnRule:
    """The rule of residual actions: the requests that it keeps."""

    def __init__(self, rules: DfaasRules) -> None:
        assert rules.residual is not None
        self.rule: PlainRule = rules.residual.rule
        self.queue, self.scale = rules.queue, rules.residual.most

    def keep(self, capacity: torch.Tensor, queue: torch.Tensor) -> torch.Tensor:
        """Return the requests that the rule keeps: int64 [R], like ``PlainRule.keep``."""
        amount, number = self.rule.amount, self.rule.number
        if amount == "local":
            return torch.full_like(capacity, KEEP_ALL)
        if amount in ("overflow", "margin"):
            return capacity
        if amount == "threshold":
            return _divided(capacity * 4, 5)
        if amount.startswith("patient"):
            return capacity + self.queue - queue
        assert number is not None
        if amount == "backlog":
            kept = _floor(capacity.double() + _real(number * self.queue)) - queue
            return kept.clamp(min=0)
        assert amount == "capacity"
        return _floor(_real(number) * capacity.double())


def _floor(values: torch.Tensor) -> torch.Tensor:
    return (values + _real(ROUNDING)).floor().long()


def _real(number: float) -> torch.Tensor:
    """Return a number as float64: the exporter writes Python's numbers as float32."""
    return torch.tensor(number, dtype=torch.float64)


class ReadEvery(nn.Module):
    """The features ``Every``: a node's numbers, and the reports of all nodes in trace order."""

    def __init__(self, rules: DfaasRules, nodes: Sequence[int]) -> None:
        """``nodes`` are those that the policy plays; with several, the node is an input."""
        super().__init__()
        network = rules.network
        self.nodes = list(nodes)
        self.scales = [float(scale) for scale in rules.scales]
        self.queue = rules.queue
        bounded = rules.beyond is None  # the scales bound arrivals and capacities
        self.most = [int(scale) if bounded else MAX_VALUE for scale in rules.scales]
        self.clipped, self.by_rule = rules.beyond is not None, rules.beyond == "rule"
        self.rule = None if rules.residual is None else OwnRule(rules)
        self.size = len(rules.agents)
        self.own = OwnCounts(rules)
        self.timed = rules.daily_mean is not None
        if rules.daily_mean is not None:  # float64 [S, N]
            self.register_buffer("means", torch.from_numpy(np.array(rules.daily_mean)))
        played = np.isin(np.arange(self.size), self.nodes)
        for name, table in (
            ("others", network.others),
            ("linked", network.linked),
            ("degree", np.array(network.degree)),
            ("nearest", network.nearest),
            ("played", played),
        ):
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(table)))

    def inputs(self) -> dict[str, tuple[int | str, ...]]:
        """Return the names and shapes of the inputs, with names for axes of variable size."""
        rows: dict[str, tuple[int | str, ...]] = {"node": ("batch",)} if len(self.nodes) > 1 else {}
        rows |= self.own.inputs()
        rows |= dict.fromkeys(("capacity", "queue"), ("batch",))
        if self.timed:
            rows["time"] = ("batch",)
        return {**rows, **dict.fromkeys(("spare", "lost"), ("batch", self.size))}

    def forward(self, given: Inputs) -> Reading:
        tables: Any = self
        if "node" in given:
            node, valid = _clipped(given["node"], self.size - 1)
            valid = valid & tables.played[node]
        else:
            node = torch.zeros_like(given["capacity"]) + self.nodes[0]
            valid = torch.ones_like(node, dtype=torch.bool)
        (arrivals, *more), arrivals_valid = self.own.read(given, self.most[0])
        capacity, capacity_valid = _clipped(given["capacity"], self.most[1])
        queue, queue_valid = _clipped(given["queue"], self.queue)
        others, linked = tables.others[node], tables.linked[node]  # [R, N-1]
        spare, spare_valid = _clipped(given["spare"].gather(1, others), self.most[1])
        lost, lost_valid = _clipped(given["lost"].gather(1, others), self.most[0])
        loads = (arrivals, self.scales[0]), (capacity, self.scales[1]), (queue, max(self.queue, 1))
        reports = [_share(spare, self.scales[1]), _share(lost, self.scales[0])]
        reported = torch.stack(reports, dim=-1) * linked[..., None]  # [R, N-1, 2]
        features = [*(_share(*load)[:, None] for load in loads), reported.flatten(1)]
        features += [_share(count, self.scales[0])[:, None] for count in more]
        if self.timed:
            time, time_valid = _clipped(given["time"], LATEST)
            valid = valid & time_valid
            steps = tables.means.shape[0]
            slot = _divided(time % SECONDS_PER_DAY * steps, SECONDS_PER_DAY)
            mean = tables.means[slot, node]
            features.append((mean / self.scales[0]).float()[:, None])
        keep = above = None
        if self.rule is not None:
            keep = self.rule.keep(capacity, queue)
            features.append(_share(keep, self.rule.scale).clamp(max=1)[:, None])
        if self.by_rule:
            reports_of_node = [given[key].gather(1, node[:, None]) for key in ("spare", "lost")]
            loads_seen = [arrivals[:, None], *(count[:, None] for count in more)]
            loads_seen.append(reports_of_node[1])
            loads_seen.append(torch.where(linked, lost, 0))
            capacities_seen = [capacity[:, None], reports_of_node[0], torch.where(linked, spare, 0)]
            above = (torch.cat(loads_seen, dim=1) > self.scales[0]).any(dim=1)
            above = above | (torch.cat(capacities_seen, dim=1) > self.scales[1]).any(dim=1)
        reports_valid = ((spare_valid & lost_valid) | ~linked).all(dim=1)
        whole = torch.cat(features, dim=1)
        return Reading(
            features=whole.clamp(max=1) if self.clipped else whole,
            arrivals=arrivals,
            room=capacity + self.queue - queue,
            degree=tables.degree[node],
            named=tables.nearest[node],
            node=node,
            in_range=valid & arrivals_valid & capacity_valid & queue_valid & reports_valid,
            spare=torch.where(linked, spare, 0),
            linked=linked,
            limit=capacity + self.queue,
            keep=keep,
            above=above,
        )


class ReadSummary(nn.Module):
    """The features ``Summary`` or ``Neighborhood``: a node's numbers, and the reports of its D
    neighbors in cyclic order. Spare -1 is padding, for a node with fewer neighbors than others of
    the batch."""

    def __init__(self, rules: DfaasRules) -> None:
        super().__init__()
        self.own = OwnCounts(rules)
        self.timed = rules.daily_mean is not None
        self.wide = isinstance(rules.features, Neighborhood)
        self.rule = None if rules.residual is None else OwnRule(rules)
        self.queue = MAX_VALUE if self.rule is None else self.rule.queue

    def inputs(self) -> dict[str, tuple[int | str, ...]]:
        """Return the names and shapes of the inputs, with names for axes of variable size."""
        names = ["capacity", "queue", *(["daily_mean"] if self.timed else []), "spare", "lost"]
        reports = "neighbours_spare", "neighbours_lost"
        rows = self.own.inputs()
        rows |= dict.fromkeys(names, ("batch",))
        return {**rows, **dict.fromkeys(reports, ("batch", "neighbours"))}

    def forward(self, given: Inputs) -> Reading:
        limits = dict.fromkeys(("queue", "spare", "lost", "capacity"), MAX_VALUE)
        limits["queue"] = self.queue
        read = [_clipped(given[name], limit) for name, limit in limits.items()]
        numbers, valid = zip(*read, strict=True)
        (arrivals, *counts), arrivals_valid = self.own.read(given, MAX_VALUE)
        numbers, valid = (arrivals, *numbers), (arrivals_valid, *valid)
        spare, spare_valid = _clipped(given["neighbours_spare"], MAX_VALUE, least=-1)
        lost, lost_valid = _clipped(given["neighbours_lost"], MAX_VALUE)
        some = spare >= 0
        degree = some.sum(dim=1)
        reports_valid = (spare_valid & (lost_valid | ~some)).all(dim=1)
        # Padding, so that at least RANKS neighbors exist.
        padding = torch.full_like(numbers[0], -1)[:, None].expand(-1, RANKS)
        spare = torch.cat([spare, padding], dim=1)
        lost = torch.cat([lost, padding], dim=1)
        # The largest first, ties in input order: no two keys are equal.
        places = torch.arange(spare.shape[1], device=spare.device)
        top = torch.topk(spare * spare.shape[1] - places, RANKS, dim=1).indices
        features = [number.double()[:, None] for number in numbers[:4]]
        for values in (spare, lost):
            values = torch.where(spare >= 0, values, 0)
            mean = values.sum(dim=1).double() / degree.clamp(min=1).double()
            smallest = torch.where(spare >= 0, values, MAX_VALUE).amin(dim=1)
            features += [mean[:, None], values.amax(dim=1).double()[:, None]]
            features += [torch.where(degree > 0, smallest, 0).double()[:, None]]
            features += [values.gather(1, top).double()]
        if self.wide:
            features += _distribution(spare, degree)
        features += [count.double()[:, None] for count in counts]
        if self.timed:
            mean = given["daily_mean"]
            mean_valid = (mean >= 0) & (mean <= MAX_VALUE)  # False for NaN
            features.append(torch.where(mean_valid, mean, 0.0)[:, None])
            valid = (*valid, mean_valid)
        keep = None
        if self.rule is not None:
            keep = self.rule.keep(numbers[4], numbers[1])
            features.append(keep.double()[:, None])
        shares = torch.cat(features, dim=1) / numbers[4].clamp(min=1).double()[:, None]
        if self.wide:
            crowd = degree.double() / (degree + HALFWAY)
            before, after = shares[:, : Summary.plain], shares[:, Summary.plain :]
            shares = torch.cat([before, crowd[:, None], after], dim=1)
        in_range = reports_valid
        for flags in valid:
            in_range = in_range & flags
        return Reading(
            features=shares.clamp(max=LARGEST).float(),
            arrivals=numbers[0],
            room=numbers[4] + self.queue - numbers[1],
            degree=degree,
            named=top,
            node=None,
            in_range=in_range,
            spare=torch.where(spare >= 0, spare, 0),
            linked=spare >= 0,
            limit=numbers[4] + self.queue,
            keep=keep,
        )


def _distribution(spare: torch.Tensor, degree: torch.Tensor) -> list[torch.Tensor]:
    """Return the quartiles of the neighbors' spare [R, D], and their total for each possible
    sender: float64 [R, 3] and [R, 1]. Spare -1 is padding."""
    order = torch.where(spare >= 0, spare, MAX_VALUE + 1).sort(dim=1).values
    quarters = torch.arange(1, 4, device=spare.device)
    places = (_divided(degree[:, None] * quarters + 3, 4) - 1).clamp(min=0)
    quartiles = torch.where(degree[:, None] > 0, order.gather(1, places), 0)
    total, senders = spare.clamp(min=0).sum(dim=1), 1 + (spare == 0).sum(dim=1)
    return [quartiles.double(), (total.double() / senders.double())[:, None]]


def _clipped(values: torch.Tensor, most: int, least: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return whole numbers clipped to a range, and whether they were in it."""
    valid = (values >= least) & (values <= most)
    return values.clamp(least, most), valid


def _divided(values: torch.Tensor, divisor: int) -> torch.Tensor:
    """Return whole numbers from 0 divided by ``divisor`` and rounded down.

    In a graph, ``torch.div`` with a rounding mode would divide in float32.
    """
    return torch.floor_divide(values, divisor)


def _share(values: torch.Tensor, scale: float) -> torch.Tensor:
    """Return whole numbers divided by ``scale``, as float32; in double precision, like NumPy."""
    return (values.double() / scale).float()


# --- From outputs to a decision ------------------------------------------------------------------


class Legal(nn.Module):
    """The legal actions, with their numbers of requests and their recipients."""

    def __init__(self, rules: DfaasRules) -> None:
        super().__init__()
        levels = rules.levels_of
        level, neighbour = np.arange(rules.levels), np.zeros(rules.levels, dtype=np.int64)
        if isinstance(rules.actions, Choices):  # else the first neighbor represents all
            level, neighbour = rules.actions.split(level)
        # A level is legal if the arrivals exceed the requests of the level below; level 0 always.
        # Levels of requests to keep are legal if the room exceeds the requests of the level below.
        below: Array
        requests = np.zeros(0, dtype=np.int64)
        if isinstance(levels, Amounts):
            requests = levels.requests
            below = np.concatenate([[-1], requests[:-1]])
        elif isinstance(levels, Keeps):
            below = np.maximum(np.arange(-2, levels.count - 2) * levels.unit, -1)
            below[:2] = -1
        else:
            assert isinstance(levels, Shares)
            below = np.concatenate([[-1], np.zeros(levels.count - 1, dtype=np.int64)])
        if not getattr(levels, "known", True):
            below = np.full(levels.count, -1)
        self.by_room = levels.by_room
        self.unit = levels.unit if isinstance(levels, Keeps) else None
        self.shares = levels.most if isinstance(levels, Shares) else None
        self.caps = None if rules.caps is None else int(rules.caps)
        self.unknown = rules.arrivals == "unknown"
        for name, table in (
            ("level", level),
            ("neighbour", neighbour),
            ("needed", below[level]),
            ("requests", requests),
        ):
            self.register_buffer(name, torch.from_numpy(np.asarray(table, dtype=np.int64)))

    @property
    def output_name(self) -> str:
        """The name of the output of ``amount``."""
        if not self.unknown:
            return "amount"
        return "keep" if self.unit else "share" if self.shares else "most"

    def mask(self, read: Reading) -> torch.Tensor:
        """Return the legal actions: bool [R, A]."""
        tables: Any = self
        near = tables.neighbour < read.degree[:, None]
        some = read.room if self.by_room else read.arrivals
        legal: torch.Tensor = ((some[:, None] > tables.needed) & near) | (tables.level == 0)
        return legal

    def amount(self, action: torch.Tensor, read: Reading) -> torch.Tensor:
        """Return the requests that actions int64 [R] forward; with unknown arrivals the requests to
        keep (-1: all), the share to forward, or the maximum to forward."""
        tables: Any = self
        level: torch.Tensor = tables.level[action]
        requests: torch.Tensor = tables.requests
        arrivals, kept = read.arrivals, None
        if self.unit is not None:
            kept = torch.minimum((level - 1) * self.unit, read.room)
        if self.unknown and kept is not None:
            return torch.where(level > 0, kept, -1)
        if self.unknown:
            return requests[level] if self.shares is None else level.double() / self.shares
        if kept is not None:
            forwarded = torch.where(level > 0, (arrivals - kept).clamp(min=0), 0)
        elif self.shares is None:
            forwarded = torch.minimum(requests[level], arrivals)
        else:
            above = level * arrivals + (self.shares - 1)
            forwarded = _divided(above, self.shares)
        return forwarded if self.caps is None else torch.minimum(forwarded, read.degree * self.caps)

    def target(self, action: torch.Tensor, named: torch.Tensor) -> torch.Tensor:
        """Return the recipient among ``named`` [R, m], -1 without one: int64 [R]."""
        tables: Any = self
        node = named.gather(1, tables.neighbour[action][:, None])[:, 0]
        return torch.where(tables.level[action] > 0, node, -1)


class LegalOffsets(nn.Module):
    """The legal offsets to the requests that a rule keeps, like ``Residual``."""

    def __init__(self, rules: DfaasRules) -> None:
        super().__init__()
        residual = rules.residual
        assert residual is not None
        self.rule, self.unit, self.limit = residual.rule, residual.unit, rules.link_limit
        self.max_level = residual.max_level if residual.relative else None
        self.unknown = rules.arrivals == "unknown"
        self.output_name = "keep" if self.unknown else "amount"
        self.register_buffer("offsets", torch.from_numpy(residual.offsets))

    def mask(self, read: Reading) -> torch.Tensor:
        """Return the legal actions: bool [R, A]."""
        tables: Any = self
        assert read.keep is not None
        offset, unit = tables.offsets[None], self.units(read)[:, None]
        keep, room = read.keep[:, None], read.room[:, None]
        base = torch.where(keep >= KEEP_ALL, room, keep)
        kept = _limited(base + offset * unit, room)
        before = _limited(base + (offset - offset.sign()) * unit, room)
        before = torch.where(offset.abs() == 1, keep, before)
        legal = kept != before
        # If the rule keeps more than the room, -1 may keep as much as +1.
        legal = legal & ((offset != 1) | (kept != _limited(base - unit, room)))
        legal = legal & (read.degree > 0)[:, None]
        if read.above is not None:
            legal = legal & ~read.above[:, None]
        mask: torch.Tensor = legal | (offset == 0)
        return mask

    def amount(self, action: torch.Tensor, read: Reading) -> torch.Tensor:
        """Return the requests that actions int64 [R] keep (-1: all); with known arrivals the
        requests that they forward."""
        tables: Any = self
        assert read.keep is not None
        offset = tables.offsets[action]
        base = torch.where(read.keep >= KEEP_ALL, read.room, read.keep)
        moved = _limited(base + offset * self.units(read), read.room)
        keep = torch.where(offset == 0, read.keep, moved)
        alone = read.degree == 0
        if self.unknown:
            return torch.where(alone | (keep >= KEEP_ALL), -1, keep)
        forwarded = torch.where(alone, 0, (read.arrivals - keep).clamp(min=0))
        if self.rule.amount.endswith("margin"):
            forwarded = torch.minimum(forwarded, read.spare.sum(dim=1))
        if self.rule.margin is not None:
            caps = _floor(_real(self.rule.margin) * read.spare.double())
            if self.limit is not None:
                caps = caps.clamp(max=self.limit)
            forwarded = torch.minimum(forwarded, torch.where(read.linked, caps, 0).sum(dim=1))
        elif self.rule.within_links and self.limit is not None:
            forwarded = torch.minimum(forwarded, read.degree * self.limit)
        return forwarded

    def units(self, read: Reading) -> torch.Tensor:
        """Return the requests of a unit: int64 [R], like ``Residual.units``."""
        if self.max_level is None:
            return torch.full_like(read.limit, self.unit)
        return _divided(read.limit + (self.max_level - 1), self.max_level).clamp(min=1)

    def offset(self, action: torch.Tensor, read: Reading) -> torch.Tensor:
        """Return the offsets of actions int64 [R], in requests."""
        tables: Any = self
        offset: torch.Tensor = tables.offsets[action] * self.units(read)
        return offset


def _limited(keep: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
    return torch.minimum(keep.clamp(min=0), room)


class DecisionGraph(nn.Module):
    """A whole policy, from whole numbers to a decision.

    ``policies`` are those of the agents that it plays, by their numbers; ``inputs`` and ``outputs``
    are the names of inputs and outputs, in order.
    """

    def __init__(self, rules: DfaasRules, policies: Mapping[int, NetworkPolicy]) -> None:
        super().__init__()
        first = next(iter(policies.values()))
        self.forward_of, self.network = first.forward, first.network
        self.memory = first.memory
        self.read = (
            ReadSummary(rules)
            if isinstance(rules.features, Summary)
            else ReadEvery(rules, list(policies))
        )
        self.legal = Legal(rules) if rules.residual is None else LegalOffsets(rules)
        self.chooses = isinstance(rules.actions, Choices)
        self.inputs = dict(self.read.inputs())
        # Not every node knows that another one follows the rule, see docs/gateway.md.
        self.by_rule = rules.beyond == "rule" and rules.observation == "every"
        self.outputs = [
            self.legal.output_name,
            *([] if rules.residual is None else ["offset", "rule"]),
            *(["above"] if self.by_rule else []),
            *(["target"] if self.chooses else []),
            "action",
            "logits",
        ]
        self.outputs += ["in_range", *(["next_state"] if self.memory else [])]
        identities = {node: policy.forward.identity for node, policy in policies.items()}  # type: ignore[attr-defined]
        self.identified = next(iter(identities.values())) is not None
        if self.identified:
            table = np.zeros((len(rules.agents), len(next(iter(identities.values())))), np.float32)
            for node, identity in identities.items():
                table[node] = identity
            self.register_buffer("identities", torch.from_numpy(table))
        if self.memory:
            self.inputs["state"] = ("batch", self.memory + TAG)
            self.register_buffer("tag", self._tag())

    def _tag(self) -> torch.Tensor:
        """Return numbers in (0, 1] derived from all weights and tables: [TAG]."""
        digest = hashlib.sha256()
        for name, values in sorted(self.state_dict().items()):
            digest.update(f"{name} {tuple(values.shape)}".encode())
            digest.update(values.cpu().numpy().tobytes())
        parts = np.frombuffer(digest.digest(), dtype="<u4")[:TAG] >> 8  # 24 bits fit float32
        return torch.from_numpy(((parts + 1) / 2**24).astype(np.float32))

    def forward(self, given: Inputs) -> tuple[torch.Tensor, ...]:
        """Return tensors in the order of ``outputs``."""
        tables: Any = self
        read: Reading = self.read(given)
        in_range, identity = read.in_range, None
        if self.identified:
            identity = tables.identities[read.node]
        state = read.features[:, :0]  # empty
        if self.memory:
            whole = given["state"]
            hidden, tag = whole[:, : self.memory], whole[:, self.memory :]
            begins = (whole == 0).all(dim=1)
            own_tag = (tag == tables.tag).all(dim=1)
            valid = (hidden.abs() <= LARGEST_STATE) & own_tag[:, None]  # False for NaN
            state = torch.where(valid, hidden, 0.0)
            in_range = in_range & (valid.all(dim=1) | begins)
        outputs, after = self.forward_of.outputs(read.features, identity, state)  # type: ignore[attr-defined]
        masked = masked_logits(outputs, self.legal.mask(read))
        action = masked.argmax(dim=-1)
        results = [self.legal.amount(action, read)]
        if isinstance(self.legal, LegalOffsets):
            rule = self.legal.amount(torch.zeros_like(action), read)
            results += [self.legal.offset(action, read), rule]
        if self.by_rule:
            assert read.above is not None
            results.append(read.above)
        if self.chooses:
            assert isinstance(self.legal, Legal)
            assert read.named is not None
            results.append(self.legal.target(action, read.named))
        values = self.forward_of.values  # type: ignore[attr-defined]
        results += [action, masked if values else masked.log_softmax(dim=-1), in_range]
        if self.memory:
            tag = tables.tag[None].expand(len(after), -1)
            return (*results, torch.cat([after, tag], dim=1))
        return tuple(results)
