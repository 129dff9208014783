"""Groups of runs beside each other: which trainer is better, and how sure that is."""
