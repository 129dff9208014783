"""Which neighbour the next request of a sender goes to: the routes of dfaas_v0, one by one.

Neighbours are places 0, 1, ... in the sender's list of neighbours, which is in cyclic order.
Plain integers and loops; nothing is shared with ``corral.envs``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

PER_REQUEST = ("equal", "weighted", "least", "two-choices", "fill", "shortest", "two", "choose")
"""Routes that send request after request; the others split the requests of a step at once."""

IN_PROPORTION = ("capacity", "spare")

Draw = Callable[[int], tuple[int, int]]
"""Given n, returns two drawn numbers of 0 .. n - 1."""


class Sender:
    """One sender in one step: ``sent[p]`` requests went to place p so far.

    ``caps`` has one number per neighbour, or None where there is no bound. ``target`` is the place
    that "shortest", "two" or "choose" names. ``order`` lists the places that "fill" serves first.
    """

    def __init__(
        self,
        route: str,
        spare: Sequence[int],
        capacity: Sequence[int],
        caps: Sequence[int | None],
        *,
        order: Sequence[int] | None = None,
        target: int | None = None,
        draw: Draw | None = None,
    ) -> None:
        assert route in PER_REQUEST
        self.route = route
        self.spare = spare
        self.capacity = capacity
        self.caps = caps
        self.sent = [0] * len(spare)
        self.last = -1  # the place that got the last request of route "equal"
        self.target = target
        self.draw = draw
        # "fill": the largest reported spare first; sorting keeps ties in cyclic order.
        self.order = sorted(range(len(spare)), key=lambda place: -spare[place])
        if order is not None:  # those that it leaves out come last, in cyclic order
            self.order = [*order, *(place for place in range(len(spare)) if place not in order)]

    def open(self, place: int) -> bool:
        """Whether the cap of a neighbour is not reached."""
        cap = self.caps[place]
        return cap is None or self.sent[place] < cap

    def send(self) -> int | None:
        """Send one request; return where to, or None if all caps are reached."""
        places = [place for place in range(len(self.sent)) if self.open(place)]
        if not places:
            return None
        place = self._choose(places)
        self.sent[place] += 1
        self.last = place
        return place

    def idle_caps(self) -> list[int | None]:
        """The caps, but 0 for every neighbour that has a capacity."""
        pairs = zip(self.capacity, self.caps, strict=True)
        return [0 if capacity else cap for capacity, cap in pairs]

    def _choose(self, places: list[int]) -> int:
        if self.route == "equal":
            later = [place for place in places if place > self.last]
            return later[0] if later else places[0]
        if self.route == "weighted":
            return self._weighted(places)
        if self.route == "least":
            best = places[0]
            for place in places:
                if self._left(place) > self._left(best):
                    best = place
            return best
        if self.route == "two-choices":
            assert self.draw is not None
            first, second = (places[drawn] for drawn in self.draw(len(places)))
            return second if self._left(second) > self._left(first) else first
        if self.route == "fill":
            return next(place for place in self.order if place in places)
        assert self.target is not None
        return self.target if self.target in places else places[0]

    def _left(self, place: int) -> int:
        return self.spare[place] - self.sent[place]

    def _weighted(self, places: list[int]) -> int:
        best: int | None = None
        for place in places:
            if self.capacity[place] == 0:
                continue
            # (sent + 1) / capacity, compared crosswise.
            if best is None or (
                (self.sent[place] + 1) * self.capacity[best]
                < (self.sent[best] + 1) * self.capacity[place]
            ):
                best = place
        if best is None:  # only neighbours without capacity are left
            best = places[0]
            for place in places:
                if self.sent[place] < self.sent[best]:
                    best = place
        return best


class HashedPairs:
    """Pairs for the requests of one sender in step t, hashed from two numbers below 2**31."""

    golden = 0x9E3779B97F4A7C15

    def __init__(self, high: int, low: int, t: int) -> None:
        self.key = self._mixed((high << 32) + low + t * self.golden)
        self.requests = 0

    def __call__(self, n: int) -> tuple[int, int]:
        self.requests += 1
        drawn = self._mixed(self.key + self.requests * self.golden)
        return (drawn >> 32) * n >> 32, (drawn % 2**32) * n >> 32

    def _mixed(self, key: int) -> int:
        # The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
        key %= 2**64
        key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        key = (key ^ (key >> 27)) * 0x94D049BB133111EB % 2**64
        return key ^ (key >> 31)


def in_proportion(f: int, weights: Sequence[int], caps: Sequence[int | None]) -> list[int]:
    """Routes "capacity" and "spare": split f, cut at the caps, the rest round-robin."""
    n, total = len(weights), sum(weights)
    if total == 0:
        shares = [f // n + (place < f % n) for place in range(n)]
    else:
        shares = [f * weight // total for weight in weights]
        for place in range(f - sum(shares)):
            shares[place] += 1
    over = Sender("equal", [0] * n, [0] * n, caps)
    for place, cap in enumerate(caps):
        over.sent[place] = shares[place] if cap is None else min(shares[place], cap)
    rest = f - sum(over.sent)
    if rest:
        jump_rounds(over, rest)
    return over.sent


def split(sender: Sender, f: int) -> list[int]:
    """Send f requests; many at once where it makes no difference. Return what went where."""
    jumps = {"equal": jump_rounds, "least": jump_least, "weighted": jump_weighted}
    if sender.route in jumps:
        jumps[sender.route](sender, f)
    elif sender.route == "two-choices":
        _one_by_one(sender, f)
    else:
        places = sender.order
        if sender.route != "fill":
            assert sender.target is not None
            others = (place for place in range(len(sender.sent)) if place != sender.target)
            places = [sender.target, *others]
        for place in places:
            cap = sender.caps[place]
            sender.sent[place] = f if cap is None else min(cap, f)
            f -= sender.sent[place]
    return sender.sent


def _one_by_one(sender: Sender, f: int) -> None:
    for _ in range(f):
        if sender.send() is None:
            break


def _most(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number of low .. high for which it holds; it holds for ``low``."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _jump(sender: Sender, f: int, at: Callable[[int, int], int], high: int) -> None:
    # at(x, place) requests go before all others, for any x: take the largest x with no more than f.
    def sent(x: int) -> list[int]:
        found = []
        for place, cap in enumerate(sender.caps):
            more = at(x, place)
            room = more if cap is None else max(0, cap - sender.sent[place])
            found.append(min(more, room))
        return found

    more = sent(_most(lambda x: sum(sent(x)) <= f, 0, high))
    sender.sent = [a + b for a, b in zip(sender.sent, more, strict=True)]
    rest = f - sum(more)
    if rest > len(more) and sender.route == "weighted":
        # Only neighbours without capacity are left: they take turns.
        idle = Sender("equal", sender.spare, sender.capacity, sender.idle_caps())
        jump_rounds(idle, rest)
        sender.sent = [a + b for a, b in zip(sender.sent, idle.sent, strict=True)]
    else:
        _one_by_one(sender, rest)


def jump_rounds(sender: Sender, f: int) -> None:
    """Whole rounds of route "equal", then the rest."""
    _jump(sender, f, lambda rounds, place: rounds, f)


def jump_least(sender: Sender, f: int) -> None:
    """Route "least" down to a level above which all is taken, then the rest."""
    top = max(sender.spare, default=0)
    depth = top - min(sender.spare, default=0) + f
    _jump(sender, f, lambda down, place: max(0, sender.spare[place] - (top - down)), depth)


def jump_weighted(sender: Sender, f: int) -> None:
    """Route "weighted" up to a quotient (sent / capacity), in parts of 2**-40, then the rest."""
    fine = 40
    _jump(sender, f, lambda x, place: x * sender.capacity[place] >> fine, f << fine)
