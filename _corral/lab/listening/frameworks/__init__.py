"""Listeners of single frameworks; each is imported only where its framework is used."""
