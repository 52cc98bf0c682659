# Functions of .ci/run, which go on after a failure, so that one run finds all that is wrong.
# `failed` has the commands that failed, `unstable` the tests that failed once and passed alone.
failed=()
unstable=()
venv=.venv

# Says what comes next, and how many seconds the run has taken.
heading() { printf '\nafter %d s\n=== %s\n' "$SECONDS" "$*"; }

# Runs a command.
check() { "$@" || failed+=("$*"); }

# Runs pytest of the environment `venv` with these arguments; see `confirm_failures`.
check_tests() {
    local status=0
    rm -rf .pytest_cache
    "$venv"/bin/python -m pytest "$@" || status=$?
    confirm_failures "$status" "$@"
}

# Given the exit status of pytest, runs the tests that failed once more with these arguments, in one process and in
# order, until one fails again. Those that pass now are unstable. Tests that did not all run (another status) have failed.
confirm_failures() {
    local status=$1 before
    shift
    [ "$status" -ne 0 ] || return 0
    before=$(failed_tests)
    if [ "$status" -ne 1 ] || [ -z "$before" ]; then
        failed+=("pytest $* (exit status $status)")
        return 0
    fi
    heading "Once more, alone: the tests that failed"
    "$venv"/bin/python -m pytest "$@" -n 0 --exitfirst --last-failed --last-failed-no-failures none || failed+=("pytest $*")
    mapfile -t -O "${#unstable[@]}" unstable < <(comm -23 <(printf '%s\n' "$before") <(failed_tests))
}

# The tests that failed last and have not passed since, one a line, sorted.
failed_tests() {
    [ ! -e .pytest_cache/v/cache/lastfailed ] ||
        python3 -c 'import json, sys; print(*json.load(sys.stdin), sep="\n")' <.pytest_cache/v/cache/lastfailed | LC_ALL=C sort
}

# Says how the run ended; an error if something failed.
conclude() {
    [ "${#unstable[@]}" -eq 0 ] || { heading "Unstable: failed, and passed when run alone" && printf 'unstable: %s\n' "${unstable[@]}"; }
    if [ "${#failed[@]}" -gt 0 ]; then
        heading "Failed"
        printf '%s\n' "${failed[@]}"
        return 1
    fi
    heading "All is well"
}
