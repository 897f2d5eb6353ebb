"""Rounds, budget and the bracket: how anything is measured here, whatever it is."""
