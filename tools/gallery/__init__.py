"""`python -m tools.gallery ccr-demo`: explanations that are right, wrong and surprising, and a model corrected."""
