"""Tune settings: train one environment many times, and choose the best trial by validation."""
