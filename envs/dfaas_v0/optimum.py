"""The clairvoyant optimum of ``dfaas_v0``: what no policy can beat, even knowing the whole window.

Over a window of T steps and N nodes, a play costs

    lost + forward_cost * forwarded + wait_cost * waiting      (sums over all nodes and steps)

with queues that start empty; what still waits at the end is not lost. ``optimum`` gives the least
cost that any policy, route, unit or order of play can reach: the row of a table that says how much
there was to win, not a policy. It is exact for the closed form (some play reaches it, with
``unit`` 1 and ``second_offer``) and a lower bound for the linear program.

The linear program
------------------
x_ij(t) requests go from i to its neighbour j and are served there, q_i(t) <= queue wait at the
end of step t, lost_i(t) are lost, s_i(t) are served where they arrived:

    q_i(t-1) + a_i(t) = s_i(t) + sum_j x_ij(t) + lost_i(t) + q_i(t)        every request counts once
    s_i(t) + sum_j x_ji(t) <= c_i(t)                                       capacity
    sum_j x_ij(t) <= a_i(t)                          only arrivals of this step can be forwarded
    x_ij(t) <= link_limit

Every play of the environment is a point of it, so its least cost is never above that of a play.
Let x be the *accepted* forwards: served by j at the same step out of what its own work left
(hence capacity, whatever the order of the senders), within the limit of the link over both
offers, and part of the f_i <= a_i that i sent away. Refused forwards and what the queue cannot hold
are lost_i; the queue obeys its bound; what else left node i was served there. The play pays
forward_cost for all f_i, the program only for the accepted part of it.

The program may do what the rules forbid: let a node with work of its own serve another's
first. That is where the bound can lie below the best play. Its matrix is that of a network
(totally unimodular), so whole numbers in give whole requests out, at any vertex.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from corral.errors import OptimumError
from corral.extras import require

__all__ = ["Optimum", "has_closed_form", "optimum", "reached_by"]

Floats = npt.NDArray[np.float64]
Links = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Optimum:
    """The least cost of a window, in requests, and the make-up of one solution that has it.

    Where several solutions cost the same, ``lost``, ``forwarded`` and ``waiting`` are those of one
    of them; only ``cost`` is unique, and without a queue that of each step. Forwarding that is free
    may be needless.
    """

    cost: float
    """lost + forward_cost * forwarded + wait_cost * waiting."""
    lost: float
    forwarded: float
    """Requests forwarded and accepted."""
    waiting: float
    """Requests in the queues at the end of a step, summed over steps: request-steps."""
    method: Literal["closed form", "linear program"]
    cost_by_step: Floats = field(compare=False, repr=False)
    """float64 [T] the cost of each step of that solution."""


def has_closed_form(
    *, queue: float = 0, link_limit: float | None = None, links: npt.ArrayLike | None = None
) -> bool:
    """Return whether ``optimum`` needs no solver: no queue or link limit, all nodes linked."""
    return queue == 0 and link_limit is None and _is_complete(links)


def reached_by(*, unit: int, second_offer: bool, forward_cost: float) -> str | None:
    """Return the reference policy whose cost is that of the closed form, whatever the load; None:
    there is none.

    Without costs, forwarding the overflow to the request loses max(0, sum a - sum c), by any route,
    if what is refused is offered to all others. It forwards more than finds room, so that with a
    price on forwarding it pays too much in overload. At a price of 1 or more the optimum forwards
    nothing, as "local" does.
    """
    if forward_cost >= 1:
        return "local"
    return "overflow" if forward_cost == 0 and unit == 1 and second_offer else None


def optimum(
    arrivals: npt.ArrayLike,
    capacity: npt.ArrayLike,
    *,
    queue: float = 0,
    forward_cost: float = 0.0,
    wait_cost: float = 0.0,
    link_limit: float | None = None,
    links: npt.ArrayLike | None = None,
) -> Optimum:
    """The least cost of the window ``arrivals``, ``capacity`` ([T, N] each, requests per step).

    ``queue`` bounds what may wait at each node, ``link_limit`` what each directed link carries
    per step (None: no limit). ``links`` is bool [N, N]: node i may forward to node j where
    ``links[i, j]`` (None: to every other; the diagonal is not read).

    Raises ValueError for arguments out of range, MissingExtraError where a linear program is
    needed and scipy is not installed, and OptimumError should the solver fail.
    """
    load = _counts("arrivals", arrivals)
    room = _counts("capacity", capacity)
    if load.shape != room.shape:
        raise ValueError(
            f"arrivals have shape {load.shape}, capacity {room.shape}: give equal ones"
        )
    costs = {"forward_cost": forward_cost, "wait_cost": wait_cost}
    limits = {"queue": queue} | ({} if link_limit is None else {"link_limit": link_limit})
    for name, value in (costs | limits).items():
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} {value!r}: give a finite number, 0 or more")
    graph = None if links is None else np.asarray(links)
    nodes = load.shape[1]
    if graph is not None and (graph.dtype != np.bool_ or graph.shape != (nodes, nodes)):
        raise ValueError(
            f"links are {graph.dtype} of shape {graph.shape}: "
            f"give bool of shape {(nodes, nodes)}, nodes x nodes"
        )
    if has_closed_form(queue=queue, link_limit=link_limit, links=graph):
        return _closed_form(load, room, forward_cost)
    return _linear_program(load, room, queue, forward_cost, wait_cost, link_limit, graph)


def _counts(name: str, values: npt.ArrayLike) -> Floats:
    array = np.asarray(values)
    if array.dtype.kind not in "iuf" or array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name} are {array.dtype} of shape {array.shape}: give numbers, steps x nodes"
        )
    wrong = array[~((array >= 0) & np.isfinite(array))]
    if wrong.size:
        raise ValueError(f"{name} hold {wrong[0]}: every number must be finite, 0 or more")
    return array.astype(np.float64)


def _is_complete(links: npt.ArrayLike | None) -> bool:
    if links is None:
        return True
    graph = np.asarray(links, dtype=np.bool_)
    return bool((graph | np.eye(len(graph), dtype=np.bool_)).all())


def _closed_form(arrivals: Floats, capacity: Floats, forward_cost: float) -> Optimum:
    """No queue, no limit, complete graph: every step stands alone.

    At most min(sum a, sum c) are served, and of node i's own arrivals at most c_i at home; so
    lost >= max(0, sum a - sum c) and lost + forwarded >= sum_i max(0, a_i - c_i). Both hold with
    equality at once when nodes forward their overflow as far as there is room. One forward saves
    one loss, so from forward_cost 1 on it pays to forward nothing.
    """
    overflow = np.maximum(0, arrivals - capacity).sum(axis=1)  # [T]
    excess = np.maximum(0, arrivals.sum(axis=1) - capacity.sum(axis=1))
    each = excess if forward_cost < 1 else overflow
    by_step = each + forward_cost * (overflow - each)
    lost = float(each.sum())
    forwarded = float(overflow.sum()) - lost
    cost = lost + forward_cost * forwarded
    return Optimum(cost, lost, forwarded, 0.0, "closed form", by_step)


def _linear_program(
    arrivals: Floats,
    capacity: Floats,
    queue: float,
    forward_cost: float,
    wait_cost: float,
    link_limit: float | None,
    links: Links | None,
) -> Optimum:
    """The program of the module's docstring over (x, lost, q), with s eliminated.

    With out_i = sum_j x_ij, in_i = sum_j x_ji and hold = q(t) - q(t-1), node i has a - out - hold
    to serve or to lose and c - in to serve it with; s is the smaller of the two. Hence the rows

        in - out - lost - hold <= c - a,   out + hold <= a,   in <= c,   out <= a

    All costs are >= 0, so that doing nothing is dual feasible, and the dual simplex has only the
    overloaded steps to mend.
    """
    purpose = "compute the optimum of this setting"
    sparse: Any = require("scipy.sparse", extra="optimum", purpose=purpose)
    solver: Any = require("scipy.optimize", extra="optimum", purpose=purpose)

    steps, nodes = arrivals.shape
    hub = link_limit is None and _is_complete(links)
    if hub:
        # Without limits the N (N - 1) links of a complete graph can meet in one point: N ways in,
        # N ways out. What a node would send itself through it, it serves better at home.
        sends = np.hstack([np.eye(nodes), np.zeros((nodes, nodes))])  # [N, E]
        takes = np.hstack([np.zeros((nodes, nodes)), np.eye(nodes)])
        most = np.hstack([arrivals, capacity])  # [T, E]
    else:
        graph = np.ones((nodes, nodes), dtype=np.bool_) if links is None else links
        source, target = np.nonzero(graph & ~np.eye(nodes, dtype=np.bool_))
        sends = (np.arange(nodes)[:, None] == source).astype(np.float64)  # [N, E]
        takes = (np.arange(nodes)[:, None] == target).astype(np.float64)
        most = np.minimum(arrivals[:, source], capacity[:, target])  # [T, E]
        if link_limit is not None:
            most = np.minimum(most, link_limit)

    each_step = sparse.eye(steps)
    out, into = (sparse.kron(each_step, ends, format="csr") for ends in (sends, takes))
    one = sparse.eye(arrivals.size, format="csr")
    hold = one - sparse.eye(arrivals.size, k=-nodes, format="csr")
    rows = [[into - out, -one, -hold], [out, None, hold], [into, None, None], [out, None, None]]
    need, room = arrivals.ravel(), capacity.ravel()
    price = np.tile(forward_cost * sends.sum(axis=0), steps)  # [T * E]
    most_of_all = [most.ravel(), np.full(need.size, np.inf), np.full(need.size, float(queue))]
    balance, nothing = None, None
    if hub:  # at every step as much leaves the meeting point as enters it
        through = sparse.kron(each_step, (sends - takes).sum(axis=0, keepdims=True))
        rest = sparse.csr_matrix((steps, 2 * need.size))
        balance, nothing = sparse.hstack([through, rest], format="csc"), np.zeros(steps)

    result = solver.linprog(
        np.concatenate([price, np.ones(need.size), np.full(need.size, wait_cost)]),
        A_ub=sparse.bmat(rows, format="csc"),
        b_ub=np.concatenate([room - need, need, room, need]),
        A_eq=balance,
        b_eq=nothing,
        bounds=np.stack([np.zeros(price.size + 2 * need.size), np.concatenate(most_of_all)], 1),
        method="highs-ds",  # HiGHS, dual simplex: ends at a vertex
    )
    if result.status != 0:
        raise OptimumError(
            f"HiGHS found no optimum over {steps} steps x {nodes} nodes: "
            f"status {result.status}, {result.message}"
        )
    x, lost_part, q = np.split(result.x, [price.size, price.size + need.size])
    sent, taken = out @ x, into @ x
    accepted = sent - np.minimum(sent, taken) if hub else sent  # [T * N]
    by_step = lost_part + forward_cost * accepted + wait_cost * q
    forwarded, lost, waiting = float(accepted.sum()), float(lost_part.sum()), float(q.sum())
    cost = lost + forward_cost * forwarded + wait_cost * waiting
    by_step = by_step.reshape(steps, nodes).sum(axis=1)
    return Optimum(cost, lost, forwarded, waiting, "linear program", by_step)
