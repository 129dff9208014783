"""Worked examples of dfaas_v0, by hand: literal numbers that every implementation must give."""

from __future__ import annotations

from support.dfaas_case import Case, Step, load
from support.dfaas_share_cases import SHARE_CASES

CASES = [
    # Largest arrivals 250 over 100 levels: unit ceil(2.5) = 3, actions 0..ceil(250/3) = 84.
    # node_0 sends 50*3 = 150, of which node_1 takes 100. node_1's action 4 would be 12 requests:
    # capped at its 10 arrivals, and legal, for 4 = ceil(10/3). node_0 has no room for them.
    Case(
        name="unit_rounds_up_and_f_is_capped_by_arrivals",
        kwargs=load([[250, 10]], [[100, 100]]),
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
        kwargs=load([[7, 0]], [[2, 3]], load_scale=100, capacity_scale=20),
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
        kwargs=load([[7, 0]], [[2, 30]], load_scale=101),
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
        kwargs=load([[10], [3], [0]], [[4], [5], [6]], queue=5, wait_cost=0.5),
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
        kwargs=load([[6, 0]], [[0, 2]], queue=10),
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
        kwargs=load(
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
        kwargs=load([[10, 0, 0]], [[0, 2, 20]]),
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
        kwargs=load([[10, 0, 0]], [[0, 2, 20]], second_offer=False),
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
        kwargs=load([[7, 0, 0, 0]], [[0, 0, 5, 5]]),
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
        kwargs=load([[10, 0, 0]], [[0, 2, 20]], link_limit=6),
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
        kwargs=load([[10, 10, 0]], [[0, 0, 20]], link_limit=4),
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
        kwargs=load(
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
        kwargs=load([[6, 4, 0]], [[0, 0, 6]]),
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
    *SHARE_CASES,
]
