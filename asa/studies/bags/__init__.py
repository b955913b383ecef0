"""Compares the tasks of a stage in one wide job to the same tasks shared by several jobs."""
