"""What every use case needs: names, places, rows read lately, counts, and whom to wake."""
