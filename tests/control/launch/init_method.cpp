#include <doctest/doctest.h>
#include <dptk/control/launch/detail/slurm_hostlist.hpp>
#include <dptk/control/launch/init_method.hpp>
#include <dptk/core/error.hpp>

#include <string>

namespace {

std::string error_of(const std::string& method) {
    try {
        static_cast<void>(dptk::parse_init_method(method));
    } catch (const dptk::ArgumentError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("an init_method selects the kind and the address of the rendezvous") {
    CHECK(dptk::parse_init_method("").rendezvous == dptk::RendezvousKind::none);
    CHECK(dptk::parse_init_method("env://").rendezvous == dptk::RendezvousKind::env);
    CHECK(dptk::parse_init_method("mpi://").rendezvous == dptk::RendezvousKind::mpi);
    CHECK(dptk::parse_init_method("slurm://").rendezvous == dptk::RendezvousKind::slurm);
    const dptk::InitMethod tcp = dptk::parse_init_method("tcp://node0.local:29500");
    CHECK(tcp.rendezvous == dptk::RendezvousKind::tcp);
    CHECK(tcp.host == "node0.local");
    CHECK(tcp.port == 29500);
    CHECK(dptk::parse_init_method("tcp://[fe80::1]:1").host == "fe80::1");
    const dptk::InitMethod file = dptk::parse_init_method("file:///shared/run 1");
    CHECK(file.rendezvous == dptk::RendezvousKind::file);
    CHECK(file.path == "/shared/run 1");
}

TEST_CASE("an invalid init_method is an error that shows it") {
    for (const std::string method :
         {"tcp://", "tcp://host", "tcp://:1", "file://relative", "file:///", "udp://h:1", "env", " env://"}) {
        CHECK_MESSAGE(error_of(method).find(method) != std::string::npos, method);
    }
    for (const std::string port : {"0", "65536", "99999999999999999999", "-1", "1x", ""}) {
        const std::string text = "expected a port in [1, 65535], got '" + port + "'";
        CHECK_MESSAGE(error_of("tcp://host:" + port).find(text) != std::string::npos, port);
    }
}

TEST_CASE("the first host of a SLURM hostlist is found") {
    CHECK(dptk::detail::first_slurm_host("n1") == "n1");
    CHECK(dptk::detail::first_slurm_host("n1,n2") == "n1");
    CHECK(dptk::detail::first_slurm_host("n[1-2]") == "n1");
    CHECK(dptk::detail::first_slurm_host("gpu[007-012,20],login") == "gpu007");
    CHECK(dptk::detail::first_slurm_host("rack[2,4]node[3-5]") == "rack2node3");
    CHECK(dptk::detail::first_slurm_host("n[1-") == "");
    CHECK(dptk::detail::first_slurm_host("") == "");
}

TEST_CASE("the port under SLURM is derived from the job id") {
    CHECK(dptk::detail::slurm_port("7") == 15007);
    CHECK(dptk::detail::slurm_port("1234567") == 19567);
    CHECK_THROWS_AS(static_cast<void>(dptk::detail::slurm_port("12a4")), dptk::ArgumentError);
}
