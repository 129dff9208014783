"""Find the reasons why a run does not learn: probes with exact answers, and findings about runs."""
