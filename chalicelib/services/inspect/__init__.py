"""Looking at messages, groups and deliveries. Nothing is changed here."""
