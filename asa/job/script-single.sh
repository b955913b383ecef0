# The end of a script that has one thing to run.
if [ -n "$in_file" ]; then run_file "$text"; else run "$text"; fi
finish "$code" "$word"
