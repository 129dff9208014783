"""dfaas_v0: edge servers that serve, queue or forward the requests of a load trace.

N nodes replay a trace. At every step node i sees a_i new requests and can serve c_i; it chooses
how many of the new ones to forward to its neighbours. What is neither served, nor accepted by a
neighbour, nor held in the queue, is lost. All nodes act at once.

| | of dfaas_v0 |
|---|---|
| agents | ``node_0`` .. ``node_{N-1}``, in the order in which nodes first appear in the trace |
| actions | Discrete: k forwards min(k * unit, a) of the a arrivals; see Levels, "choose" |
| action mask | k <= ceil(a / unit); only 0 for a node without neighbours; see Unknown arrivals |
| observation | float32 [3 + 2 (N - 1)] in [0, 1], see below |
| reward | -(lost + forward_cost * forwarded + wait_cost * waiting) / load_scale |
| episode | a window of ``max_cycles`` rows of the trace; ends by truncation alone |

**Units.** unit = max(1, ceil(load_scale / max_level)); actions 0 .. ceil(load_scale / unit). Where
load_scale <= 100 a unit is one request.

**Levels.** Action k stands for requests[k] = k * unit. With ``amount="quantile"``, where load_scale
> max_level, they are 0, load_scale, and quantiles of the positive loads of ``rows``, each request
counting once: for k = 1 .. max_level - 1 the smallest load such that k / max_level of all requests
came in loads no larger. Levels that coincide make room for the smallest numbers missing. A list,
``amount=[0, 1, 5, ...]``, gives them; ``split`` turns "quantile" into that of the rows to train on.
Level k forwards min(requests[k], a), and is legal where requests[k - 1] < a.

With ``amount="keep"`` an action says how many arrivals stay before any is forwarded. With Q the
queue limit and u = max(1, ceil((capacity_scale + Q) / max_level)), action 0 keeps all and is always
legal; action k >= 1 keeps min((k - 1) u, c + Q - q), and is legal if k = 1 or (k - 2) u < c + Q -
q. With ``amount="share"`` level k forwards ceil(k a / max_level) of a arrivals; all levels are
legal. Both forward no more than the links carry: the rest stays, queues or is lost, at no
forward_cost.

**Unknown arrivals.** With ``arrivals="unknown"`` nothing that a node observes depends on the
arrivals of this step, its own or others': it knows the counts of the steps that are over (0 at the
start), its own queue, and the capacity of this step. Its own last count takes the place of a in the
observation. Masks do not depend on arrivals: "unit" and "quantile" levels are all legal, and level
k forwards min(requests[k], a). A gateway is in this position; it carries out an action as a plan
(``corral.envs.dfaas_v0.plans``). ``report_delay=0`` is refused, since such reports tell this step's
arrivals. The global state, which only critics see, holds them.

**More of the own load.** ``last_counts=k``: k own counts of past steps, newest first; with unknown
arrivals the first is in the place of a, the others come at the end of the observation, as all of
them do with known arrivals. ``daily_mean``: the mean load of the node at this time of day in
``rows``, at the very end. Both are divided by load_scale (in a summary by max(c, 1), clipped at 4).

**A step**, with f the forwarded and q the queued requests of a node:

1. work = q + a - f; served_local = min(work, c); left = work - served_local;
   new queue = min(left, queue); lost = left - new queue; spare = c - served_local.
2. Senders take turns, beginning with node t mod N, t the step of the episode. A sender splits f
   over its neighbours (in cyclic order i+1, i+2, ...) by ``route``; each takes
   min(share, its spare, link_limit).
3. With ``second_offer``, what found no room is offered once more, in cyclic order, up to the
   spare and to what is left of link_limit. The rest is lost by the sender.

**Routes.** "equal": f // n each, the first f mod n one more. "capacity", "spare": in proportion to
the neighbours' current capacity, or to the spare they reported; rounded down, the remainder one by
one in cyclic order; equal where all weights are 0. "shortest" (or "all-to-shortest"): all to the
largest reported spare. "two" (or "all-to-two"): of two neighbours drawn at random with replacement,
all to the larger reported spare. Ties go to the first (in cyclic order; for "two", drawn). These
two send all requests of a step to one node. Balancers that are called join the shortest queue or
the power of two choices choose for each request: "least" and "two-choices". "choose": all to the
neighbour that the action names. With m the most neighbours of any node, action 0 forwards nothing
and 1 + (k-1) m + d forwards level k to the d-th neighbour in cyclic order, from 0 (of a summary, to
that of the three with the most reported spare); legal are legal levels with d below the number n of
neighbours. An illegal one goes to neighbour d mod n. At most 4,096 actions.

**Routes per request** send one request after the other, and count what was sent in this step.
"round-robin" is another name of "equal". "weighted": each to the smallest (sent + 1) / capacity,
ties in cyclic order, capacity 0 last. "least": each to the largest reported spare less what was
sent there, ties in cyclic order, also below 0. "two-choices": of two neighbours drawn with
replacement, the larger reported spare less what was sent there, ties to the first drawn; its draws
follow from two numbers for each node and episode. "fill": to one neighbour up to its cap, then to
the next, the largest reported spare first. All pass over neighbours whose cap is reached: that of a
plan, and the link limit for "keep" and "share". With caps the routes above do so as well: "equal"
goes on in turn; "capacity" and "spare" send in turn what is over; the others send to their target
up to its cap, then to the next neighbours in cyclic order.

**Reports.** Nodes know of each other what they ended the step ``report_delay`` steps ago with,
spare and lost; 0 until there is such a step of the episode. 1, the default, is the last step. With
0 the spare is this step's, max(0, c - q - a), and lost is the last step's. Routes, observations and
the rules named margin all go by these reports.

**Observation.** a / load_scale, c / capacity_scale, q / max(queue, 1); then for each other node in
cyclic order its reported spare / capacity_scale and min(1, lost / load_scale) (0 for nodes that are
no neighbours).

**Global state.** Per node a, c, q, spare and lost of the last step (true, whatever
``report_delay``), scaled as above; then t mod N one-hot.

**Info** (integers of this step, 0 at reset): arrivals, forwarded, served_local, served_remote
(counted where served), lost, waiting, illegal_actions; and waited, the steps that the requests of
served_local waited, summed. Nodes serve their queue first, those that came first before all others;
where it is full, the last to come are lost.

**Rewards of one's own.** ``reward_fn`` takes the place of the reward: a function ``(info, rules) ->
float32 [B, N]`` of a step's info, each int64 [B, N], and of these rules (agents, load_scale, ...).
Tables of replays and evaluations keep the cost of the game. A run keeps the function's name, and
imports nothing because of it: to go on, name it again.

**Illegal actions** under "penalise" forward all arrivals.

**Summary.** ``observation="summary"`` has spaces that depend neither on N nor on the trace: a team
trained on 3 nodes plays on 200. One policy plays all nodes, and is not told which it plays.
Observation: float32 [16], requests divided by the own max(c, 1) of this step, clipped at 4:

| | of the node itself |
|---|---|
| 0 - 3 | a, q, and its spare and lost as it reports them |

| | of its neighbours, as they report it; 0 without any |
|---|---|
| 4 - 6 | mean, largest and smallest spare |
| 7 - 9 | spare of the three with the most, the most first, ties in cyclic order; 0 where fewer |
| 10 - 12 | mean, largest and smallest lost |
| 13 - 15 | lost of the same three |

Actions: Discrete(max_level + 1); k forwards ceil(k * a / max_level) requests. All are legal where
a > 0 and the node has neighbours, else only 0. Where a < max_level several levels forward the same.
They stay legal: without them a level would mean another share at each load. Neither c = 0 and c = 1
nor loads above 4 c are told apart.

**Augmented days.** ``augment`` changes the load of each episode as it begins, to train on more days
than were recorded. It is a mapping, or text such as "shift=12,scale=0.2,noise=0.1,mix=0.5"; what is
absent is 0.

| part | what it does to the load of an episode |
|---|---|
| shift | a node's rows come up to so many steps earlier or later, drawn uniformly |
| mix | with this probability a node has another day's rows, at the same time of the day |
| scale | a node's load is multiplied by exp(scale * z), the whole episode long |
| noise | each row of a node is multiplied by exp(noise * z), with a z of its own |

Each node is drawn by itself, but for scale: its z are normal with correlation 1/2 between nodes, as
loads that rise together are those that no forwarding helps. Rows are of the section, and wrap in
it. Where its clock has no days, mix begins at any other row; where there is no other day, it does
nothing. Loads are rounded, and cut at load_scale. Capacity is shifted and mixed with its node's
rows, and never scaled. A generator draws the first row, pairs for route "two", three uniform
numbers for each node (shift, whether it is mixed, which day), one normal number for all nodes and
one for each (scale), then the noise.

Training alone is augmented: validation and held-out rows are played as recorded. So the returns of
training are of augmented days, and are not to be compared with those of an evaluation.

**Reference policies** forward in levels in a training, as the learner does, and to the request in a
replay (``corral.envs.dfaas_v0.plain_rules``). Under "choose" they name the largest reported spare.

Known answer: with unit 1, no costs, queue or limits, ``second_offer`` and a complete graph,
forwarding the overflow max(0, a - c) serves min(sum a, sum c) at every step; nothing serves more.

Version history: v0, the first.
"""

from __future__ import annotations

from corral.envs.dfaas_v0.plans import Plan, Plans
from corral.envs.dfaas_v0.routes import ROUTES, Route
from corral.envs.dfaas_v0.rules import DfaasRules, DfaasState
from corral.envs.entries import aec_entries, parallel_entry

__all__ = [
    "ROUTES",
    "DfaasRules",
    "DfaasState",
    "Plan",
    "Plans",
    "Route",
    "env",
    "parallel_env",
    "raw_env",
]

parallel_env = parallel_entry(DfaasRules)
raw_env, env = aec_entries(DfaasRules)
