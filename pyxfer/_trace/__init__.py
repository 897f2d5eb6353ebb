"""Collect the device's activity records, and derive from them the copies of a trial and its breakdown."""
