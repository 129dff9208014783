"""Generate a load trace from a seed: days, weeks, noise, bursts, flash crowds, uneven capacity.

The load of node i at step t is drawn from a Poisson distribution with rate

    mean_i * (day_i(t) * week(t) * noise_i(t) * burst_i(t) + flash_i(t))

and capped at ``largest``. ``data/README.md`` compares its statistics with public traces.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from corral.data.fields import parse_time
from corral.data.trace import SECONDS_PER_DAY, Counts, Trace

__all__ = ["EDGE3", "EDGE8", "TraceSpec", "make_trace"]

Floats = npt.NDArray[np.float64]

EARLY = 0.7
"""Share of the rows in which flash crowds are early: a training section. The rest is for tests."""

# The purposes of random number streams. Each node has its own streams, so adding a node or turning
# a feature off does not change the other numbers.
NOISE, BURSTS, FLASH, MAINTENANCE, ARRIVALS, SIZES = range(6)
SHARED = 1_000_000  # the node index of streams for all nodes


@dataclass(frozen=True)
class TraceSpec:
    """All parameters of a generated trace. ``make_trace`` takes the same names."""

    nodes: int = 3
    """Number of nodes."""
    days: int = 14
    """Length of the trace, in days."""
    step: int = 300
    """Length of a step, in seconds; must divide a day."""
    seed: int = 0
    """Seed of all random numbers, 0 or more."""
    start: str = "2026-01-05T00:00:00Z"
    """Time of the first row, ISO-8601; the default is a Monday."""
    names: tuple[str, ...] | None = None
    """Names of the nodes; None: n0, n1, ..."""
    mean: float = 24.0
    """Mean load of a node before bursts and flash crowds, in requests per step."""
    spread: float = 0.25
    """Distance of the busiest and the quietest node from ``mean``, as a share of ``mean``."""
    largest: int = 100
    """Maximum load and capacity of a node, in requests per step. Larger values are capped."""
    daily: float = 0.55
    """Amplitude of the daily wave, as a share of the mean, 0 .. 0.75."""
    peak_hour: float = 14.0
    """Center of the busiest hours of all nodes, as an hour of the day in UTC."""
    peak_spread: float = 18.0
    """Length of the interval, in hours, over which the busiest hours are spread evenly."""
    weekend: float = 0.7
    """Load on Saturdays and Sundays, as a share of the load on other days."""
    noise: float = 0.35
    """Standard deviation of the logarithm of the noise."""
    memory: float = 0.9
    """Correlation of the noise between consecutive steps, 0 .. below 1."""
    shared: float = 0.08
    """Share of the noise's variance that is common to all nodes, 0 .. 1."""
    bursts: float = 6.0
    """Mean number of bursts per node and day."""
    burst_size: float = 1.6
    """Mean increase of the load in a burst, as a multiple of the load."""
    burst_minutes: float = 10.0
    """Mean length of a burst, in minutes."""
    flash_crowds: tuple[int, int] = (3, 2)
    """Number of flash crowds per node: in the first 70 % of the rows, and in the rest."""
    flash_size: float = 2.5
    """Peak of a flash crowd, as a multiple of the node's mean load."""
    flash_minutes: float = 60.0
    """Minutes in which a flash crowd decays to a third. It rises in a quarter of this time."""
    headroom: float = 1.5
    """Ratio of mean capacity to mean load over all nodes, before maintenance and capping."""
    uneven: float = 0.25
    """Maximum deviation of a node's headroom from ``headroom``, as a share of ``headroom``."""
    scaling: float = 0.4
    """Share of the daily and weekly wave that the capacity follows: 0 constant, 1 fully."""
    scaling_hours: float = 4.0
    """Hours between updates of the capacity level."""
    maintenance: float = 2.0
    """Mean number of maintenance windows per node and week."""
    maintenance_hours: float = 2.0
    """Length of a maintenance window, in hours."""
    maintenance_depth: float = 0.6
    """Share of the capacity that is unavailable during maintenance."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                whole = isinstance(value, int) and value >= 0
                _require(whole, field.name, "a whole number, 0 or more", self)
            elif field.type == "float":
                _require(0 <= value < float("inf"), field.name, "a number, 0 or more", self)
        for name in ("nodes", "days", "step", "largest"):
            _require(getattr(self, name) >= 1, name, "1 or more", self)
        _require(SECONDS_PER_DAY % self.step == 0, "step", "a divisor of 86400 seconds", self)
        _require(self.names is None or len(self.names) == self.nodes, "names", "one per node", self)
        _require((parse_time(self.start) or [""])[0] == "utc", "start", "an ISO-8601 time", self)
        _require(self.daily <= 0.75, "daily", "0 .. 0.75", self)
        _require(self.memory < 1, "memory", "0 .. below 1", self)
        crowds = len(self.flash_crowds) == 2 and min(self.flash_crowds) >= 0
        _require(crowds, "flash_crowds", "two numbers, 0 or more: early, late", self)
        for name in ("spread", "shared", "uneven", "scaling", "maintenance_depth"):
            _require(getattr(self, name) <= 1, name, "0 .. 1", self)


def _require(holds: bool, name: str, rule: str, spec: TraceSpec) -> None:
    if not holds:
        raise ValueError(f"{name}={getattr(spec, name)!r} must be {rule}")


EDGE3 = TraceSpec(nodes=3, seed=3, headroom=1.55, names=("milan", "oslo", "porto"))
"""The bundled trace ``edge3``."""

EDGE8 = TraceSpec(
    nodes=8,
    seed=8,
    headroom=1.4,
    names=("athens", "berlin", "cork", "delft", "evora", "faro", "ghent", "huelva"),
)
"""The bundled trace ``edge8``."""


def make_trace(spec: TraceSpec | None = None, *, name: str = "made", **options: Any) -> Trace:
    """Return the trace of ``spec``. ``options`` are fields of TraceSpec that override ``spec``.

    ``make_trace(nodes=5, days=7, seed=1)`` starts from the defaults. Equal specs give equal traces.
    Raises ValueError for a value out of range, TypeError for an unknown option.
    """
    spec = replace(spec or TraceSpec(), **options)
    start = parse_time(spec.start)
    assert start is not None  # TraceSpec has checked it
    times = spec.step * np.arange(spec.days * SECONDS_PER_DAY // spec.step) + start[1]
    mean = spec.mean * _levels(spec, spec.spread)  # [N]
    wave = _daily(spec, times) * _weekly(spec, times)[:, None]  # [T, N]
    rate = mean * (wave * _noise(spec, len(times)) * _bursts(spec, len(times)))
    rate += mean * _flash_crowds(spec, len(times))
    arrivals = np.stack(
        # Rounded, so that rounding differences between processors cannot change a draw.
        [_stream(spec, ARRIVALS, i).poisson(np.round(rate[:, i], 6)) for i in range(spec.nodes)],
        axis=1,
    )
    return Trace(
        nodes=spec.names or tuple(f"n{i}" for i in range(spec.nodes)),
        arrivals=np.minimum(arrivals, spec.largest),
        capacity=_capacity(spec, mean, wave),
        times=times,
        clock="utc",
        name=name,
    )


def _stream(spec: TraceSpec, purpose: int, node: int = SHARED) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(purpose, node)))


def _levels(spec: TraceSpec, spread: float, purpose: int = SIZES) -> Floats:
    """Return factors from 1 - spread to 1 + spread, evenly spaced, in random order. [N]"""
    return _stream(spec, purpose).permutation(np.linspace(1 - spread, 1 + spread, spec.nodes))


def _daily(spec: TraceSpec, times: Counts) -> Floats:
    """Return daily waves of mean 1, with a main peak at the node's hour and a second one. [T, N]"""
    lag = spec.peak_spread * ((np.arange(spec.nodes) + 0.5) / spec.nodes - 0.5)  # hours, [N]
    hour = times[:, None] / 3600 - spec.peak_hour - lag
    angle = 2 * np.pi * hour / 24
    return 1 + spec.daily * np.cos(angle) + spec.daily / 4 * np.cos(2 * angle)


