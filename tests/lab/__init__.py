"""The laboratory: how far are the numbers of the record from the truth?

    make lab                     (or .venv/bin/python -m tests.lab [--quick] [--only truth,path])

Four parts, each against something that the proxy cannot influence:

1. *truth*: requests with random timetables in every dialect, through a `ttft serve` process in
   front of the simulated model API. Every mark is compared with the instant at which the simulator
   handed those bytes to the kernel, beside the same for a bare socket client that asks at the same
   time: the floor. `truth.py`
2. *path* (root): the proxy and the API in two network namespaces, joined by TUN devices and a
   forwarder that delays and drops packets. `path.py`
3. *witness* (root, tcpdump): a capture on the upstream's port against the record, idle and under
   load. `witness.py`
4. *shared*: time that is not the proxy's own: a wall clock that is stepped, a machine that sleeps,
   a core with a busy neighbour. `shared.py`

What cannot run is skipped, with the reason; skipped is never passed. Exit codes: 0 every goal was
reached; 1 a goal was missed; 2 the command line is wrong. The numbers mean something on an
otherwise idle machine with two cores or more. `--write` puts the report into RESULTS.md.

How instants are compared. CLOCK_MONOTONIC is one clock for all processes of a machine. A record
holds offsets from `request_start`, so intervals are compared: in the record from `upstream_tx_end`
(the last request byte was handed to the kernel), at the simulator from the read that completed the
request. The difference holds both deliveries, there and back; the floor holds the same two.
"""
