"""What to run on a load, and what it saves: a verdict, and what it rests on."""
