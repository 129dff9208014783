"""Worked examples of dfaas_v0, continued: shares and routes, teams, neighbours, windows."""

from __future__ import annotations

from support.dfaas_case import Case, Step, load

SHARE_CASES = [
    # capacity: 10 by weights 10, 20, 40 of 70: floors 1, 2, 5; two are left over, one each for the
    # first two: 2, 3, 5. The weights are capacities, not room: in the second row node_3 is busy
    # with its own 40, is offered 5 all the same, and they are lost.
    Case(
        name="capacity_shares_with_remainder",
        kwargs=load(
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
        kwargs=load([[7, 0, 0, 0]], [[0, 0, 30, 30]], route="capacity", second_offer=False),
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
        kwargs=load([[7, 0, 0, 0]], [[0, 5, 10, 20]], route="spare", second_offer=False),
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
        kwargs=load(
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
        kwargs=load(
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
        kwargs=load([[5, 0, 0, 0]], [[0, 10, 10, 10]], route="two", second_offer=False),
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
        kwargs=load([[0, 0, 15, 0]], [[10, 10, 0, 10]], route="two"),
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
        kwargs=load([[8, 0]], [[4, 0]], reward="team"),
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
        kwargs=load([[4, 8], [0, 8]], [[4, 0], [4, 0]], forward_cost=0.5),
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
        kwargs=load([[4, 8]], [[10, 8]], neighbours={"node_0": [], "node_1": ["node_0"]}),
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
        kwargs=load(
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
        kwargs=load(
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
        kwargs=load([[100], [1], [2], [3], [200]], [[0]] * 5, rows=(1, 4), start=2, max_cycles=4),
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
        kwargs=load([[4, 10], [12, 30]], None, capacity="1.25x"),
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
