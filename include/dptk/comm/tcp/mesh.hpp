/// The connections of this rank to the other ranks of a job over TCP, and the messages that they carry. All
/// groups of the job share one mesh. Two ranks connect when one of them first sends to the other.
///
/// A thread that waits for a message sends and receives for all: one such thread waits for the sockets, and
/// the others wait until it has completed their messages. Started messages progress on a background thread
/// while no thread waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/tcp/connection.hpp"
#include "dptk/comm/tcp/connector.hpp"
#include "dptk/comm/tcp/events.hpp"
#include "dptk/comm/tcp/group.hpp"
#include "dptk/comm/tcp/operation.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/net/socket.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct TcpMeshOptions {
    int rank = 0;
    int size = 1;
    /// Where the ranks publish their addresses, and the prefix of the keys.
    std::shared_ptr<Store> store = nullptr;
    std::string name = "tcp";
    /// The numeric address at which to listen; empty for all interfaces.
    std::string listen_address = {};
    /// The numeric addresses at which the other ranks try to connect, in this order.
    std::vector<std::string> addresses = {};
    /// How long to try to connect to a rank.
    std::chrono::milliseconds timeout = default_timeout;
    /// The control plane of the job: if the job fails, all waits end. If null, the failure of the job to
    /// which a call belongs ends its wait.
    std::shared_ptr<ControlPlane> control = nullptr;
    /// The numbers of the ranks in the job, if the mesh connects only some of them.
    std::vector<int> job_ranks = {};
};

class TcpMesh {
  public:
    using GroupId = std::uint64_t;

    /// Starts to listen, and publishes the address. Throws BackendError if this rank cannot listen.
    explicit TcpMesh(TcpMeshOptions options);

    TcpMesh(const TcpMesh&) = delete;
    TcpMesh& operator=(const TcpMesh&) = delete;

    /// Closes the connections as soon as everything has reached the other ranks. Does not wait for that: the
    /// end of the program does.
    ~TcpMesh();

    [[nodiscard]] const TcpMeshOptions& options() const noexcept { return options_; }

    /// Opens a group of these ranks of the job. The id is the same on all of them, and unique in the job.
    void open_group(GroupId id, std::vector<int> ranks);

    /// Closes the group, and notifies the ranks that are connected. Does not block. Receives of other ranks
    /// from this one fail.
    void close_group(GroupId id) noexcept;

    /// Begins the collective that the header describes, to which the group's next messages belong. Its errors
    /// name the group's ranks by these numbers, or by their ranks in the group if it is empty.
    void begin_call(const TcpHeader& call, std::span<const int> names);

    /// Sends or receives a message. Blocks until it is complete, and throws its error if it has one.
    void run(TcpSend& message);
    void run(TcpReceive& message);

    /// Sends and receives a message at the same time. Blocks until both are complete.
    void exchange(TcpSend& sent, TcpReceive& received);

    /// Starts a message, which progresses by itself. Blocks while the address of the other rank is not known.
    void start(const std::shared_ptr<TcpSend>& message);
    void start(const std::shared_ptr<TcpReceive>& message);

    /// Blocks until a started message is complete, for at most `timeout`. Returns whether it is.
    [[nodiscard]] bool wait_for(TcpOperation& message, std::chrono::nanoseconds timeout);

    /// Returns the first message of the program to this group that no receive waits for. Its source is the
    /// number of the rank in the job. Does not block.
    [[nodiscard]] std::optional<MessageInfo> find(GroupId id, int from, int tag);

    /// Sends and receives what is possible without blocking. Returns whether started messages are pending.
    [[nodiscard]] bool progress();

  private:
    using Clock = std::chrono::steady_clock;

    /// How long a wait lasts before this rank connects to the ranks for which it waits.
    static constexpr std::chrono::milliseconds reach_interval{100};

    struct Peer final : TcpReader {
        Peer(TcpMesh& of_mesh, int of_rank) : mesh(of_mesh), rank(of_rank) {}

        std::byte* begin(const TcpHeader& header) override { return mesh.begin_data(*this, header); }
        void end(const TcpHeader& header) override { mesh.end_data(*this, header); }

        TcpMesh& mesh;
        const int rank;
        std::optional<TcpAddresses> addresses = {};  // empty until known
        std::unique_ptr<TcpConnection> connection = nullptr;
        bool has_left = false;              // it has sent a goodbye, or refuses connections
        std::string refusal = {};           // how it refuses connections
        bool waits_for_output = false;      // until the connection can be written to
        std::vector<TcpSend*> unsent = {};  // until the ranks are connected
        std::size_t credit = early_credit;
        std::size_t consumed = 0;         // bytes of early messages that are not in the peer's credit yet
        TcpReceive* receiving = nullptr;  // whose data is arriving
        TcpGroup::Arrived* storing = nullptr;  // whose data is arriving
    };

