// Memory that the objects of calls use again.
#include <doctest/doctest.h>
#include <dptk/comm/detail/block_pool.hpp>

#include <cstddef>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

using dptk::detail::BlockPool;

TEST_CASE("a released block is used again for sizes that fit") {
    BlockPool pool;
    for (const std::size_t bytes : {0U, 1U, 64U, 65U, 4096U}) {
        void* const block = pool.allocate(bytes);
        std::memset(block, 1, bytes);
        pool.release(block, bytes);
        CHECK(pool.allocate(bytes) == block);
        void* const other = pool.allocate(bytes);
        CHECK(other != block);
        for (void* const one : {block, other}) ::operator delete(one);
    }
    void* const small = pool.allocate(64);
    pool.release(small, 64);
    void* const large = pool.allocate(65);
    CHECK(large != small);
    for (void* const one : {pool.allocate(1), large}) ::operator delete(one);
}

TEST_CASE("a block of more than 4 KiB is not kept") {
    BlockPool pool;
    pool.release(pool.allocate(4097), 4097);  // LeakSanitizer would find it
}

TEST_CASE("threads release each other's blocks") {
    std::mutex mutex;
    std::list<std::shared_ptr<int>> made;
    const auto work = [&] {
        for (int i = 0; i < 1000; ++i) {
            std::shared_ptr<int> own = dptk::detail::make_pooled<int>(i);
            const std::lock_guard lock(mutex);
            made.push_back(std::move(own));
            if (made.size() > 3) made.pop_front();
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
    CHECK(*made.back() == 999);
}

TEST_CASE("a forked child has a pool of its own, and releases blocks of its parent") {
    const std::shared_ptr<int> of_parent = dptk::detail::make_pooled<int>(1);
    dptk::detail::BlockPool* const pool = &dptk::detail::block_pool();
    CHECK(test::exit_status_of_child([&] {
              std::shared_ptr<int> own = of_parent;
              own = dptk::detail::make_pooled<int>(2);
              return *own == 2 && &dptk::detail::block_pool() != pool ? 0 : 1;
          }) == 0);
}
