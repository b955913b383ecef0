"""How much sooner the tasks of one stage end if several jobs share them than in one wide job."""
