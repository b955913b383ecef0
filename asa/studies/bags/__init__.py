"""How much sooner the tasks of one stage end as several jobs that share them, beside one wide job."""
