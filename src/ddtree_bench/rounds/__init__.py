"""All sessions of a run: their order, what they would do, whether a round or a retry is due."""
