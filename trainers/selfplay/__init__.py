"""Self-play: pools of frozen snapshots, duels, ratings, and how much can be won of a team."""
