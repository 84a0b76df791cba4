"""Benchmarks: what the proxy costs and how much it delays, beside what else one could put there.

`python -m tests.bench --help`. One process on one core is both the load and the simulated model
API; the proxy under test has the other core to itself and is a fresh process for every run. CPU
time is the operating system's account of that process and its children. Rows take turns in every
round, so that a machine that changes its pace changes it for all of them.
"""
