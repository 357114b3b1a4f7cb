"""Plots, HTML pages and reports of models and explanations."""
