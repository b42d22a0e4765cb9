// test_launch gloo_thread: rank 0 sends a longer message than rank 1 expects, directly through Gloo, so that
// dptk cannot check its size. Gloo's own thread detects the mistake, and throws with a mutex of Gloo locked,
// which terminates the process.
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>

#include <array>
#include <chrono>
#include <thread>

#include "command.hpp"

namespace launch::gloo_thread {

namespace {

int start(const Words&) {
    dptk::ProcessGroup group = dptk::init_process_group();
    const auto& control = group.engine().control();
    const std::shared_ptr<dptk::detail::GlooMesh> mesh =
        dptk::detail::GlooMesh::connect({.rank = group.rank(),
                                         .size = group.size(),
                                         .device = dptk::detail::make_gloo_device("127.0.0.1"),
                                         .store = control->store()->clone(),
                                         .name = "mistake",
                                         .timeout = std::chrono::seconds(30),
                                         .control = control});
    constexpr std::uint64_t slot = 7;
    std::array<char, 8> data{};
    dptk::detail::GlooBuffer buffer(mesh, data.data(), group.rank() == 0 ? 8 : 4);
    group.barrier();
    if (group.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        buffer.send(1, slot);
    }
    if (group.rank() == 1) {
        mesh->run("recv", [&] {
            buffer.receive({0}, slot);
            buffer.await_received();
        });
    }
    group.barrier();
    return 0;
}

const Command command("gloo_thread", start);

}  // namespace

}  // namespace launch::gloo_thread
#endif
