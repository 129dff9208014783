"""The clairvoyant optimum of ``dfaas_v0``: a bound for all policies, even with future knowledge.

Over a window of T steps and N nodes, a sequence of actions costs

    lost + forward_cost * forwarded + wait_cost * waiting      (sums over all nodes and steps)

Queues start empty. Requests that still wait at the end are not lost. ``optimum`` returns the least
cost for any policy, route, unit and order of senders. It is a row of a table, for comparison, and
not a policy. The closed form is exact: some policy reaches it with ``unit`` 1 and ``second_offer``.
The linear program is a lower bound.

The linear program
------------------
Node i forwards x_ij(t) requests to its neighbor j, which serves them. It serves s_i(t) requests
itself and loses lost_i(t). q_i(t) requests wait at the end of step t, at most ``queue``:

    q_i(t-1) + a_i(t) = s_i(t) + sum_j x_ij(t) + lost_i(t) + q_i(t)        every request counts once
    s_i(t) + sum_j x_ji(t) <= c_i(t)                                       capacity
    sum_j x_ij(t) <= a_i(t)                          only arrivals of this step can be forwarded
    x_ij(t) <= link_limit

Each episode of the environment is a feasible point of this program, so that the least cost is never
above the cost of an episode. Let x be the *accepted* forwards. Node j serves them in the same step
with the capacity that remains after its own work, for any order of the senders. They obey the link
limit over both offers, and are part of the f_i <= a_i that i forwards. Refused forwards, and
requests that do not fit into the queue, are lost_i. The queue obeys its limit. All other requests
that leave node i are served there. An episode pays forward_cost for all f_i, the program only for
accepted forwards.

The program allows one thing that the rules forbid: a node with work may serve requests of another
node first. In this case the bound can lie below the best policy. The matrix of the program is that
of a network (totally unimodular). With whole numbers as input, every vertex thus consists of whole
requests.
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
    """The least cost of a window, in requests, and the parts of one solution with this cost.

    If several solutions have the least cost, ``lost``, ``forwarded`` and ``waiting`` are those of
    one solution. Only ``cost`` is unique; without a queue also the cost of each step. If forwarding
    is free, a solution may forward more than necessary.
    """

    cost: float
    """lost + forward_cost * forwarded + wait_cost * waiting."""
    lost: float
    forwarded: float
    """Requests that were forwarded and accepted."""
    waiting: float
    """Requests in the queues at the end of a step, summed over steps: request-steps."""
    method: Literal["closed form", "linear program"]
    cost_by_step: Floats = field(compare=False, repr=False)
    """float64 [T] cost of each step in this solution."""


def has_closed_form(
    *, queue: float = 0, link_limit: float | None = None, links: npt.ArrayLike | None = None
) -> bool:
    """Return True if ``optimum`` needs no solver: no queue, no link limit, all nodes linked."""
    return queue == 0 and link_limit is None and _is_complete(links)


def reached_by(*, unit: int, second_offer: bool, forward_cost: float) -> str | None:
    """Return the reference policy with the cost of the closed form for any load, or None.

    Without costs, exact forwarding of the overflow loses max(0, sum a - sum c) by any route, if
    refused requests are offered to all other nodes. In overload it forwards more than other nodes
    accept. It thus pays too much if forwarding has a cost. With a cost of 1 or more, the optimum
    forwards nothing, like "local".
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
    """Return the least cost of the window ``arrivals``, ``capacity`` ([T, N] each, in requests).

    Args:
        queue: most requests that can wait at a node.
        link_limit: most requests that a directed link takes per step. None: no limit.
        links: bool [N, N]: node i may forward to node j if ``links[i, j]``; the diagonal is
            ignored. None: every node may forward to all others.

    Raises ValueError for arguments out of range. Raises MissingExtraError if a linear program is
    needed and scipy is not installed, and OptimumError if the solver fails.
    """
    load = _counts("arrivals", arrivals)
    room = _counts("capacity", capacity)
    if load.shape != room.shape:
        raise ValueError(
            f"arrivals have shape {load.shape}, capacity {room.shape}: give equal shapes"
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
        raise ValueError(f"{name} contain {wrong[0]}: give finite numbers, 0 or more")
    return array.astype(np.float64)


def _is_complete(links: npt.ArrayLike | None) -> bool:
    if links is None:
        return True
    graph = np.asarray(links, dtype=np.bool_)
    return bool((graph | np.eye(len(graph), dtype=np.bool_)).all())


def _closed_form(arrivals: Floats, capacity: Floats, forward_cost: float) -> Optimum:
    """Return the optimum without queue and limits, on a complete graph: steps are independent.

    At most min(sum a, sum c) requests are served, and at most c_i of node i's arrivals at node i.
    So lost >= max(0, sum a - sum c), and lost + forwarded >= sum_i max(0, a_i - c_i). Both are
    equal if nodes forward their overflow as far as there is room. One forward saves one loss. With
    a forward_cost of 1 or more, it is therefore best to forward nothing.
    """
    overflow = np.maximum(0, arrivals - capacity).sum(axis=1)  # [T]
    excess = np.maximum(0, arrivals.sum(axis=1) - capacity.sum(axis=1))
    lost_by_step = excess if forward_cost < 1 else overflow
    by_step = lost_by_step + forward_cost * (overflow - lost_by_step)
    lost = float(lost_by_step.sum())
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
    """Solve the program of the module's docstring over (x, lost, q), with s eliminated.

    Let out_i = sum_j x_ij, in_i = sum_j x_ji and hold = q(t) - q(t-1). Node i then has a - out -
    hold requests to serve or lose, and capacity c - in to serve them. s is the smaller of the two.
    This gives the rows

        in - out - lost - hold <= c - a,   out + hold <= a,   in <= c,   out <= a

    All costs are >= 0. So zero actions are dual feasible, and the dual simplex has to repair only
    overloaded steps.
    """
    purpose = "compute the optimum of this setting"
    sparse: Any = require("scipy.sparse", extra="optimum", purpose=purpose)
    solver: Any = require("scipy.optimize", extra="optimum", purpose=purpose)

    steps, nodes = arrivals.shape
    hub = link_limit is None and _is_complete(links)
    if hub:
        # Without limits, one hub can replace the N (N - 1) links of a complete graph: N links in,
        # N links out. Sending to itself through the hub never beats serving locally.
        sends = np.hstack([np.eye(nodes), np.zeros((nodes, nodes))])  # [N, E]
        takes = np.hstack([np.zeros((nodes, nodes)), np.eye(nodes)])
        upper = np.hstack([arrivals, capacity])  # [T, E]
    else:
        graph = np.ones((nodes, nodes), dtype=np.bool_) if links is None else links
        source, target = np.nonzero(graph & ~np.eye(nodes, dtype=np.bool_))
        sends = (np.arange(nodes)[:, None] == source).astype(np.float64)  # [N, E]
        takes = (np.arange(nodes)[:, None] == target).astype(np.float64)
        upper = np.minimum(arrivals[:, source], capacity[:, target])  # [T, E]
        if link_limit is not None:
            upper = np.minimum(upper, link_limit)

    each_step = sparse.eye(steps)
    out, into = (sparse.kron(each_step, ends, format="csr") for ends in (sends, takes))
    one = sparse.eye(arrivals.size, format="csr")
    hold = one - sparse.eye(arrivals.size, k=-nodes, format="csr")
    rows = [[into - out, -one, -hold], [out, None, hold], [into, None, None], [out, None, None]]
    need, room = arrivals.ravel(), capacity.ravel()
    price = np.tile(forward_cost * sends.sum(axis=0), steps)  # [T * E]
    upper_bounds = [upper.ravel(), np.full(need.size, np.inf), np.full(need.size, float(queue))]
    balance, nothing = None, None
    if hub:  # in every step as many requests leave the hub as enter it
        through = sparse.kron(each_step, (sends - takes).sum(axis=0, keepdims=True))
        rest = sparse.csr_matrix((steps, 2 * need.size))
        balance, nothing = sparse.hstack([through, rest], format="csc"), np.zeros(steps)

    result = solver.linprog(
        np.concatenate([price, np.ones(need.size), np.full(need.size, wait_cost)]),
        A_ub=sparse.bmat(rows, format="csc"),
        b_ub=np.concatenate([room - need, need, room, need]),
        A_eq=balance,
        b_eq=nothing,
        bounds=np.stack([np.zeros(price.size + 2 * need.size), np.concatenate(upper_bounds)], 1),
        method="highs-ds",  # HiGHS, dual simplex: ends at a vertex
    )
    if result.status != 0:
        raise OptimumError(
            f"HiGHS did not find an optimum for {steps} steps x {nodes} nodes: "
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
