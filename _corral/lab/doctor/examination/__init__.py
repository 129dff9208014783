"""Examine a learner of any framework on the probes, small games with known answers.

    def learn(make_env, steps, seed):
        env = make_env()            # a PettingZoo environment: parallel, or AEC for turns
        ...                         # train for ``steps`` env steps with discount 0.9
        return {"agent_0": policy, "agent_1": policy}     # or Learned(policies, values)

    found = examination(learn)      # or "my_file.py:learn", or the name of a corral trainer
    print(examination_text(found))

Policies may be any object that ``corral.envs.policy.as_policy`` accepts. ``make_env`` can be passed
to any corral function that takes an environment: ``make_batch(make_env, num_envs=16)``.
``make_env(api="aec")`` is the AEC form of any probe. Without value functions, checks of values are
"not judged". ``suspects`` names the planted bugs with similar failures.
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
