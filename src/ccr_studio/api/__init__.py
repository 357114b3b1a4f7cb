"""The studio's typed JSON API: one router for each noun, all over one workbench."""
