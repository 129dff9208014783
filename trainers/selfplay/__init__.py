"""Self-play: pools of frozen snapshots, players of seats, and duels."""
