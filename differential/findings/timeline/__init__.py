"""A run over time, to look at: its lanes, as a page of HTML and as a trace for Perfetto."""
