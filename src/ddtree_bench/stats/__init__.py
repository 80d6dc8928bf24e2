"""Formulas: arrays in, numbers or intervals out; no files, no column names."""