    [[nodiscard]] Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] std::string label(int rank) const;
    /// Returns the number in the job of the rank with this number in the mesh.
    [[nodiscard]] int job_rank(int rank) const;
    [[nodiscard]] std::string key(std::string_view name) const;
    void publish();

    // The next three functions use the store, so the caller must not hold the lock.

    /// Waits until the addresses of a rank are known.
    void await_addresses(int rank);
    /// Reads the addresses of a rank from the store. Returns whether they are known. Does not block.
    [[nodiscard]] bool find_addresses(int rank);
    void set_addresses(int rank, std::string_view published);

    // All functions below require that the caller holds the lock.

    /// Returns the group, which this rank may not have opened yet.
    [[nodiscard]] TcpGroup& group(GroupId id);

    // Messages
    template <class Message>
    void post(Message& message);
    void deliver(TcpSend& message);
    void deliver(TcpReceive& message);
    void send(Peer& to, TcpSend& message);
    [[nodiscard]] bool take_arrived(TcpGroup& group, TcpReceive& message);
    void grant(Peer& to, const TcpHeader& request, TcpReceive& message);
    void return_credit(Peer& to, const TcpHeader& message);
    [[nodiscard]] std::byte* begin_data(Peer& from, const TcpHeader& header);
    [[nodiscard]] std::byte* begin_message(Peer& from, const TcpHeader& header);
    void end_data(Peer& from, const TcpHeader& header);
    /// Asks the ranks for whose messages collectives wait.
    void ask();
    void receive_question(Peer& from, const TcpHeader& question);
    void receive_leave(Peer& from, GroupId group);
    void receive_goodbye(Peer& from);

    /// Completes the messages of the group to and from ranks that have left it.
    void fail_lost(TcpGroup& group, GroupId id);
    [[nodiscard]] bool is_lost(const TcpGroup& group, int rank);
    [[nodiscard]] std::exception_ptr lost(int rank) const;

    /// Throws the error of a complete message.
    static void check(const TcpOperation& message);

    /// Completes all messages with this error, and closes all connections.
    void break_all(std::exception_ptr error) noexcept;

    // Connections
    void connect(Peer& to);
    void open(Peer& to, Socket socket);
    /// Connects to these ranks. Without a connection, this rank would not notice that they have left. Uses
    /// the store, without the lock. Returns whether it is connected to all of them that have not left.
    bool reach(std::unique_lock<std::mutex>& lock, const std::set<int>& ranks);
    /// Returns the ranks for whose messages receives wait.
    [[nodiscard]] std::set<int> awaited() const;
    void refuse(Peer& by, const std::string& problem);
    void receive(Peer& from);
    void flush(Peer& to);
    void lose(Peer& from);

    // Waiting
    /// Sends and receives until `done` returns true, or the time has come.
    template <class Done>
    void lead(std::unique_lock<std::mutex>& lock, const TcpOperation* message, Clock::time_point until,
              Done&& done);
    void follow(std::unique_lock<std::mutex>& lock, const TcpOperation& message, Clock::time_point until);
    bool wait(std::unique_lock<std::mutex>& lock, TcpOperation& message, Clock::time_point until);
    void poll(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds timeout);
    void handle(TcpEvent event);
    /// Finds the job of the caller, unless it is known, and has its failure reported by the sockets.
    void watch_job();
    void wake_leader() noexcept;
    void run_in_background();
    void keep_started(std::shared_ptr<TcpOperation> message);

    const TcpMeshOptions options_;
    TcpEvents events_;
    FileDescriptor wakes_;  // an eventfd
    TcpConnector connector_;

    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_led_ = false;  // a thread waits for the sockets
    bool is_led_in_background_ = false;
    int followers_ = 0;  // the threads that wait until the leader has completed their messages
    std::exception_ptr broken_;
    std::shared_ptr<JobState> job_;  // whose failure ends the waits; null until known
    bool has_failure_event_ = false;
    Clock::time_point asked_at_{};   // when ask() was last called, or considered
    Clock::time_point probed_at_{};  // when find() has last connected to the ranks of which it knew nothing
    std::vector<std::unique_ptr<Peer>> peers_;
    std::map<GroupId, TcpGroup> groups_;
    std::map<std::uint64_t, TcpSend*> requested_;                   // by id, until granted
    std::map<std::pair<int, std::uint64_t>, TcpReceive*> granted_;  // by peer and id, until the data comes
    std::uint64_t next_request_ = 0;
    std::vector<std::byte> workspace_;

    std::vector<std::shared_ptr<TcpOperation>> started_;
    std::condition_variable started_changed_;
    std::thread background_;
    bool is_stopping_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/mesh.ipp"
#endif
