// Gloo's own collectives of floats, as a peer for benchmarks.
#pragma once

#include <dptk/comm/process_group.hpp>
#include <dptk/control/net/interface.hpp>
#include <dptk/control/store/store.hpp>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bench {

class Gloo {
  public:
    using Floats = std::span<float>;

    /// Connects the ranks of the group. Collective.
    explicit Gloo(dptk::ProcessGroup& group)
        : context_(std::make_shared<gloo::rendezvous::Context>(group.rank(), group.size())) {
        gloo::transport::tcp::attr attributes;
        attributes.hostname = group.local_size() == group.size() ? dptk::detail::loopback_address()
                                                                 : dptk::detail::own_addresses().front();
        auto device = gloo::transport::tcp::CreateDevice(attributes);
        Store store(group.engine().control()->store());
        context_->connectFullMesh(store, device);
    }

    void all_reduce(Floats data) {
        gloo::AllreduceOptions options(context_);
        options.setOutput(data.data(), data.size());
        options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
        options.setReduceFunction(sum);
        gloo::allreduce(options);
    }

    void reduce(Floats data, int root) {
        gloo::ReduceOptions options(context_);
        options.setOutput(data.data(), data.size());
        options.setRoot(root);
        options.setReduceFunction(sum);
        gloo::reduce(options);
    }

    void broadcast(Floats data, int root) {
        gloo::BroadcastOptions options(context_);
        options.setOutput(data.data(), data.size());
        options.setRoot(root);
        gloo::broadcast(options);
    }

    void all_gather(Floats part, Floats all) {
        gloo::AllgatherOptions options(context_);
        options.setInput(part.data(), part.size());
        options.setOutput(all.data(), all.size());
        gloo::allgather(options);
    }

    void gather(Floats part, Floats all, int root) {
        gloo::GatherOptions options(context_);
        options.setInput(part.data(), part.size());
        if (context_->rank == root) options.setOutput(all.data(), all.size());
        options.setRoot(root);
        gloo::gather(options);
    }

    void scatter(Floats all, Floats part, int root) {
        gloo::ScatterOptions options(context_);
        std::vector<float*> parts;
        for (std::size_t first = 0; first < all.size(); first += part.size())
            parts.push_back(all.data() + first);
        if (context_->rank == root) options.setInputs(parts, part.size());
        options.setOutput(part.data(), part.size());
        options.setRoot(root);
        gloo::scatter(options);
    }

    void all_to_all(Floats input, Floats output) {
        gloo::AlltoallOptions options(context_);
        options.setInput(input.data(), input.size());
        options.setOutput(output.data(), output.size());
        gloo::alltoall(options);
    }

    void barrier() {
        gloo::BarrierOptions options(context_);
        gloo::barrier(options);
    }

    void send(Floats data, int to) {
        const auto buffer = context_->createUnboundBuffer(data.data(), data.size_bytes());
        buffer->send(to, message_slot);
        buffer->waitSend();
    }

    void recv(Floats data, int from) {
        const auto buffer = context_->createUnboundBuffer(data.data(), data.size_bytes());
        buffer->recv(from, message_slot);
        buffer->waitRecv();
    }

  private:
    static constexpr std::uint64_t message_slot = std::uint64_t{1} << 62;

    /// Gloo's interface to a store.
    class Store final : public gloo::rendezvous::Store {
      public:
        explicit Store(std::shared_ptr<dptk::Store> store) : store_(std::move(store)) {}

        void set(const std::string& key, const std::vector<char>& data) override {
            store_->set(prefix + key, std::string(data.begin(), data.end()));
        }

        std::vector<char> get(const std::string& key) override {
            const std::string value = store_->get(prefix + key, std::chrono::seconds(30));
            return {value.begin(), value.end()};
        }

        void wait(const std::vector<std::string>& keys) override { wait(keys, std::chrono::seconds(30)); }

        void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
            std::vector<std::string> full;
            for (const std::string& key : keys) full.push_back(prefix + key);
            store_->wait(full, timeout);
        }

      private:
        static constexpr const char* prefix = "bench/gloo/";
        std::shared_ptr<dptk::Store> store_;
    };

    static void sum(void* out, const void* a, const void* b, std::size_t count) {
        gloo::sum<float>(out, a, b, count);
    }

    std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace bench
