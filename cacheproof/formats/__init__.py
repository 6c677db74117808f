"""What commands found, in the formats that pipelines read."""
