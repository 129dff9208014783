"""Third-party PettingZoo environments behind the interface of Batch."""
