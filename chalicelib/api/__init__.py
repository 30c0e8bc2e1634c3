"""HTTP: parses requests, calls services, makes answers and problems. `http.py` leads each call; `resources` has the
calls."""
