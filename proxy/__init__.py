"""A transparent timing reverse proxy for LLM APIs."""

__version__ = "0.1.0"