def _weekly(spec: TraceSpec, times: Counts) -> Floats:
    """Return factors of mean 1 over a week, lower at weekends. [T]"""
    off = (times // SECONDS_PER_DAY + 3) % 7 >= 5  # 1970-01-01 was a Thursday
    return np.where(off, spec.weekend, 1.0) * 7 / (5 + 2 * spec.weekend)


def _noise(spec: TraceSpec, steps: int) -> Floats:
    """Return autocorrelated log-normal noise of mean 1, partly common to all nodes. [T, N]"""
    of_nodes = [_stream(spec, NOISE, i).standard_normal(steps) for i in range(spec.nodes)]
    common = _stream(spec, NOISE).standard_normal(steps)
    drawn = (
        np.sqrt(1 - spec.shared) * np.stack(of_nodes, axis=1)
        + np.sqrt(spec.shared) * common[:, None]
    )
    state = drawn[0]
    noise = [state]
    for new in drawn[1:]:
        state = spec.memory * state + np.sqrt(1 - spec.memory**2) * new
        noise.append(state)
    return np.exp(spec.noise * np.stack(noise) - spec.noise**2 / 2)


def _bursts(spec: TraceSpec, steps: int) -> Floats:
    """Return load factors: 1, and more during bursts, which begin and end abruptly. [T, N]"""
    factor = np.ones((steps, spec.nodes))
    for node in range(spec.nodes):
        rng = _stream(spec, BURSTS, node)
        count = rng.poisson(spec.bursts * spec.days)
        begins = rng.integers(0, steps, size=count)
        lengths = rng.geometric(
            min(1.0, spec.step / 60 / max(spec.burst_minutes, 1e-9)), size=count
        )
        sizes = spec.burst_size * rng.standard_exponential(count)
        for begin, length, size in zip(begins, lengths, sizes, strict=True):
            factor[begin : begin + length, node] += size
    return factor


def _flash_crowds(spec: TraceSpec, steps: int) -> Floats:
    """Return crowds that rise fast and decay slowly, as multiples of the mean load. [T, N]"""
    crowd = np.zeros((steps, spec.nodes))
    cut = int(EARLY * steps)
    per_minute = 60 / spec.step
    sink = max(1.0, spec.flash_minutes * per_minute)
    rise = max(1.0, sink / 4)
    for node in range(spec.nodes):
        rng = _stream(spec, FLASH, node)
        for (low, high), count in zip(((0, cut), (cut, steps)), spec.flash_crowds, strict=True):
            # A crowd begins in the first 90 % of its section, so its peak is in the section, too.
            for begin in rng.integers(low, max(low + 1, high - (high - low) // 10), size=count):
                since = np.arange(steps - begin)
                shape = np.minimum(since / rise, np.exp(-(since - rise) / sink))
                crowd[begin:, node] += spec.flash_size * np.maximum(shape, 0)
    return crowd


def _capacity(spec: TraceSpec, mean: Floats, wave: Floats) -> Counts:
    """Return the capacities: uneven, following the day in steps, reduced in maintenance. [T, N]"""
    base = mean * _levels(spec, spec.uneven, MAINTENANCE)
    base *= spec.headroom * mean.sum() / base.sum()
    hold = max(1, round(spec.scaling_hours * 3600 / spec.step))
    followed = wave[np.arange(len(wave)) // hold * hold]  # the wave at the last update
    capacity = base * (1 + spec.scaling * (followed - 1))
    length = max(1, round(spec.maintenance_hours * 3600 / spec.step))
    for node in range(spec.nodes):
        rng = _stream(spec, MAINTENANCE, node)
        count = rng.poisson(spec.maintenance * spec.days / 7)
        down = np.zeros(len(wave), dtype=bool)
        for begin in rng.integers(0, len(wave), size=count):
            down[begin : begin + length] = True
        capacity[down, node] *= 1 - spec.maintenance_depth
    return np.clip(np.rint(np.round(capacity, 6)), 0, spec.largest).astype(np.int64)
