# shellcheck shell=bash
# Checks of a job of four ranks on two hosts, for any launcher. Must be sourced after lib.sh. The sourcing script
# defines
#
#   start COMMAND...     starts the four ranks in the background, and sets `jobs` to the ids of the started processes;
#                        their output is in $room/host1.out and, if host2 has its own launcher, $room/host2.out

# shellcheck disable=SC2154  # room and jobs are set elsewhere

# mark: processes, ports and files that appear on the hosts after this call count as left by the job.
mark() { all_leftovers >"$room/mark"; }
all_leftovers() { { leftovers 1 && leftovers 2; } | sort; }
new_leftovers() { all_leftovers | comm -13 "$room/mark" -; }

none_runs() { ! new_leftovers | grep -q ': process '; }
tidy() { [ -z "$(new_leftovers)" ]; }

output() { cat "$room"/host*.out; }

# finish SECONDS: waits until the job has ended, and sets `statuses` to its exit statuses. Fails if anything is left.
finish() {
    local job
    wait_until "$1" none_runs || fail "still running after $1 s:"$'\n'"$(new_leftovers)"$'\n'"$(output)"
    statuses=()
    for job in "${jobs[@]}"; do
        wait "$job"
        statuses+=($?)
    done
    wait_until 10 tidy || fail "left behind:"$'\n'"$(new_leftovers)"
}

# succeed SECONDS COMMAND...: runs a job, and expects that it succeeds.
succeed() {
    start "${@:2}"
    finish "$1"
    [[ "${statuses[*]}" =~ ^[0\ ]+$ ]] || fail "exit statuses ${statuses[*]}: $(output)"
}

# Checks that each rank knows its local rank, and that it can average with the ranks of its host only.
check_nodes() {
    local rank pair
    succeed 60 "$LAUNCH" local_ranks
    output
    for rank in 0 1 2 3; do
        pair=$((rank / 2))
        output | grep -qF "rank $rank of 4: local rank $((rank % 2)) of 2 on host$((pair + 1)), average $((pair * 2)).5" ||
            fail "rank $rank prints a wrong local rank, host or average"
    done
}

losses() { sed -nE 's|.*epoch [12]/2: loss ([0-9.]+),.*|\1|p' | tr '\n' ' '; }

# Checks that the training example prints the same losses with four ranks as with one.
check_losses() {
    local arguments=(--model mlp --dataset digits --epochs 2 --threads 1 --lr 0.01) alone together
    alone=$("$TRAIN" "${arguments[@]}" --batch-size 64 | losses)
    succeed 100 "$TRAIN" "${arguments[@]}" --batch-size 16
    together=$(output | losses)
    echo "losses of one rank: $alone; of four: $together"
    echo "$alone $together" | awk 'NF != 4 { exit 1 }
        { for (i = 1; i <= 2; ++i) { d = $(i + 2) / $i - 1; if (d > 1e-4 || d < -1e-4) exit 1 } }' ||
        fail "the losses differ: $(output)"
}
