"""Figures and reasons as text and HTML for people."""
