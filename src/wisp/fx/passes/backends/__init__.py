"""Parts of graphs for one back end."""
