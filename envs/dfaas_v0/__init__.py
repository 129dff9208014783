"""dfaas_v0: edge servers that serve, queue or forward the requests of a load trace.

N nodes replay a load trace. In every step each node receives new requests, the arrivals. It chooses
how many of them to forward to its neighbors. A request is lost if no node serves it and no queue
holds it. All nodes act at once.

| | dfaas_v0 |
|---|---|
| agents | ``node_0`` .. ``node_{N-1}``, in the order of first appearance in the trace |
| actions | Discrete: action k forwards min(k * unit, a) of the arrivals; see Levels |
| action mask | k <= ceil(a / unit); a node without neighbors has only action 0 |
| observation | float32 [3 + 2 (N - 1)] in [0, 1]; see Observation |
| reward | -(lost + forward_cost * forwarded + wait_cost * waiting) / load_scale |
| episode | a window of ``max_cycles`` rows of the trace; ends by truncation only |

| symbol | of a node in the current step |
|---|---|
| a, c | arrivals, and capacity (requests that it can serve) |
| q, Q | queued requests before the step, and the queue limit ``queue`` |
| f | requests that it forwards |
| n | number of its neighbors |
| t | steps since the episode began |

The cyclic order of node i is i+1, i+2, ..., i-1, modulo N. A tie goes to the first node in cyclic
order, unless stated otherwise.

**Units.** unit = max(1, ceil(load_scale / max_level)). Actions are 0 .. ceil(load_scale / unit). If
load_scale <= max_level, a unit is one request.

**Levels.** Action k is a level; ``amount`` selects the meaning of levels. A node without neighbors
has only level 0, for any ``amount``. Level k of "unit" stands for requests[k] = k * unit. Level k
forwards min(requests[k], a). It is legal if k = 0 or requests[k - 1] < a.

- ``amount="quantile"``: the same, with another table of requests if load_scale exceeds max_level.
  The table holds 0, ceil(load_scale) and quantiles of the positive loads in ``rows``, weighted by
  their requests. Quantile k, for k = 1 .. max_level - 1, is the smallest load such that loads up to
  it hold at least k / max_level of all requests. If quantiles coincide, the smallest missing
  numbers complete the table of max_level + 1 entries. A training run takes the quantiles of its
  training rows (``split``).
- ``amount=[0, 1, 5, ...]``: the same, with this table of requests.
- ``amount="keep"``: the level sets how many arrivals stay before any is forwarded. Let u = max(1,
  ceil((capacity_scale + Q) / max_level)). Action 0 keeps all arrivals and is always legal. Any
  other action k keeps min((k - 1) u, c + Q - q) arrivals. It is legal if k = 1 or (k - 2) u < c +
  Q - q.
- ``amount="share"``: level k forwards ceil(k a / max_level). All levels are legal.

**Residual actions.** With ``residual``, a rule such as "backlog=0.75/least", actions are offsets to
the number of requests that this rule keeps (``corral.envs.dfaas_v0.plain_rules``). Requests go by
the route of the rule. Let R be ``offsets``, k the requests that the rule keeps, and u as for
"keep". With a summary or neighborhood, u is relative to the node: its c of this step takes the
place of capacity_scale in the formula of u. The actions 0, 1, 2, 3, 4, ... have the offsets o = 0,
-1, +1, -2, +2, ..., -R, +R. Action 0 is the rule to the request and always legal. Any other action
keeps min(max(0, k + o u), c + Q - q) arrivals. It is legal if this differs from the number kept by
all actions before it. For the rule "local", k is c + Q - q in this formula. Caps of the rule, and
the largest number that it forwards, stay. An illegal action forwards all arrivals within the caps.
The number k is part of the observation, as the last feature: divided by capacity_scale + Q and at
most 1, or in a summary divided by max(c, 1). An untrained policy of an on-policy trainer plays
action 0 greedily. A rule without a fixed number of kept requests ("static", "random", "share")
raises ValueError.

**Beyond the scales.** A trace that exceeds ``load_scale`` or ``capacity_scale`` raises ScaleError.
With ``beyond="clip"`` it is played, and observations are at most 1. ``beyond="rule"`` needs
``residual``. Then also all nodes follow the rule in a step in which the team observes a number
above its scale: arrivals that a node knows, its capacity, or what it reports. Action 0 is then the
only legal one. Arrivals of the step that nodes do not know may exceed the scale. A summary has no
scales.

"keep" and "share" forward at most n * ``link_limit`` requests. The other arrivals stay at the node
without forward_cost: they are served, queued or lost there.

**Unknown arrivals.** With ``arrivals="unknown"`` nodes choose before they know the arrivals of the
step, like a gateway in production. A node observes arrivals of past steps (0 at the start), its
queue, and the capacity of this step. Its arrivals of the last step take the place of a in the
observation. All levels of "unit" and "quantile" are legal, and level k forwards min(requests[k],
a). A gateway carries out an action as a plan (``corral.envs.dfaas_v0.plans``). ``report_delay=0``
raises ValueError, because reports of the current step reveal its arrivals. The global state, which
only critics see, contains the arrivals of this step.

**More features of a node's load.** ``last_counts=k`` adds the node's arrivals of the k past steps,
newest first. They come at the end of the observation. With unknown arrivals, the newest one is in
the place of a instead. ``daily_mean`` adds the node's mean load at this time of day in ``rows``, as
the last feature. Both are divided by load_scale; in a summary they are divided by max(c, 1) and
clipped at 4.

**A step** has three parts:

1. Each node computes work = q + a - f; served_local = min(work, c); left = work - served_local; new
   queue = min(left, Q); lost = left - new queue; spare = c - served_local.
2. Nodes take turns as senders in cyclic order, beginning with node t mod N. A sender splits f over
   its neighbors by ``route``. Each neighbor accepts min(share, its spare, link_limit).
3. With ``second_offer``, the sender offers refused requests once more, in cyclic order. Each
   neighbor accepts up to its spare and the rest of its link_limit. The sender loses the requests
   that are refused again.

**Routes by step** split all requests of a step at once:

- "equal": f // n to each neighbor, and one more to the first f mod n in cyclic order.
- "capacity", "spare": in proportion to the neighbors' current capacity or reported spare. Shares
  are rounded down. The first neighbors in cyclic order get one more each, until f is reached. If
  all weights are 0, the split is "equal".
- "shortest" (or "all-to-shortest"): all to the neighbor with the largest reported spare.
- "two" (or "all-to-two"): two neighbors are drawn at random with replacement. All requests go to
  the one with the larger reported spare, in a tie to the first drawn.
- "choose": all to the neighbor that the action names. Let m be the largest number of neighbors of
  any node. Action 0 forwards nothing. Action 1 + (k - 1) m + d forwards level k to neighbor d = 0,
  1, ... in cyclic order. It is legal if level k is legal and d < n. An illegal action forwards all
  arrivals to neighbor d mod n. At most 4,096 actions are allowed.

"shortest" and "two" send all requests of a step to one node. They differ from the load-balancing
policies "join the shortest queue" and "power of two choices", which choose for each request: see
"least" and "two-choices".

**Routes by request** send one request after the other. They count the requests that they have sent
to each neighbor in this step:

- "round-robin": an alias of "equal".
- "weighted": to the smallest (sent + 1) / capacity. Neighbors with capacity 0 come last, in turn.
- "least": to the largest reported spare - sent, also if that is below 0.
- "two-choices": two neighbors are drawn with replacement. The request goes to the one with the
  larger reported spare - sent, in a tie to the first drawn. All draws follow from two random
  numbers per node and episode.
- "fill": to one neighbor up to its cap, then to the next, in order of reported spare, the largest
  first.

**Caps** limit the requests that a sender offers to one neighbor in a step, over both offers. A plan
can set caps. ``link_limit`` is the cap for "keep", for "share", and for a summary with unknown
arrivals. A sender forwards at most the sum of its caps; the other arrivals stay at the node. Routes
by request skip a neighbor that has reached its cap. Routes by step obey caps as follows. "equal"
skips such neighbors too. "capacity" and "spare" send the excess round-robin to the other neighbors.
"shortest", "two" and "choose" fill their target up to its cap, then the other neighbors in cyclic
order.

**Reports.** A node knows the spare and lost of other nodes as they ended the step ``report_delay``
steps ago. The default, 1, is the last step. Reports are 0 until the episode has such a step. With
``report_delay=0`` spare is that of the current step, max(0, c - q - a), and lost is that of the
last step. Routes, observations and the margin rules use reports.

**Observation.** First a / load_scale, c / capacity_scale and q / max(Q, 1). Then for each other
node in cyclic order: reported spare / capacity_scale, and min(1, reported lost / load_scale). Both
are 0 for a node that is not a neighbor.

**Global state.** For each node a, c, q, and the true spare and lost of the last step, scaled as in
the observation. ``report_delay`` does not affect it. Then t mod N, one-hot.

**Info.** Integers of this step, 0 at reset: arrivals, forwarded, served_local, served_remote
(counted at the node that serves), lost, waiting, illegal_actions, waited. waited sums, over the
requests of served_local, the steps that each request waited. Nodes serve their queue first, oldest
requests first. If the queue is full, the newest requests are lost.

**Custom rewards.** ``reward_fn`` replaces the reward. It is a function ``(info, rules) -> float32
[B, N]``. ``info`` holds the step's info, int64 [B, N] each. ``rules`` are the rules of this
environment, with attributes such as agents and load_scale. Tables of replays and evaluations still
show the cost defined above. A run stores only the name of the function and does not import it. Pass
``reward_fn`` again to resume the run.

**Illegal actions** forward all arrivals under ``illegal="penalise"``.

**Summary.** The spaces of ``observation="summary"`` depend neither on N nor on the trace. A team
trained on 3 nodes can play on 200. All nodes share one policy, which does not observe which node it
plays. The observation is float32 [16], plus any features of ``last_counts`` and ``daily_mean``. All
values are divided by the node's own max(c, 1) of this step and clipped at 4:

| feature | of the node itself |
|---|---|
| 0 - 3 | a, q, and its own reported spare and lost |

| feature | of its neighbors, from their reports; 0 without neighbors |
|---|---|
| 4 - 6 | mean, largest and smallest spare |
| 7 - 9 | spare of the three neighbors with the most spare, largest first; 0 if fewer |
| 10 - 12 | mean, largest and smallest lost |
| 13 - 15 | lost of the same three neighbors |

Actions are Discrete(max_level + 1). Level k forwards ceil(k a / max_level) requests. Level 0 is
always legal. The other levels are legal if the node has neighbors and a > 0. With unknown arrivals
or ``amount="share"`` they are also legal if a = 0. If a < max_level, several levels forward the
same number. They stay legal, so that a level means the same share at every load. Under route
"choose", d ranks the three neighbors with the most reported spare, and m = 3. The observation does
not distinguish c = 0 from c = 1, nor loads above 4 c.

**Neighborhood.** ``observation="neighborhood"`` is a summary with five more features. They follow
feature 15, so the observation is float32 [21], plus any further features. Let n be the number of
the node's neighbors:

| feature | of its neighbors, from their reports; 0 without neighbors |
|---|---|
| 16 | n / (n + 8), not divided by c |
| 17 - 19 | lower quartile, median and upper quartile of their spare |
| 20 | their spare in total, divided by the number of possible senders |

Quartile p = 1, 2, 3 is the smallest reported spare such that at least p n / 4 neighbors report no
more: the value with number ceil(p n / 4) in ascending order. Possible senders are the node itself
and its neighbors with a reported spare of 0. Actions and everything else are those of a summary.

**Other numbers of nodes.** A team with a summary or neighborhood plays any trace. With
``residual``, it takes its rule along. In a benchmark, residual teams of 3 nodes did not beat the
fitted rule on 3, 5, 20 or 200 nodes (benchmarks/results/transfer.md, docs/training.md).

**Augmented days.** ``augment`` changes the load of each episode at its start, to train on more days
than the trace holds. It is a mapping or a text such as "shift=12,scale=0.2,noise=0.1,mix=0.5". A
missing part is 0.

| part | effect on the load of an episode |
|---|---|
| shift | rows of a node come up to this many steps earlier or later, drawn uniformly |
| mix | with this probability a node gets the rows of another day, at the same time of day |
| scale | the load of a node is multiplied by exp(scale * z), one z per episode |
| noise | each row of a node is multiplied by exp(noise * z), a new z per row |

Each z is standard normal. Draws are independent between nodes, except for scale: there z has
correlation 1/2 between nodes, because forwarding helps least if all loads rise together. Rows come
from the section ``rows`` and wrap in it. If the trace has no days, mix starts at any other row. If
the section has no other day, mix has no effect. Loads are rounded and limited to load_scale, or
with ``beyond`` to the largest load of the rows if that is more.
Capacity is shifted and mixed together with the rows of its node. It is never scaled. A generator
first draws the first row and the numbers of a random route. Then it draws three uniform numbers for
each node (shift, whether to mix, which day), one normal number for all nodes and one for each
(scale), and finally the noise.

Only training uses augmented days. Validation and held-out rows are played as recorded. Do not
compare returns of training with returns of an evaluation.

**Reference policies** forward in levels during training, as the learner does. In a replay they
forward exact numbers of requests (``corral.envs.dfaas_v0.plain_rules``). Under route "choose" they
name the neighbor with the largest reported spare.

**Known answer.** Assume unit 1, no costs, no queue, no link limit, ``second_offer`` and a complete
graph. Forwarding the overflow max(0, a - c) then serves min(sum a, sum c) in every step. No policy
serves more.

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
