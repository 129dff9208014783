"""Starting from something: teachers, recorded steps, agreement, and another run's weights.

``corral clone`` and ``corral.clone`` learn what a teacher decides (``trainer``, ``driver``);
``corral record`` keeps decisions in a file (``steps``); ``--init`` takes weights (``start``).
"""
