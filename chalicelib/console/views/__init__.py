"""What pages show: pure functions from the services' results to what a template needs."""
