"""Rules that find faults in a run; ``rules`` lists them."""
