"""What the suites share: time and chance that a test holds in its hand, and factories."""
