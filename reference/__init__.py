"""How to do it right: readable managers that can stand in for vLLM's own. Imports only spec."""
