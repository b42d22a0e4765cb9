# shellcheck shell=bash
# free_port: prints a port of 127.0.0.1 that nobody uses, for a rank 0 that starts later. The system gives ports of its
# own range (ip_local_port_range) to every program that connects, and to Gloo, which listens at many. A port of that
# range could be theirs before rank 0 starts, so this takes one below it.
free_port() {
    local low
    read -r low _ </proc/sys/net/ipv4/ip_local_port_range
    perl -MIO::Socket::INET -e '
        my ($low, $process) = @ARGV;
        my $first = 10000;
        my $ports = $low - $first;
        die "no ports below the range of the system\n" if $ports < 1000;
        for my $try (0 .. 999) {  # tests that run at the same time start at different ports
            my $port = $first + ($process * 7 + $try) % $ports;
            IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $port, Listen => 1) or next;
            print $port;
            exit;
        }
        die "no free port\n"' "$low" $$
}
