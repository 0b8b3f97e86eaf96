"""What several learners use: starts, the number of classes, compiled log and exp."""
