"""Imitation and warm starts: teachers, recorded steps, agreement, and weights of another run.

``corral clone`` and ``corral.clone`` learn the decisions of a teacher (``trainer``, ``driver``).
``corral record`` writes decisions to a file (``steps``). ``--init`` starts from the weights of
another run (``start``).
"""
