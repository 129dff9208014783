"""Policies that play, and what is measured of them."""
