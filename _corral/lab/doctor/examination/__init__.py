"""Any learner of any framework, examined on the probes, whose answers are known exactly.

    def learn(make_env, steps, seed):
        env = make_env()            # a PettingZoo environment: parallel; AEC where in turns
        ...                         # train for ``steps`` env steps with discount 0.9
        return {"agent_0": policy, "agent_1": policy}     # or Learned(policies, values)

    found = examination(learn)      # or "my_file.py:learn", or a trainer of corral by its name
    print(examination_text(found))

Policies are whatever ``corral.envs.policy.as_policy`` takes. ``make_env`` stands for the
environment wherever corral takes one: ``make_batch(make_env, num_envs=16)``; and
``make_env(api="aec")`` is the AEC form of any. What asks for values
is "not judged" where none are given. ``suspects`` names the planted bugs that fail alike.
"""

from corral.lab.doctor.examination.judging import (
    GAMMA,
    Check,
    Examination,
    Learned,
    Result,
    judge,
)
from corral.lab.doctor.examination.learners import (
    EXAMINED,
    examination,
    judged_run,
    trained_by,
)
from corral.lab.doctor.examination.patterns import Suspect, suspects
from corral.lab.doctor.examination.text import examination_text, result_text

__all__ = [
    "EXAMINED",
    "GAMMA",
    "Check",
    "Examination",
    "Learned",
    "Result",
    "Suspect",
    "examination",
    "examination_text",
    "judge",
    "judged_run",
    "result_text",
    "suspects",
    "trained_by",
]
