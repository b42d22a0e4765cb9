// A process of another version of dptk, which takes part in the rendezvous only.
#include <dptk/control/launch/detail/rendezvous.hpp>
#include <dptk/control/launch/detail/rendezvous_store.hpp>
#include <dptk/control/launch/job_request.hpp>

#include <cstdio>
#include <exception>

int main() {
    try {
        const dptk::JobRequest request = dptk::resolve({.init_method = "env://"});
        const dptk::detail::RendezvousStore place = dptk::detail::open_rendezvous_store(request);
        const dptk::LaunchEnvironment& launch = request.launch;
        static_cast<void>(dptk::detail::rendezvous(
            *place.store, {launch.rank, launch.world_size, request.timeout, place.where}));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "failed: %s\n", error.what());
        return 3;
    }
    return 0;
}
