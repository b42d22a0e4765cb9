/// A channel carries collectives over one transport, one after the other: the erased engine below
/// communicators and ProcessGroup. It adds what every transport needs alike: background work, the state of
/// the job's health, and an orderly or a disorderly end.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/comm/work_queue.hpp"
#include "dptk/control/agreed_errors.hpp"
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

    /// Of this rank, shared with all duplicates: an agreed error that unwinds past a channel is no failure.
    [[nodiscard]] virtual AgreedErrors& agreed_errors() noexcept = 0;

    /// The job's state, shared with all channels of it.
    [[nodiscard]] virtual JobHealth& health() noexcept = 0;
};

namespace detail {

[[nodiscard]] inline std::shared_ptr<void> allocate_aligned(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
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
    explicit TransportChannel(T transport,
                              std::shared_ptr<AgreedErrors> agreed_errors = std::make_shared<AgreedErrors>())
        : transport_(std::make_shared<T>(std::move(transport))), agreed_errors_(std::move(agreed_errors)) {
        if constexpr (detail::HasHealth<T>) {
            health_ = transport_->health();
        } else {
            health_ = std::make_shared<JobHealth>();
        }
    }

    ~TransportChannel() override {
        const bool unwinding = std::uncaught_exceptions() > uncaught_exceptions_;
        if (unwinding && !agreed_errors_->under_way()) {
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
        health_->check();
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
        health_->check();
        if constexpr (detail::HasStart<T>) {
            if (progresses_by_caller()) return Work(start_by_caller(call, std::move(keep_alive)));
        }
        return Work(start_on_thread(call, std::move(keep_alive)));
    }

    [[nodiscard]] std::unique_ptr<Channel> duplicate() override {
        if constexpr (detail::HasDuplicate<T>) {
            health_->check();
            std::unique_ptr<Channel> copy;
            in_order(
                [&] { copy = std::make_unique<TransportChannel>(transport_->duplicate(), agreed_errors_); });
            return copy;
        } else {
            return nullptr;
        }
    }

    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) override {
        if constexpr (detail::HasAllocate<T>) {
            health_->check();
            std::shared_ptr<void> memory;
            in_order([&] { memory = transport_->allocate(bytes); });
            return memory;
        } else {
            return detail::allocate_aligned(bytes);
        }
    }

    [[nodiscard]] AgreedErrors& agreed_errors() noexcept override { return *agreed_errors_; }

    [[nodiscard]] JobHealth& health() noexcept override { return *health_; }

    [[nodiscard]] T& transport() noexcept { return *transport_; }

  private:
    [[nodiscard]] bool progresses_by_caller() const noexcept {
        if constexpr (detail::HasStart<T>) return transport_->progresses_by_caller();
        return false;
    }

    /// Runs something on the transport; an error that is not agreed between the ranks breaks the job.
    template <class Operation>
    void guarded(Operation&& operation) {
        break_job_unless_agreed(*health_, *agreed_errors_, rank(), operation);
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
        return queue_.start([transport = transport_, health = health_, agreed_errors = agreed_errors_,
                             keep = std::move(keep_alive), call] {
            health->check();
            break_job_unless_agreed(*health, *agreed_errors, transport->rank(),
                                    [&] { algorithms::run(*transport, call); });
        });
    }

    /// A started operation that its transport progresses when somebody waits; kept until it has ended.
    std::shared_ptr<WorkState> start_by_caller(const Collective& call,
                                               std::shared_ptr<const void> keep_alive) {
        if constexpr (detail::HasStart<T>) {
            std::erase_if(started_, [](const Started& other) {
                return other.work->wait(std::chrono::nanoseconds::zero()) && !other.work->unseen_error();
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
            if (call.verb == Verb::barrier || share_memory(started.call, call)) {
                started.work->wait(std::chrono::nanoseconds::max());
            }
        }
        if (call.verb != Verb::barrier) return;
        for (const Started& started : std::exchange(started_, {})) {
            if (const std::exception_ptr error = started.work->unseen_error()) std::rethrow_exception(error);
        }
    }

    void close() noexcept {
        try {
            if (health_->failed() && !detail::Interruptible<T>) {
                // What is under way cannot be stopped, and goes on to use its memory.
                queue_.abandon();
                static_cast<void>(new std::vector<Started>(std::move(started_)));
                return;
            }
            if (!health_->failed()) finish_started_before({});
            queue_.finish();
            if (!health_->failed()) queue_.rethrow_dropped_error();
        } catch (const std::exception& failure) {
            log(LogLevel::error, rank(), detail::text("while a process group closed: ", failure.what()));
        } catch (...) {
            log(LogLevel::error, rank(),
                "an exception that is no std::exception while a process group closed");
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
    std::shared_ptr<AgreedErrors> agreed_errors_;
    detail::WorkQueue queue_;
    std::vector<Started> started_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace dptk
