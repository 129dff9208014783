"""What is wrong with a run: ``rules`` lists the rules over the evidence."""
