"""Managers, pools, hashers and tables, each alone in the hands of a driver."""
