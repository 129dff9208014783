"""dfaas_v0: edge servers that serve, queue or forward the requests of a load trace.

N nodes replay a trace. At every step node i sees a_i new requests and can serve c_i; it chooses
how many of the new ones to forward to its neighbours. What is neither served, nor accepted by a
neighbour, nor held in the queue, is lost. All nodes act at once.

| | of dfaas_v0 |
|---|---|
| agents | ``node_0`` .. ``node_{N-1}``, in the order in which nodes first appear in the trace |
| actions | Discrete: k forwards min(k * unit, a) of the a arrivals |
| action mask | k <= ceil(a / unit); only 0 for a node without neighbours |
| observation | float32 [3 + 2 (N - 1)] in [0, 1], see below |
| reward | -(lost + forward_cost * forwarded + wait_cost * waiting) / load_scale |
| episode | a window of ``max_cycles`` rows of the trace; ends by truncation alone |

**Units.** unit = max(1, ceil(load_scale / max_level)); actions 0 .. ceil(load_scale / unit). Where
load_scale <= 100 a unit is one request.

**A step**, with f the forwarded and q the queued requests of a node:

1. work = q + a - f; served_local = min(work, c); left = work - served_local;
   new queue = min(left, queue); lost = left - new queue; spare = c - served_local.
2. Senders take turns, beginning with node t mod N, t the step of the episode. A sender splits f
   over its neighbours (in cyclic order i+1, i+2, ...) by ``route``; each takes
   min(share, its spare, link_limit).
3. With ``second_offer``, what found no room is offered once more, in cyclic order, up to the
   spare and to what is left of link_limit. The rest is lost by the sender.

**Routes.** "equal": f // n each, the first f mod n one more. "capacity", "spare": in proportion to
the neighbours' current capacity, or to the spare they ended the last step with; rounded down, the
remainder one by one in cyclic order; equal where all weights are 0. "shortest": all to the largest
last spare. "two": of two neighbours drawn at random with replacement, all to the larger last spare.
Ties go to the first (in cyclic order; for "two", drawn).

**Observation.** a / load_scale, c / capacity_scale, q / max(queue, 1); then for each other node in
cyclic order its spare / capacity_scale and min(1, lost / load_scale) at the end of the last step (0
at the start and for nodes that are no neighbours).

**Global state.** Per node a, c, q, last spare, last lost, scaled as above; then t mod N one-hot.

**Info** (integers of this step, 0 at reset): arrivals, forwarded, served_local, served_remote
(counted where served), lost, waiting, illegal_actions.

**Illegal actions** under "penalise" forward all arrivals.

**Summary.** ``observation="summary"`` has spaces that depend neither on N nor on the trace: a team
trained on 3 nodes plays on 200. One policy plays all nodes, and is not told which it plays.
Observation: float32 [16], requests divided by the own max(c, 1) of this step, clipped at 4:

| | of the node itself |
|---|---|
| 0 - 3 | a, q, and its spare and lost at the end of the last step |

| | of its neighbours, at the end of the last step; 0 without any |
|---|---|
| 4 - 6 | mean, largest and smallest spare |
| 7 - 9 | spare of the three with the most, the most first, ties in cyclic order; 0 where fewer |
| 10 - 12 | mean, largest and smallest lost |
| 13 - 15 | lost of the same three |

Actions: Discrete(max_level + 1); k forwards ceil(k * a / max_level) requests. All are legal where
a > 0 and the node has neighbours, else only 0. Where a < max_level several levels forward the same.
They stay legal: without them a level would mean another share at each load. Neither c = 0 and c = 1
nor loads above 4 c are told apart.

Known answer: with unit 1, no costs, queue or limits, ``second_offer`` and a complete graph,
forwarding the overflow max(0, a - c) serves min(sum a, sum c) at every step; nothing serves more.

Version history: v0, the first.
"""

from __future__ import annotations

from corral.envs.dfaas_v0.rules import ROUTES, DfaasRules, DfaasState, Route
from corral.envs.entries import aec_entries, parallel_entry

__all__ = ["ROUTES", "DfaasRules", "DfaasState", "Route", "env", "parallel_env", "raw_env"]

parallel_env = parallel_entry(DfaasRules)
raw_env, env = aec_entries(DfaasRules)
