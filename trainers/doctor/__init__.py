"""Why does it not learn? Probes with exact answers for any learner, and what a failure points to."""
