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
#include "dptk/control/control_plane.hpp"
#include "dptk/control/deadline.hpp"
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

    /// A barrier that names the ranks that do not come; see CollectiveVerbs. Collective.
    virtual void monitored_barrier(std::chrono::milliseconds timeout) = 0;

    /// Shared with all channels of this rank's job.
    [[nodiscard]] virtual ControlPlane& control() noexcept = 0;
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

/// The deadlines of a transport that brings no control plane of its own.
template <Transport T>
[[nodiscard]] std::shared_ptr<ControlPlane> control_of(const T& transport) {
    if constexpr (HasControl<T>) {
        return transport.control();
    } else {
        const int rank = transport.rank();
        return ControlPlane::make({.rank = rank,
                                   .size = transport.size(),
                                   .last_resort =
                                       [rank](const std::string& cause) {
                                           log(LogLevel::error, rank, "ends the process: " + cause);
                                           std::_Exit(EXIT_FAILURE);
                                       }},
                                  std::make_shared<JobHealth>());
    }
}

/// Marks a call as under way, for as long as it lives.
class ActiveCall {
  public:
    ActiveCall(Activity& activity, const Collective& call) noexcept : activity_(activity) {
        activity_.begin(pack(call));
    }
    ~ActiveCall() { activity_.end(); }
    ActiveCall(const ActiveCall&) = delete;
    ActiveCall& operator=(const ActiveCall&) = delete;

  private:
    Activity& activity_;
};

/// An operation that goes on while somebody waits for it: then its call is under way.
class ResumedWork final : public WorkState {
  public:
    ResumedWork(std::shared_ptr<WorkState> work, std::shared_ptr<ControlPlane> control,
                std::shared_ptr<Activity> activity, const Collective& call)
        : work_(std::move(work)),
          control_(std::move(control)),
          activity_(std::move(activity)),
          call_(pack(call)),
          deadline_(control_->timeout()) {}

    bool wait(std::chrono::nanoseconds timeout) override {
        activity_->resume(call_);
        const bool ended = work_->wait(timeout);
        activity_->end();
        // The watchdog sees no call under way where a program only asks, again and again.
        if (!ended && deadline_.passed()) {
            control_->health()->fail(text("rank ", control_->rank(), ": ", describe_packed(call_),
                                          " has not completed within ", duration_text(control_->timeout())),
                                     Failure::deadline);
        }
        return ended || given_up();
    }

    std::exception_ptr error() override {
        const std::exception_ptr error = work_->error();
        return error ? error : given_up_;
    }

    std::exception_ptr unseen_error() override { return work_->unseen_error(); }

  private:
    /// Nobody will complete a call of a job that has failed.
    [[nodiscard]] bool given_up() {
        try {
            control_->health()->check();
        } catch (const Error&) {
            given_up_ = std::current_exception();
        }
        return given_up_ != nullptr;
    }

    std::exception_ptr given_up_;
    std::shared_ptr<WorkState> work_;
    std::shared_ptr<ControlPlane> control_;
    std::shared_ptr<Activity> activity_;
    Activity::Call call_;
    Deadline deadline_;
};

}  // namespace detail

template <Transport T>
class TransportChannel final : public Channel {
  public:
    explicit TransportChannel(T transport)
        : TransportChannel(std::make_shared<T>(std::move(transport)), nullptr,
                           std::make_shared<AgreedErrors>(), "0") {}

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
                run_watched(*transport_, *activity_, call);
            });
            return;
        }
        if (queue_.idle()) {
            guarded([&] { run_watched(*transport_, *activity_, call); });
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
            std::unique_ptr<TransportChannel> copy;
            in_order([&] {
                const detail::ActiveCall active(*activity_, {.verb = Verb::duplicate});
                copy.reset(new TransportChannel(std::make_shared<T>(transport_->duplicate()), control_,
                                                agreed_errors_, activity_->next_child()));
            });
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

    void monitored_barrier(std::chrono::milliseconds timeout) override {
        if (size() > 1 && !control_->has_store()) {
            throw ArgumentError(detail::text("rank ", rank(), ": monitored_barrier over ", backend(),
                                             ", which has no control plane here"));
        }
        health_->check();
        in_order([&] { control_->monitored_barrier(*activity_, timeout); });
    }

    [[nodiscard]] ControlPlane& control() noexcept override { return *control_; }

  private:
    TransportChannel(std::shared_ptr<T> transport, std::shared_ptr<ControlPlane> control,
                     std::shared_ptr<AgreedErrors> agreed_errors, std::string name)
        : transport_(std::move(transport)),
          control_(control ? std::move(control) : detail::control_of(*transport_)),
          health_(control_->health()),
          activity_(std::make_shared<Activity>(std::move(name), &detail::describe_packed)),
          agreed_errors_(std::move(agreed_errors)) {
        control_->open(activity_);
    }

    /// Carries a call out; the watchdog sees it.
    static void run_watched(T& transport, Activity& activity, const Collective& call) {
        const detail::ActiveCall active(activity, call);
        algorithms::run(transport, call);
    }

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
        return queue_.start([transport = transport_, health = health_, activity = activity_,
                             agreed_errors = agreed_errors_, keep = std::move(keep_alive), call] {
            health->check();
            break_job_unless_agreed(*health, *agreed_errors, transport->rank(),
                                    [&] { run_watched(*transport, *activity, call); });
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
                const detail::ActiveCall active(*activity_, call);
                work =
                    std::make_shared<detail::ResumedWork>(transport_->start(call), control_, activity_, call);
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
                control_->close(activity_);
                return;
            }
            if (!health_->failed()) finish_started_before({});
            queue_.finish();
            control_->close(activity_);
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
    std::shared_ptr<ControlPlane> control_;
    std::shared_ptr<JobHealth> health_;
    std::shared_ptr<Activity> activity_;
    std::shared_ptr<AgreedErrors> agreed_errors_;
    detail::WorkQueue queue_;
    std::vector<Started> started_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace dptk
