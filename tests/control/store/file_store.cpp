// File stores: incomplete records, stale files, and the detection of a lost creator.
#include <doctest/doctest.h>
#include <dptk/control/store/file_store.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "control/store/store_support.hpp"

using namespace std::chrono_literals;

namespace {

std::string contents(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Overwrites the file in place; its inode does not change. Only this user can access it.
void overwrite(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    chmod(path.c_str(), 0600);
}

/// A process that creates the store, sets "old", and runs until it is killed.
class CreatorProcess {
  public:
    explicit CreatorProcess(const std::string& path) {
        int ready[2];
        REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
        process_ = fork();
        if (process_ == 0) {
            const auto store = dptk::FileStore::create(path);
            store->set("old", "value");
            [[maybe_unused]] const ssize_t written = write(ready[1], "x", 1);
            while (true) pause();
        }
        close(ready[1]);
        char byte = 0;
        REQUIRE(read(ready[0], &byte, 1) == 1);
        close(ready[0]);
    }
    ~CreatorProcess() { kill(); }

    [[nodiscard]] std::string number() const { return std::to_string(process_); }

    void kill() {
        if (process_ <= 0) return;
        ::kill(process_, SIGKILL);
        waitpid(process_, nullptr, 0);
        process_ = -1;
    }

  private:
    pid_t process_ = -1;
};

std::string join_error(const std::string& path) {
    return message_of<dptk::TimeoutError>([&] { static_cast<void>(dptk::FileStore::join(path, 50ms)); });
}

}  // namespace

TEST_CASE("a record that is truncated at any byte is ignored and overwritten") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    const auto creator = dptk::FileStore::create(path);
    creator->set("whole", "1");
    const std::string before = contents(path);
    creator->set("torn", "some value");
    const std::string after = contents(path);
    for (std::size_t size = before.size(); size < after.size(); ++size) {
        CAPTURE(size);
        overwrite(path, after.substr(0, size));
        const auto member = dptk::FileStore::join(path, 10s);
        CHECK(member->find("whole") == "1");
        CHECK_FALSE(member->find("torn"));
        member->set("next", "2");
        const auto reader = dptk::FileStore::join(path, 10s);
        CHECK(reader->find("next") == "2");
        CHECK(reader->find("whole") == "1");
        CHECK_FALSE(reader->find("torn"));
    }
    for (std::size_t i = before.size(); i < after.size(); ++i) {
        CAPTURE(i);
        std::string damaged = after;
        damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
        overwrite(path, damaged);
        const auto member = dptk::FileStore::join(path, 10s);
        CHECK(member->find("whole") == "1");
        CHECK_FALSE(member->find("torn"));
    }
    overwrite(path, after);
    CHECK(creator->find("torn") == "some value");
}

TEST_CASE("the file of an earlier run is not read, but replaced, and the creator reports which run it was") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    CreatorProcess earlier(path);
    const std::string process = earlier.number();
    const auto late_member = dptk::FileStore::join(path, 10s);
    CHECK(late_member->find("old") == "value");
    earlier.kill();

    const std::string error = join_error(path);
    CHECK(contains(error, path + " holds only the state of an earlier run (host "));
    CHECK(contains(error, ", process " + process + ", started 2"));
    CHECK(contains(error, "rank 0 of this job has not joined within 50 ms"));
    CHECK(contains(message_of<dptk::PeerLostError>([&] { late_member->set("x", "y"); }),
                   "its creator has ended (host "));

    std::shared_ptr<dptk::FileStore> member;
    std::thread joiner([&] { member = dptk::FileStore::join(path, 60s); });
    std::this_thread::sleep_for(20ms);
    const auto creator = dptk::FileStore::create(path);
    joiner.join();
    CHECK(contains(creator->replaced(), "process " + process + ", started 2"));
    CHECK_FALSE(creator->find("old"));
    CHECK_FALSE(member->find("old"));
    member->set("new", "x");
    CHECK(creator->find("new") == "x");
    CHECK(contains(message_of<dptk::PeerLostError>([&] { late_member->set("x", "y"); }),
                   "another run has replaced it"));
}

