"""Worked examples of dfaas_v0, by hand: literal numbers that every implementation must give.

Each case is a configuration, the actions of a few steps, and what comes of them. ``draws`` is for
``route="two"`` alone: draws[t][i] -> positions (j1, j2) in sender i's list of neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.data.trace import Trace

Pairs = list[list[tuple[int, int]]]


@dataclass(frozen=True)
class Step:
    """The actions of one step and what follows from them, one number per node."""

    actions: list[int]
    forwarded: list[int]
    served_local: list[int]
    served_remote: list[int]
    lost: list[int]
    waiting: list[int]  # also the queues after the step
    spare: list[int]  # as the node ended the step
    rewards: list[float]
    arrivals: list[int] | None = None  # None: not checked
    illegal_actions: list[int] | None = None  # None: all zero
    flows: dict[tuple[int, int], int] | None = (
        None  # (i, j) -> what j served for i; None: unchecked
    )
    observations: dict[int, list[float]] | None = None  # after the step
    global_state: list[float] | None = None  # after the step


@dataclass(frozen=True)
class Case:
    """One worked example."""

    name: str
    kwargs: dict[str, Any]  # of the environment, the trace and a fixed start row included
    steps: list[Step]
    draws: Pairs | None = None
    unit: int = 1
    actions: int | None = None  # the number of actions; None: not checked
    highest_legal: list[int] | None = None  # at the start; all lower actions are legal too
    first_observations: dict[int, list[float]] | None = None

    def __str__(self) -> str:
        return self.name


def make_trace(arrivals: list[list[int]], capacity: list[list[int]] | None) -> Trace:
    """A trace from rows of numbers, one row per step."""
    names = tuple(f"site-{i}" for i in range(len(arrivals[0])))
    times = np.arange(len(arrivals))
    served = None if capacity is None else np.array(capacity)
    return Trace(nodes=names, arrivals=np.array(arrivals), capacity=served, times=times)


def _load(
    arrivals: list[list[int]], served: list[list[int]] | None, /, **others: Any
) -> dict[str, Any]:
    return {"trace": make_trace(arrivals, served), "start": 0, "max_cycles": 8, **others}


CASES = [
    # Largest arrivals 250 over 100 levels: unit ceil(2.5) = 3, actions 0..ceil(250/3) = 84.
    # node_0 sends 50*3 = 150, of which node_1 takes 100. node_1's action 4 would be 12 requests:
    # capped at its 10 arrivals, and legal, for 4 = ceil(10/3). node_0 has no room for them.
    Case(
        name="unit_rounds_up_and_f_is_capped_by_arrivals",
        kwargs=_load([[250, 10]], [[100, 100]]),
        unit=3,
        actions=85,
        highest_legal=[84, 4],
        steps=[
            Step(
                actions=[50, 4],
                forwarded=[150, 10],
                served_local=[100, 0],
                served_remote=[0, 100],
                lost=[50, 10],
                waiting=[0, 0],
                spare=[0, 0],
                rewards=[-0.2, -0.04],
                arrivals=[250, 10],
                flows={(0, 1): 100},
            )
        ],
    ),
    # Up to a scale of 100 an action is a plain count.
    Case(
        name="unit_is_one_at_a_scale_of_100",
        kwargs=_load([[7, 0]], [[2, 3]], load_scale=100, capacity_scale=20),
        unit=1,
        actions=101,
        highest_legal=[7, 0],
        first_observations={0: [0.07, 0.1, 0.0, 0.0, 0.0], 1: [0.0, 0.15, 0.0, 0.0, 0.0]},
        steps=[
            Step(
                actions=[4, 0],
                forwarded=[4, 0],
                served_local=[2, 0],
                served_remote=[0, 3],
                lost=[2, 0],  # one found no room at node_1, one none at home
                waiting=[0, 0],
                spare=[0, 0],
                rewards=[-0.02, 0.0],
                observations={1: [0.0, 0.15, 0.0, 0.0, 0.02]},
            )
        ],
    ),
    # A scale of 101 is just beyond: unit 2, actions 0..ceil(101/2) = 51.
    Case(
        name="unit_is_two_at_a_scale_of_101",
        kwargs=_load([[7, 0]], [[2, 30]], load_scale=101),
        unit=2,
        actions=52,
        highest_legal=[4, 0],
        steps=[
            Step(
                actions=[2, 0],
                forwarded=[4, 0],
                served_local=[2, 0],
                served_remote=[0, 4],
                lost=[1, 0],
                waiting=[0, 0],
                spare=[0, 26],
                rewards=[-1 / 101, 0.0],
            )
        ],
    ),
    # A queue of 5: 10 come, 4 are served, 5 wait, 1 is lost; 5+3 against 5: 3 wait; 3+0 against 6.
    # Waiting costs half a loss. After three rows the trace begins again.
    Case(
        name="queue_holds_over_and_waiting_costs",
        kwargs=_load([[10], [3], [0]], [[4], [5], [6]], queue=5, wait_cost=0.5),
        highest_legal=[0],
        first_observations={0: [1.0, 4 / 6, 0.0]},
        steps=[
            Step(
                actions=[0],
                forwarded=[0],
                served_local=[4],
                served_remote=[0],
                lost=[1],
                waiting=[5],
                spare=[0],
                rewards=[-0.35],
                observations={0: [0.3, 5 / 6, 1.0]},
                global_state=[0.3, 5 / 6, 1.0, 0.0, 0.1, 1.0],
            ),
            Step(
                actions=[0],
                forwarded=[0],
                served_local=[5],
                served_remote=[0],
                lost=[0],
                waiting=[3],
                spare=[0],
                rewards=[-0.15],
                observations={0: [0.0, 1.0, 0.6]},
            ),
            Step(
                actions=[0],
                forwarded=[0],
                served_local=[3],
                served_remote=[0],
                lost=[0],
                waiting=[0],
                spare=[3],
                rewards=[0.0],
                observations={0: [1.0, 4 / 6, 0.0]},
                global_state=[1.0, 4 / 6, 0.0, 0.5, 0.0, 1.0],
            ),
        ],
    ),
    # Forwards that find no room are lost though the queue is empty, and what waits at home cannot
    # be forwarded any more: action 6 sends the six that came.
    Case(
        name="a_queue_holds_no_forwards",
        kwargs=_load([[6, 0]], [[0, 2]], queue=10),
        steps=[
            Step(
                actions=[6, 0],
                forwarded=[6, 0],
                served_local=[0, 0],
                served_remote=[0, 2],
                lost=[4, 0],
                waiting=[0, 0],
                spare=[0, 0],
                rewards=[-4 / 6, 0.0],
            ),
            Step(
                actions=[0, 0],
                forwarded=[0, 0],
                served_local=[0, 0],
                served_remote=[0, 0],
                lost=[0, 0],
                waiting=[6, 0],
                spare=[0, 2],
                rewards=[0.0, 0.0],
            ),
            Step(
                actions=[0, 0],
                forwarded=[0, 0],
                served_local=[0, 0],
                served_remote=[0, 0],
                lost=[2, 0],
                waiting=[10, 0],
                spare=[0, 2],
                rewards=[-2 / 6, 0.0],
            ),
            Step(
                actions=[6, 0],
                forwarded=[6, 0],
                served_local=[0, 0],
                served_remote=[0, 2],
                lost=[4, 0],
                waiting=[10, 0],
                spare=[0, 0],
                rewards=[-4 / 6, 0.0],
            ),
        ],
    ),
    # equal: 11 over three neighbours is 3 each, and one more for the first two in cyclic order:
    # node_0 sends 4, 4, 3 to 1, 2, 3; node_2 sends 4, 4, 3 to 3, 0, 1. Forwarding costs 0.1 each.
    Case(
        name="equal_shares_and_forward_cost",
        kwargs=_load(
            [[11, 0, 0, 0], [0, 0, 11, 0]],
            [[0, 10, 10, 10], [10, 10, 0, 10]],
            forward_cost=0.1,
            second_offer=False,
        ),
        steps=[
            Step(
                actions=[11, 0, 0, 0],
                forwarded=[11, 0, 0, 0],
                served_local=[0, 0, 0, 0],
                served_remote=[0, 4, 4, 3],
                lost=[0, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=[0, 6, 6, 7],
                rewards=[-0.1, 0.0, 0.0, 0.0],
            ),
            Step(
                actions=[0, 0, 11, 0],
                forwarded=[0, 0, 11, 0],
                served_local=[0, 0, 0, 0],
                served_remote=[4, 3, 0, 4],
                lost=[0, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=[6, 7, 0, 6],
                rewards=[0.0, 0.0, -0.1, 0.0],
            ),
        ],
    ),
    # node_0 offers 5 and 5; node_1 has room for 2. The other 3 are offered again: node_2 has room.
    Case(
        name="second_offer_finds_room",
        kwargs=_load([[10, 0, 0]], [[0, 2, 20]]),
        steps=[
            Step(
                actions=[10, 0, 0],
                forwarded=[10, 0, 0],
                served_local=[0, 0, 0],
                served_remote=[0, 2, 8],
                lost=[0, 0, 0],
                waiting=[0, 0, 0],
                spare=[0, 0, 12],
                rewards=[0.0, 0.0, 0.0],
                flows={(0, 1): 2, (0, 2): 8},
            )
        ],
    ),
    # The same load without a second offer: the 3 are lost beside 15 free places.
    Case(
        name="no_second_offer",
        kwargs=_load([[10, 0, 0]], [[0, 2, 20]], second_offer=False),
        steps=[
            Step(
                actions=[10, 0, 0],
                forwarded=[10, 0, 0],
                served_local=[0, 0, 0],
                served_remote=[0, 2, 5],
                lost=[3, 0, 0],
                waiting=[0, 0, 0],
                spare=[0, 0, 15],
                rewards=[-0.3, 0.0, 0.0],
                flows={(0, 1): 2, (0, 2): 5},
            )
        ],
    ),
    # The second offer goes in cyclic order too: equal shares 3, 2, 2; node_1 is full. Its 3 come
    # to node_2 (3 left of 5) before node_3.
    Case(
        name="second_offer_in_cyclic_order",
        kwargs=_load([[7, 0, 0, 0]], [[0, 0, 5, 5]]),
        steps=[
            Step(
                actions=[7, 0, 0, 0],
                forwarded=[7, 0, 0, 0],
                served_local=[0, 0, 0, 0],
                served_remote=[0, 0, 5, 2],
                lost=[0, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=[0, 0, 0, 3],
                rewards=[0.0, 0.0, 0.0, 0.0],
            )
        ],
    ),
    # A link carries 6 in both offers together: node_2 takes 5, then 1 of the 3 that were left.
    # The limit is per step: the second step goes the same way.
    Case(
        name="link_limit_covers_both_offers",
        kwargs=_load([[10, 0, 0]], [[0, 2, 20]], link_limit=6),
        steps=[
            Step(
                actions=[10, 0, 0],
                forwarded=[10, 0, 0],
                served_local=[0, 0, 0],
                served_remote=[0, 2, 6],
                lost=[2, 0, 0],
                waiting=[0, 0, 0],
                spare=[0, 0, 14],
                rewards=[-0.2, 0.0, 0.0],
                flows={(0, 1): 2, (0, 2): 6},
            )
        ]
        * 2,
    ),
    # The limit is per directed link: node_0 and node_1 each send 4 of 10 to node_2, not 4 in all.
    Case(
        name="link_limit_is_per_link",
        kwargs=_load([[10, 10, 0]], [[0, 0, 20]], link_limit=4),
        steps=[
            Step(
                actions=[10, 10, 0],
                forwarded=[10, 10, 0],
                served_local=[0, 0, 0],
                served_remote=[0, 0, 8],
                lost=[6, 6, 0],
                waiting=[0, 0, 0],
                spare=[0, 0, 12],
                rewards=[-0.6, -0.6, 0.0],
                flows={(0, 2): 4, (1, 2): 4},
            )
        ],
    ),
    # node_0 and node_1 both send 4 to node_2, which has room for 4. The first sender is node t mod
    # 3: at t = 0 the order is 0, 1, 2; at t = 1 it is 1, 2, 0; at t = 2 it is 2, 0, 1.
    Case(
        name="first_sender_rotates",
        kwargs=_load(
            [[4, 4, 0]],
            [[0, 0, 4]],
            neighbours={"node_0": ["node_2"], "node_1": ["node_2"], "node_2": []},
        ),
        steps=[
            Step(
                actions=[4, 4, 0],
                forwarded=[4, 4, 0],
                served_local=[0, 0, 0],
                served_remote=[0, 0, 4],
                lost=lost,
                waiting=[0, 0, 0],
                spare=[0, 0, 0],
                rewards=rewards,
            )
            for lost, rewards in (
                ([0, 4, 0], [0.0, -1.0, 0.0]),
                ([4, 0, 0], [-1.0, 0.0, 0.0]),
                ([0, 4, 0], [0.0, -1.0, 0.0]),
                ([0, 4, 0], [0.0, -1.0, 0.0]),
            )
        ],
    ),
    # node_0 offers 3 to node_1 (no room) and 3 to node_2, then the rest to node_2 again, which is
    # now full: only then does node_1 send, and loses its 4.
    Case(
        name="a_sender_finishes_before_the_next",
        kwargs=_load([[6, 4, 0]], [[0, 0, 6]]),
        steps=[
            Step(
                actions=[6, 4, 0],
                forwarded=[6, 4, 0],
                served_local=[0, 0, 0],
                served_remote=[0, 0, 6],
                lost=[0, 4, 0],
                waiting=[0, 0, 0],
                spare=[0, 0, 0],
                rewards=[0.0, -4 / 6, 0.0],
                flows={(0, 2): 6},
            )
        ],
    ),
    # capacity: 10 by weights 10, 20, 40 of 70: floors 1, 2, 5; two are left over, one each for the
    # first two: 2, 3, 5. The weights are capacities, not room: in the second row node_3 is busy
    # with its own 40, is offered 5 all the same, and they are lost.
    Case(
        name="capacity_shares_with_remainder",
        kwargs=_load(
            [[10, 0, 0, 0], [10, 0, 0, 40]],
            [[0, 10, 20, 40], [0, 10, 20, 40]],
            route="capacity",
            second_offer=False,
        ),
        steps=[
            Step(
                actions=[10, 0, 0, 0],
                forwarded=[10, 0, 0, 0],
                served_local=[0, 0, 0, 0],
                served_remote=[0, 2, 3, 5],
                lost=[0, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=[0, 8, 17, 35],
                rewards=[0.0, 0.0, 0.0, 0.0],
            ),
            Step(
                actions=[10, 0, 0, 0],
                forwarded=[10, 0, 0, 0],
                served_local=[0, 0, 0, 40],
                served_remote=[0, 2, 3, 0],
                lost=[5, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=[0, 8, 17, 0],
                rewards=[-0.125, 0.0, 0.0, 0.0],
            ),
        ],
    ),
    # capacity: 7 by weights 0, 30, 30 is 0, 3, 3; the one left over goes to the first neighbour in
    # cyclic order, whatever its weight: node_1 has no room for it.
    Case(
        name="remainder_ignores_weights",
        kwargs=_load([[7, 0, 0, 0]], [[0, 0, 30, 30]], route="capacity", second_offer=False),
        steps=[
            Step(
                actions=[7, 0, 0, 0],
                forwarded=[7, 0, 0, 0],
                served_local=[0, 0, 0, 0],
                served_remote=[0, 0, 3, 3],
                lost=[1, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=[0, 0, 27, 27],
                rewards=[-1 / 7, 0.0, 0.0, 0.0],
            )
        ],
    ),
    # spare: nothing is known at first (W = 0), so equal shares 3, 2, 2. Then 7 by the spares 2, 8,
    # 18 of 28: floors 0, 2, 4, the one left over to node_1: 1, 2, 4. Then by 4, 8, 16: 1, 2, 4.
    Case(
        name="spare_shares_begin_equal",
        kwargs=_load([[7, 0, 0, 0]], [[0, 5, 10, 20]], route="spare", second_offer=False),
        steps=[
            Step(
                actions=[7, 0, 0, 0],
                forwarded=[7, 0, 0, 0],
                served_local=[0, 0, 0, 0],
                served_remote=served_remote,
                lost=[0, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=spare,
                rewards=[0.0, 0.0, 0.0, 0.0],
            )
            for served_remote, spare in (
                ([0, 3, 2, 2], [0, 2, 8, 18]),
                ([0, 1, 2, 4], [0, 4, 8, 16]),
                ([0, 1, 2, 4], [0, 4, 8, 16]),
            )
        ],
    ),
    # shortest: at first all spares count 0: a tie, so the first in cyclic order: 0 -> 1 and 2 -> 3.
    # Then node_0 knows 7, 10, 8 of 1, 2, 3: all to 2; node_2 knows 8, 10, 7 of 3, 0, 1: all to 0.
    # Then node_0 knows 10, 7, 10: a tie, to 1; node_2 knows 10, 8, 10 of 3, 0, 1: to 3.
    Case(
        name="shortest_with_ties",
        kwargs=_load(
            [[3, 0, 2, 0]], [[10, 10, 10, 10]], route="shortest", second_offer=False, max_level=3
        ),
        unit=1,
        actions=4,
        highest_legal=[3, 0, 2, 0],
        steps=[
            Step(
                actions=[3, 0, 2, 0],
                forwarded=[3, 0, 2, 0],
                served_local=[0, 0, 0, 0],
                served_remote=served_remote,
                lost=[0, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=spare,
                rewards=[0.0, 0.0, 0.0, 0.0],
            )
            for served_remote, spare in (
                ([0, 3, 0, 2], [10, 7, 10, 8]),
                ([2, 0, 3, 0], [8, 10, 7, 10]),
                ([0, 3, 0, 2], [10, 7, 10, 8]),
            )
        ],
    ),
    # shortest goes by the last step, not by this one: node_2 was the freest, and is busy now.
    Case(
        name="shortest_is_stale",
        kwargs=_load(
            [[0, 0, 0], [8, 0, 9]], [[0, 6, 9], [0, 6, 9]], route="shortest", second_offer=False
        ),
        steps=[
            Step(
                actions=[0, 0, 0],
                forwarded=[0, 0, 0],
                served_local=[0, 0, 0],
                served_remote=[0, 0, 0],
                lost=[0, 0, 0],
                waiting=[0, 0, 0],
                spare=[0, 6, 9],
                rewards=[0.0, 0.0, 0.0],
            ),
            Step(
                actions=[8, 0, 0],
                forwarded=[8, 0, 0],
                served_local=[0, 0, 9],
                served_remote=[0, 0, 0],
                lost=[8, 0, 0],
                waiting=[0, 0, 0],
                spare=[0, 6, 0],
                rewards=[-8 / 9, 0.0, 0.0],
            ),
        ],
    ),
    # two: node_0's neighbours are 1, 2, 3 at positions 0, 1, 2. Drawn: 3 and 1, a tie at 0: the
    # first drawn, 3. Then 3 (spare 5) and 2 (spare 10): 2. Then 2 twice: 2. Then 1 and 3, both 10:
    # the first drawn, 1.
    Case(
        name="two_drawn_neighbours",
        kwargs=_load([[5, 0, 0, 0]], [[0, 10, 10, 10]], route="two", second_offer=False),
        draws=[
            [(2, 0), (0, 0), (0, 0), (0, 0)],
            [(2, 1), (0, 0), (0, 0), (0, 0)],
            [(1, 1), (0, 0), (0, 0), (0, 0)],
            [(0, 2), (0, 0), (0, 0), (0, 0)],
        ],
        steps=[
            Step(
                actions=[5, 0, 0, 0],
                forwarded=[5, 0, 0, 0],
                served_local=[0, 0, 0, 0],
                served_remote=served_remote,
                lost=[0, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=spare,
                rewards=[0.0, 0.0, 0.0, 0.0],
            )
            for served_remote, spare in (
                ([0, 0, 0, 5], [0, 10, 10, 5]),
                ([0, 0, 5, 0], [0, 10, 5, 10]),
                ([0, 0, 5, 0], [0, 10, 5, 10]),
                ([0, 5, 0, 0], [0, 5, 10, 10]),
            )
        ],
    ),
    # two with a second offer: all 15 go to the one drawn, which takes 10; the other 5 are offered
    # to all neighbours in cyclic order, drawn or not. node_2's neighbours are 3, 0, 1: drawn is 0.
    Case(
        name="two_then_second_offer_to_anybody",
        kwargs=_load([[0, 0, 15, 0]], [[10, 10, 0, 10]], route="two"),
        draws=[[(0, 0), (0, 0), (1, 1), (0, 0)]],
        steps=[
            Step(
                actions=[0, 0, 15, 0],
                forwarded=[0, 0, 15, 0],
                served_local=[0, 0, 0, 0],
                served_remote=[10, 0, 0, 5],
                lost=[0, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=[0, 10, 0, 5],
                rewards=[0.0, 0.0, 0.0, 0.0],
            )
        ],
    ),
    # team: node_0 loses 4 of a scale of 8, node_1 nothing: each is paid half of -0.5.
    Case(
        name="team_reward_is_the_mean",
        kwargs=_load([[8, 0]], [[4, 0]], reward="team"),
        steps=[
            Step(
                actions=[0, 0],
                forwarded=[0, 0],
                served_local=[4, 0],
                served_remote=[0, 0],
                lost=[4, 0],
                waiting=[0, 0],
                spare=[0, 0],
                rewards=[-0.25, -0.25],
            )
        ],
    ),
    # Action 6 with 4 arrivals is illegal: all 4 are forwarded, lost, and pay for the way. In the
    # second row nothing came: action 1 is illegal and forwards nothing.
    Case(
        name="an_illegal_action_forwards_all_arrivals",
        kwargs=_load([[4, 8], [0, 8]], [[4, 0], [4, 0]], forward_cost=0.5),
        highest_legal=[4, 8],
        steps=[
            Step(
                actions=[6, 0],
                forwarded=[4, 0],
                served_local=[0, 0],
                served_remote=[0, 0],
                lost=[4, 8],
                waiting=[0, 0],
                spare=[4, 0],
                rewards=[-0.75, -1.0],
                illegal_actions=[1, 0],
            ),
            Step(
                actions=[1, 8],
                forwarded=[0, 8],
                served_local=[0, 0],
                served_remote=[4, 0],
                lost=[0, 4],
                waiting=[0, 0],
                spare=[0, 0],
                rewards=[0.0, -1.0],  # 4 lost and 8 * 0.5 for forwarding
                illegal_actions=[1, 0],
            ),
        ],
    ),
    # node_0 may send to nobody: its action 1 is illegal, forwards all 4 and loses them, though it
    # has room for 10. node_1 may send to node_0, which serves its 8.
    Case(
        name="a_node_without_neighbours",
        kwargs=_load([[4, 8]], [[10, 8]], neighbours={"node_0": [], "node_1": ["node_0"]}),
        highest_legal=[0, 8],
        steps=[
            Step(
                actions=[1, 8],
                forwarded=[4, 8],
                served_local=[0, 0],
                served_remote=[8, 0],
                lost=[4, 0],
                waiting=[0, 0],
                spare=[2, 8],
                rewards=[-0.5, 0.0],
                illegal_actions=[1, 0],
                observations={
                    0: [0.5, 1.0, 0.0, 0.0, 0.0],
                    1: [1.0, 0.8, 0.0, 0.2, 0.5],
                },
            )
        ],
    ),
    # A graph named in any order is used in cyclic order: node_0's neighbours are 1 and 3, so 5 over
    # two is 3 for node_1 and 2 for node_3.
    Case(
        name="neighbours_in_cyclic_order",
        kwargs=_load(
            [[5, 0, 0, 0]],
            [[0, 9, 9, 9]],
            neighbours={"node_0": ["node_3", "node_1"], "node_1": [], "node_2": [], "node_3": []},
        ),
        steps=[
            Step(
                actions=[5, 0, 0, 0],
                forwarded=[5, 0, 0, 0],
                served_local=[0, 0, 0, 0],
                served_remote=[0, 3, 0, 2],
                lost=[0, 0, 0, 0],
                waiting=[0, 0, 0, 0],
                spare=[0, 6, 9, 7],
                rewards=[0.0, 0.0, 0.0, 0.0],
            )
        ],
    ),
    # Everybody serves at home: spares 0, 2, 0, 8 of a scale of 10, losses 4, 0, 2, 0 of a scale of
    # 8. Others are seen in cyclic order, zeros standing for those one may not send to.
    Case(
        name="observation_order",
        kwargs=_load(
            [[8, 6, 4, 2], [1, 2, 3, 4]],
            [[4, 8, 2, 10], [5, 5, 5, 5]],
            neighbours={
                "node_0": ["node_3", "node_1"],
                "node_1": ["node_0"],
                "node_2": [],
                "node_3": ["node_0", "node_1", "node_2"],
            },
        ),
        highest_legal=[8, 6, 0, 2],
        first_observations={
            0: [1.0, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            3: [0.25, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        },
        steps=[
            Step(
                actions=[0, 0, 0, 0],
                forwarded=[0, 0, 0, 0],
                served_local=[4, 6, 2, 2],
                served_remote=[0, 0, 0, 0],
                lost=[4, 0, 2, 0],
                waiting=[0, 0, 0, 0],
                spare=[0, 2, 0, 8],
                rewards=[-0.5, 0.0, -0.25, 0.0],
                arrivals=[8, 6, 4, 2],
                observations={
                    # own a, c, q;       then spare and loss of  i+1, i+2, i+3
                    0: [0.125, 0.5, 0.0, 0.2, 0.0, 0.0, 0.0, 0.8, 0.0],
                    1: [0.25, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5],
                    2: [0.375, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
                    3: [0.5, 0.5, 0.0, 0.0, 0.5, 0.2, 0.0, 0.0, 0.25],
                },
                # per node a, c, q, spare, loss; then t = 1 as one of four
                global_state=[
                    *(0.125, 0.5, 0.0, 0.0, 0.5),
                    *(0.25, 0.5, 0.0, 0.2, 0.0),
                    *(0.375, 0.5, 0.0, 0.0, 0.25),
                    *(0.5, 0.5, 0.0, 0.8, 0.0),
                    *(0.0, 1.0, 0.0, 0.0),
                ],
            )
        ],
    ),
    # Rows 1, 2, 3 only, from the third of them: 3, 1, 2, 3. The scales are those of the whole
    # trace: 200 for the load, so that the unit is 2, and at least 1 for a capacity of nothing.
    Case(
        name="a_window_wraps_inside_its_section",
        kwargs=_load([[100], [1], [2], [3], [200]], [[0]] * 5, rows=(1, 4), start=2, max_cycles=4),
        unit=2,
        actions=101,
        first_observations={0: [0.015, 0.0, 0.0]},
        steps=[
            Step(
                actions=[0],
                forwarded=[0],
                served_local=[0],
                served_remote=[0],
                lost=[arrivals],
                waiting=[0],
                spare=[0],
                rewards=[-arrivals / 200],
                arrivals=[arrivals],
                observations={0: [following / 200, 0.0, 0.0]},
            )
            for arrivals, following in ((3, 1), (1, 2), (2, 3), (3, 1))
        ],
    ),
    # Capacity as a multiple of each node's mean arrivals, 8 and 20: 10 and 25 at every step.
    Case(
        name="capacity_from_mean_arrivals",
        kwargs=_load([[4, 10], [12, 30]], None, capacity="1.25x"),
        first_observations={0: [4 / 30, 0.4, 0.0, 0.0, 0.0], 1: [10 / 30, 1.0, 0.0, 0.0, 0.0]},
        steps=[
            Step(
                actions=[0, 0],
                forwarded=[0, 0],
                served_local=[4, 10],
                served_remote=[0, 0],
                lost=[0, 0],
                waiting=[0, 0],
                spare=[6, 15],
                rewards=[0.0, 0.0],
            ),
            Step(
                actions=[0, 0],
                forwarded=[0, 0],
                served_local=[10, 25],
                served_remote=[0, 0],
                lost=[2, 5],
                waiting=[0, 0],
                spare=[0, 0],
                rewards=[-2 / 30, -5 / 30],
            ),
        ],
    ),
]
