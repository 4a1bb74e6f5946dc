"""The package that the skills of this folder belong to."""

SHARED = "shared by all skills"
