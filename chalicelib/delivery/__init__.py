"""Out to subscribers: everything that leaves Headrace towards them goes through this room."""
