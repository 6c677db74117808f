"""Small texts in which one construct of Python matters, for the translator to be held against."""
