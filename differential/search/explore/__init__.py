"""Every state within a small scope: real objects, breadth first, each call judged."""
