"""On-policy training: MAPPO, IPPO and related algorithms."""
