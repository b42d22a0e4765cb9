/// A channel carries collectives over one transport, one after the other: the erased engine below
/// communicators and ProcessGroup. It adds what every transport needs alike: background work, the state of
/// the job's health, and an orderly or a disorderly end.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/comm/work_queue.hpp"
#include "dptk/core/log.hpp"

namespace dptk {

class Channel {
  public:
    Channel() = default;
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    virtual ~Channel() = default;

    [[nodiscard]] virtual int rank() const noexcept = 0;
    [[nodiscard]] virtual int size() const noexcept = 0;
    [[nodiscard]] virtual int local_rank() const noexcept = 0;
    [[nodiscard]] virtual int local_size() const noexcept = 0;
    [[nodiscard]] virtual std::string backend() const = 0;

    /// Whether this thread may make calls at all; some libraries allow only the main thread.
    [[nodiscard]] virtual bool callable_from_this_thread() const = 0;

    /// Carries the call out on this thread, behind those that were started before. Blocks.
    virtual void run(const Collective& call) = 0;

    /// Starts the call and returns at once. `keep_alive` lives as long as the operation.
    [[nodiscard]] virtual Work start(const Collective& call, std::shared_ptr<const void> keep_alive) = 0;

    /// An independent channel over the same ranks. Collective. Null where the transport has none.
    [[nodiscard]] virtual std::unique_ptr<Channel> duplicate() = 0;

    /// Zeroed memory, aligned to 64 bytes, that the transport reaches without a copy. Collective.
    [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;

    /// Says that all ranks are about to throw the same error, between two calls: if that unwinds past this
    /// channel, it is no failure. Any further call takes it back.
    virtual void expect_agreed_error() noexcept = 0;

    /// The job's state, shared with all channels of it.
    [[nodiscard]] virtual JobHealth& health() noexcept = 0;
};

namespace detail {

[[nodiscard]] inline std::shared_ptr<void> allocate_aligned(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, rounded);
    return {memory, [](void* pointer) { std::free(pointer); }};
}

}  // namespace detail

template <Transport T>
class TransportChannel final : public Channel {
  public:
    explicit TransportChannel(T transport) : transport_(std::make_shared<T>(std::move(transport))) {
        if constexpr (detail::HasHealth<T>) {
            health_ = transport_->health();
        } else {
            health_ = std::make_shared<JobHealth>();
        }
    }

    ~TransportChannel() override {
        const bool unwinding = std::uncaught_exceptions() > uncaught_exceptions_;
        if (unwinding && !agreed_error_expected_) {
            health_->fail(
                detail::text("rank ", rank(), " left its process group while an exception was unwinding"));
        }
        close();
    }

    [[nodiscard]] int rank() const noexcept override { return transport_->rank(); }
    [[nodiscard]] int size() const noexcept override { return transport_->size(); }
    [[nodiscard]] std::string backend() const override { return std::string(transport_->backend()); }

    [[nodiscard]] int local_rank() const noexcept override {
        if constexpr (detail::HasLocalRank<T>) return transport_->local_rank();
        return 0;
    }

    [[nodiscard]] int local_size() const noexcept override {
        if constexpr (detail::HasLocalRank<T>) return transport_->local_size();
        return 1;
    }

    [[nodiscard]] bool callable_from_this_thread() const override {
        if constexpr (detail::HasThreadRule<T>) return transport_->callable_from_this_thread();
        return true;
    }

    void run(const Collective& call) override {
        before_call();
        if (progresses_by_caller()) {
            guarded([&] {
                finish_started_before(call);
                algorithms::run(*transport_, call);
            });
            return;
        }
        if (queue_.idle()) {
            guarded([&] { algorithms::run(*transport_, call); });
        } else {
            guarded([&] { Work(start_on_thread(call, nullptr)).wait(); });
        }
        if (call.verb == Verb::barrier) queue_.rethrow_dropped_error();
    }

    [[nodiscard]] Work start(const Collective& call, std::shared_ptr<const void> keep_alive) override {
        before_call();
        if constexpr (detail::HasStart<T>) {
            if (progresses_by_caller()) return Work(start_by_caller(call, std::move(keep_alive)));
        }
        return Work(start_on_thread(call, std::move(keep_alive)));
    }

