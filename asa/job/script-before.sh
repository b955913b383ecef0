# What is done before the one thing that a script has to run.
eval "$before"