TEST_CASE("the file of a creator that was killed while it wrote the head is replaced") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    std::string whole;
    {
        const auto store = dptk::FileStore::create(path);
        CHECK(store->replaced().empty());
        whole = contents(path);
    }
    for (std::size_t size = 0; size < whole.size(); ++size) {
        overwrite(path, whole.substr(0, size));
        CHECK_THROWS_AS(static_cast<void>(dptk::FileStore::join(path, 0ms)), dptk::TimeoutError);
        const auto store = dptk::FileStore::create(path);
        CHECK(store->replaced() == (size == 0 ? "" : "of unknown origin"));
        CHECK_NOTHROW(static_cast<void>(dptk::FileStore::join(path, 10s)));
    }
}

TEST_CASE("a file that a running process holds is in use") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    const auto store = dptk::FileStore::create(path);
    store->set("x", "y");
    const auto create = [&] { static_cast<void>(dptk::FileStore::create(path)); };
    const std::string error = message_of<dptk::ArgumentError>(create);
    CHECK(contains(error, path + " is in use by a running job (host "));
    CHECK(contains(error, ", process " + std::to_string(getpid()) + ", since 2"));
    CHECK(store->find("x") == "y");
    const CreatorProcess other(directory.path("other"));
    const auto create_other = [&] {
        static_cast<void>(dptk::FileStore::create(directory.name() + "/other"));
    };
    CHECK(contains(message_of<dptk::ArgumentError>(create_other), "process " + other.number()));
}

TEST_CASE("a process cannot join without a creator") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    CHECK(join_error(path) == "the store " + path + " has not been created by rank 0 within 50 ms");
}

TEST_CASE("a process does not join the store of another job") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    const auto creator = dptk::FileStore::create(path, "job 1");
    CHECK_NOTHROW(static_cast<void>(dptk::FileStore::join(path, 10s, "job 1")));
    const auto join = [&] { static_cast<void>(dptk::FileStore::join(path, 20ms, "job 2")); };
    CHECK(contains(message_of<dptk::TimeoutError>(join), "is in use by another job (host "));
}

TEST_CASE("the creator's end removes the file and ends the members' waits") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    auto creator = dptk::FileStore::create(path);
    const auto member = dptk::FileStore::join(path, 10s);
    std::string error;
    std::thread waiter([&] {
        error = message_of<dptk::PeerLostError>([&] { static_cast<void>(member->get("never", 60s)); });
    });
    std::this_thread::sleep_for(20ms);
    creator.reset();
    waiter.join();
    CHECK(error == "lost the store " + path + ": rank 0 has closed it");
    CHECK(access(path.c_str(), F_OK) != 0);
    CHECK_THROWS_AS(static_cast<void>(member->clone()), dptk::PeerLostError);
    const auto next = dptk::FileStore::create(path);
    CHECK(next->replaced().empty());
    CHECK_THROWS_AS(static_cast<void>(member->find("x")), dptk::PeerLostError);
    CHECK_THROWS_AS(static_cast<void>(member->clone()), dptk::PeerLostError);
}

TEST_CASE("a creator that is killed ends the members' waits") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    CreatorProcess creator(path);
    const auto member = dptk::FileStore::join(path, 10s);
    std::string error;
    std::thread waiter([&] {
        error = message_of<dptk::PeerLostError>([&] { static_cast<void>(member->get("never", 60s)); });
    });
    std::this_thread::sleep_for(20ms);
    const std::string process = creator.number();
    creator.kill();
    waiter.join();
    CHECK(contains(error, "lost the store " + path + ": its creator has ended (host "));
    CHECK(contains(error, "process " + process));
}

TEST_CASE("processes that write at the same time lose nothing") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    std::vector<pid_t> children;
    for (int i = 0; i < 3; ++i) {
        children.push_back(fork());
        if (children.back() != 0) continue;
        const auto store = dptk::FileStore::join(path, 60s);
        for (int n = 0; n < 200; ++n) store->add("sum", 1);
        store->add("ended", 1);
        _exit(0);
    }
    const auto creator = dptk::FileStore::create(path);
    for (const pid_t child : children) {
        int status = -1;
        waitpid(child, &status, 0);
        CHECK(status == 0);
    }
    CHECK(creator->find("sum") == "600");
}

