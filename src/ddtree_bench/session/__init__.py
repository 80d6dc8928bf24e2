"""What one launch of one server needs: start it, warm it up, measure its cells, keep them."""
