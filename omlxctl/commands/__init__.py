"""One module for each group of commands; imported when one of them is named."""
