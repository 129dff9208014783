"""Players of seats that never learn: reference players, runs, and mixes of them with weights."""
