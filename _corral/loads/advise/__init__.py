"""Advice for operators: the policy to run on a load, its saving, and the evidence."""
