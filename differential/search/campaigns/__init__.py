"""Campaigns that outlive their process: a plan, its shards in a store, and what they come to."""