    [[nodiscard]] std::unique_ptr<Channel> duplicate() override {
        if constexpr (detail::HasDuplicate<T>) {
            before_call();
            std::unique_ptr<Channel> copy;
            in_order([&] { copy = std::make_unique<TransportChannel>(transport_->duplicate()); });
            return copy;
        } else {
            return nullptr;
        }
    }

    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) override {
        if constexpr (detail::HasAllocate<T>) {
            before_call();
            std::shared_ptr<void> memory;
            in_order([&] { memory = transport_->allocate(bytes); });
            return memory;
        } else {
            return detail::allocate_aligned(bytes);
        }
    }

    void expect_agreed_error() noexcept override { agreed_error_expected_ = true; }

    [[nodiscard]] JobHealth& health() noexcept override { return *health_; }

    [[nodiscard]] T& transport() noexcept { return *transport_; }

  private:
    void before_call() {
        health_->check();
        agreed_error_expected_ = false;
    }

    [[nodiscard]] bool progresses_by_caller() const noexcept {
        if constexpr (detail::HasStart<T>) return transport_->progresses_by_caller();
        return false;
    }

    /// Runs something on the transport; an error that is not agreed between the ranks breaks the job.
    template <class Operation>
    void guarded(Operation&& operation) {
        try {
            operation();
        } catch (const Error& error) {
            if (error.agreed()) {
                agreed_error_expected_ = true;
            } else {
                health_->fail(detail::text("rank ", rank(), ": ", error.what()));
            }
            throw;
        } catch (const std::exception& failure) {
            health_->fail(detail::text("rank ", rank(), ": ", failure.what()));
            throw;
        }
    }

    /// Like guarded, behind everything that was started before.
    template <class Operation>
    void in_order(Operation&& operation) {
        if (!queue_.idle()) queue_.start([] {})->wait(std::chrono::nanoseconds::max());
        guarded(operation);
    }

    std::shared_ptr<WorkState> start_on_thread(const Collective& call,
                                               std::shared_ptr<const void> keep_alive) {
        // The operation owns what it touches: a channel that is abandoned goes before it ends.
        return queue_.start([transport = transport_, health = health_, keep = std::move(keep_alive), call] {
            health->check();
            try {
                algorithms::run(*transport, call);
            } catch (const Error& error) {
                if (!error.agreed())
                    health->fail(detail::text("rank ", transport->rank(), ": ", error.what()));
                throw;
            } catch (const std::exception& failure) {
                health->fail(detail::text("rank ", transport->rank(), ": ", failure.what()));
                throw;
            }
        });
    }

    /// A started operation that its transport progresses when somebody waits; kept until it has ended.
    std::shared_ptr<WorkState> start_by_caller(const Collective& call,
                                               std::shared_ptr<const void> keep_alive) {
        if constexpr (detail::HasStart<T>) {
            std::erase_if(started_, [](const Started& other) {
                return other.work->wait(std::chrono::nanoseconds::zero());
            });
            std::shared_ptr<WorkState> work;
            guarded([&] {
                finish_started_before(call);
                work = transport_->start(call);
            });
            started_.push_back({call, work, std::move(keep_alive)});
            return work;
        } else {
            return nullptr;
        }
    }

    /// A barrier comes after everything, and a call after those that work in the same memory, as if there
    /// were the thread that runs one call after the other.
    void finish_started_before(const Collective& call) {
        for (const Started& started : started_) {
            if (call.verb == Verb::barrier || share_memory(started.call, call)) Work(started.work).wait();
        }
        if (call.verb == Verb::barrier) started_.clear();
    }

    void close() noexcept {
        try {
            if (health_->failed() && !detail::Interruptible<T>) {
                queue_.abandon();
                return;
            }
            if (!health_->failed()) finish_started_before({});
            queue_.finish();
            if (!health_->failed()) queue_.rethrow_dropped_error();
        } catch (const std::exception& failure) {
            log(LogLevel::error, rank(), detail::text("while a process group closed: ", failure.what()));
        }
        if constexpr (detail::HasLeave<T>) transport_->leave();
    }

    struct Started {
        Collective call;
        std::shared_ptr<WorkState> work;
        std::shared_ptr<const void> keep_alive;
    };

    std::shared_ptr<T> transport_;
    std::shared_ptr<JobHealth> health_;
    detail::WorkQueue queue_;
    std::vector<Started> started_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
    bool agreed_error_expected_ = false;
};

}  // namespace dptk
