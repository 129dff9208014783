"""Balancers as pseudo-code for a proxy, for the balancers that ``corral advise`` may recommend."""

from __future__ import annotations

from corral.loads.rehearsal.balancers import Balancer

__all__ = ["pseudo_code_of"]

ROOM = (
    "# left: share of the step that is still to come, 1 to 0",
    "# held[n]: requests that wait or are served at n, by its last report",
    "# neighbours: those with a link that takes another request in this step",
    "room = {n: floor(capacity[n] * left) - held[n] for n in nodes}",
)
CODE = {
    "round-robin": ("send to the next of all nodes, in turn",),
    "least-requests": (
        "# flying[n]: requests sent to n that are not done",
        "n = min(nodes, key=lambda n: (flying[n] + 1) / capacity[n])",
        "send to n",
    ),
    "choices": (
        "# flying[n]: requests sent to n that are not done",
        "drawn = random.choices(nodes, k={number})",
        "n = min(drawn, key=lambda n: (flying[n] + 1) / capacity[n])",
        "send to n",
    ),
    "shortest-queue": (
        "# held[n]: requests that wait or are served at n, by its last report",
        "n = min(nodes, key=lambda n: held[n])",
        "send to n",
    ),
    "overflow": (
        *ROOM,
        "if room[self] + queue_limit > 0: serve here",
        "else:",
        "    n = first neighbour with room[n] > 0",
        "    send to n, or refuse if there is none",
    ),
    "room": (
        *ROOM,
        "n = max(neighbours, key=lambda n: room[n])",
        "if room[self] > 0 or room[n] <= 0: serve or queue here",
        "else: send to n",
    ),
}
"""Name -> lines at each request. The own node comes first in ``nodes``, so it wins ties."""


def pseudo_code_of(balancer: Balancer) -> list[str]:
    """Return the lines of a balancer; empty if it has none."""
    lines = CODE.get(balancer.name, ())
    if not lines:
        return []
    texts = [line.replace("{number}", str(balancer.number)) for line in lines]
    return ["at each request:", *(f"    {text}" for text in texts)]
