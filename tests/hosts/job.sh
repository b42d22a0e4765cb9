# shellcheck shell=bash
# What the checks ask of a job of four ranks on two hosts, however it is started. To be sourced after lib.sh; the
# sourcing script defines
#
#   start COMMAND...     starts the four ranks in the background, with the ids of what it started in `jobs`; what they
#                        print goes to $room/host1.out and, where host2 has a launcher of its own, $room/host2.out

# shellcheck disable=SC2154  # room and jobs are set elsewhere

# mark: what is on the hosts from here on counts as left behind by the job.
mark() { all_leftovers >"$room/mark"; }
all_leftovers() { { leftovers 1 && leftovers 2; } | sort; }
new_leftovers() { all_leftovers | comm -13 "$room/mark" -; }

none_runs() { ! new_leftovers | grep -q ': process '; }
tidy() { [ -z "$(new_leftovers)" ]; }

output() { cat "$room"/host*.out; }

# finish SECONDS: waits until the job has ended; its exit statuses are in `statuses`. Nothing of it may be left.
finish() {
    local job
    wait_until "$1" none_runs || fail "still running after $1 s:"$'\n'"$(new_leftovers)"$'\n'"$(output)"
    statuses=()
    for job in "${jobs[@]}"; do
        wait "$job"
        statuses+=($?)
    done
    wait_until 2 tidy || fail "left behind:"$'\n'"$(new_leftovers)"
}

# succeed SECONDS COMMAND...
succeed() {
    start "${@:2}"
    finish "$1"
    [[ "${statuses[*]}" =~ ^[0\ ]+$ ]] || fail "exit statuses ${statuses[*]}: $(output)"
}

# Every rank knows that two of the four share its host, and averages with that one alone where it wants to.
check_nodes() {
    local rank pair
    succeed 60 "$LAUNCH" local_ranks
    output
    for rank in 0 1 2 3; do
        pair=$((rank / 2))
        output | grep -qF "rank $rank of 4: local rank $((rank % 2)) of 2 on host$((pair + 1)), average $((pair * 2)).5" ||
            fail "rank $rank does not know where it is"
    done
}

losses() { sed -nE 's|.*epoch [12]/2: loss ([0-9.]+),.*|\1|p' | tr '\n' ' '; }

# The training example prints the losses of one rank alone.
check_losses() {
    local arguments=(--model mlp --dataset digits --epochs 2 --threads 1 --lr 0.01) alone together
    alone=$("$TRAIN" "${arguments[@]}" --batch-size 64 | losses)
    succeed 100 "$TRAIN" "${arguments[@]}" --batch-size 16
    together=$(output | losses)
    echo "losses of one rank: $alone; of four: $together"
    echo "$alone $together" | awk 'NF != 4 { exit 1 }
        { for (i = 1; i <= 2; ++i) { d = $(i + 2) / $i - 1; if (d > 1e-4 || d < -1e-4) exit 1 } }' ||
        fail "they differ: $(output)"
}
