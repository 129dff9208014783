"""Serve a run over HTTP, with guarded decisions and metrics."""
