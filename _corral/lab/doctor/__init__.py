"""Why does it not learn? Probes with exact answers, and findings about runs."""