TEST_CASE("a file that is not a store is left unchanged") {
    TemporaryDirectory directory;
    const std::string path = directory.path("thesis.tex");
    overwrite(path, "years of work");
    const auto create = [&] { static_cast<void>(dptk::FileStore::create(path)); };
    const auto join = [&] { static_cast<void>(dptk::FileStore::join(path, 10s)); };
    CHECK(contains(message_of<dptk::ArgumentError>(create), "is not a dptk store; it is left unchanged"));
    CHECK(contains(message_of<dptk::ArgumentError>(join), path));
    CHECK(contents(path) == "years of work");
}

TEST_CASE("a path that cannot be a store is an error that says why") {
    TemporaryDirectory directory;
    for (const auto open : {+[](const std::string& path) { return dptk::FileStore::create(path); },
                            +[](const std::string& path) { return dptk::FileStore::join(path, 10s); }}) {
        const auto error = [&](const std::string& path) {
            return message_of<dptk::ArgumentError>([&] { static_cast<void>(open(path)); });
        };
        const std::string missing = directory.name() + "/missing";
        CHECK(error(missing + "/store") ==
              "the directory " + missing + " of the store " + missing + "/store does not exist");
        CHECK(error(directory.name()) ==
              "the store " + directory.name() + " is a directory: expected a file");
        CHECK(error("/dev/null") == "the store /dev/null is not a regular file");
        CHECK(error("") == "the path of a file store is empty");
    }
}

TEST_CASE("a store file that other users can access, or that another user has made, is refused") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    const auto error = [&](const auto& open) {
        return message_of<dptk::ArgumentError>([&] { static_cast<void>(open()); });
    };
    const auto create = [&] { return dptk::FileStore::create(path); };
    const auto join = [&] { return dptk::FileStore::join(path, 10s); };
    for (const auto& [mode, text] : {std::pair<mode_t, std::string>{0644, "0644"}, {0620, "0620"}}) {
        overwrite(path, "dptkfile");
        chmod(path.c_str(), mode);
        const std::string expected =
            "the store " + path + " can be accessed by other users (mode " + text + "): expected mode 0600";
        CHECK(error(create) == expected);
        CHECK(error(join) == expected);
        CHECK(contents(path) == "dptkfile");
    }
    overwrite(path, "dptkfile");
    if (geteuid() != 0) return;  // only root can give a file to another user
    REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
    CHECK(contains(error(create), "belongs to another user (user id 65534, expected 0)"));
    CHECK(contains(error(join), "belongs to another user"));
}

TEST_CASE("a store file that somebody has linked to another file is refused, and that file is left unchanged") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    const std::string target = directory.path("target");
    const auto create = [&] { static_cast<void>(dptk::FileStore::create(path)); };
    const auto join = [&] { static_cast<void>(dptk::FileStore::join(path, 10s)); };
    const auto check_refused = [&](const std::string& reason) {
        CHECK(message_of<dptk::ArgumentError>(create) == "the store " + path + reason);
        CHECK(message_of<dptk::ArgumentError>(join) == "the store " + path + reason);
    };
    REQUIRE(symlink(target.c_str(), path.c_str()) == 0);
    check_refused(" is a symbolic link: expected a file");
    CHECK(access(target.c_str(), F_OK) != 0);
    overwrite(target, "dptkfile");
    chmod(target.c_str(), 0600);
    check_refused(" is a symbolic link: expected a file");
    unlink(path.c_str());
    REQUIRE(link(target.c_str(), path.c_str()) == 0);
    check_refused(" has 2 hard links: expected a file with one name");
    CHECK(contents(target) == "dptkfile");
}

TEST_CASE("a directory that is not writable is an error that says so") {
    TemporaryDirectory directory;
    const std::string path = directory.path("store");
    REQUIRE(chmod(directory.name().c_str(), 0555) == 0);
    const pid_t child = fork();
    if (child == 0) {  // root may write everywhere, so the child changes its user
        if (geteuid() == 0 && seteuid(65534) != 0) _exit(2);
        const auto create = [&] { static_cast<void>(dptk::FileStore::create(path)); };
        _exit(contains(message_of<dptk::ArgumentError>(create), "is not writable (Permission denied)") ? 0
                                                                                                       : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    chmod(directory.name().c_str(), 0755);
}
