"""The wire formats of the simulator."""
