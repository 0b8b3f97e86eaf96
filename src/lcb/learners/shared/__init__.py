"""Used by several learners: starts, the choice of the number of classes, a fast exp."""
