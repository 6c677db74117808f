"""A campaign to look at: a page of HTML, kept as a file or served while the campaign runs."""
