"""Learning from what the policies themselves just played: MAPPO and IPPO."""
