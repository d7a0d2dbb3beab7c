"""One module per dialect; all pure."""
