"""A course of twelve exercises for the tutorial on arena_v0, and the judge of its answers.

from corral.lab.course.exercises import EXERCISES
from corral.lab.course.judging import judge

print(EXERCISES[3].file)  # task and starter of exercise 4
verdict = judge(4, "my_answer.py")  # or the function itself
verdict.status, [mistake.name for mistake in verdict.mistakes]
"""
