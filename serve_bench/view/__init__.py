"""How a run is looked at: figures, the frame of rows, lenses, documents. It knows no kind."""
