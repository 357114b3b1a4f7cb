"""`python -m tools.pictures ccr-demo`: the pictures of the README, of docs/pictures.md and of CONTRIBUTING.md."""
