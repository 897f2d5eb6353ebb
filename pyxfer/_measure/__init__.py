"""The method of every measurement: rounds and budget, the bracket, statistics, interruption."""
