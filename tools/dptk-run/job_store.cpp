#include "job_store.hpp"

#include <dptk/control/elastic/membership_keys.hpp>
#include <dptk/core/detail/parse.hpp>
#include <dptk/core/detail/text.hpp>
#include <dptk/core/error.hpp>

#include <utility>

namespace run {

using dptk::detail::MembershipKeys;

JobStore::JobStore(std::shared_ptr<dptk::Store> served, dptk::TcpStoreAddress address)
    : address_(std::move(address)), store_(std::move(served)) {}

JobStore::JobStore(dptk::TcpStoreAddress address, const dptk::TcpStoreOptions& options,
                   std::chrono::milliseconds reply_timeout)
    : address_(std::move(address)), presence_(dptk::TcpStore::connect(address_, options)) {
    const auto store = dptk::TcpStore::connect(address_, options);
    store->set_reply_timeout(reply_timeout);
    store_ = store;
}

template <class Call>
void JobStore::with_store(Call&& call) {
    if (!lost_.empty()) return;
    try {
        call();
    } catch (const dptk::Error& error) {
        lost_ = error.what();
    }
}

void JobStore::lose(const std::string& why) {
    if (lost_.empty()) lost_ = why;
}

std::int64_t JobStore::arrive() {
    arrival_ = store_->add(MembershipKeys::launchers, 1);
    if (presence_) presence_->set_will_of_process(MembershipKeys::launcher_ended(arrival_), "ended");
    return arrival_;
}

void JobStore::note_members(const std::string& numbers) {
    set(MembershipKeys::members_of(arrival_), numbers);
}

void JobStore::note_end(dptk::detail::MemberId member, std::string_view how, std::string_view vote) {
    if (!vote.empty()) with_store([&] { store_->compare_and_set(MembershipKeys::vote(member), "", vote); });
    with_store([&] { store_->compare_and_set(MembershipKeys::ended(member), "", how); });
}

std::int64_t JobStore::add(std::string_view key, std::int64_t amount) {
    std::int64_t sum = 0;
    with_store([&] { sum = store_->add(key, amount); });
    return sum;
}

void JobStore::set(std::string_view key, std::string_view value) {
    with_store([&] { store_->set(key, value); });
}

std::string JobStore::set_first(std::string_view key, std::string_view value) {
    std::string found;
    with_store([&] { found = store_->compare_and_set(key, "", value); });
    return found;
}

void JobStore::erase(std::string_view key) {
    with_store([&] { store_->erase(key); });
}

std::optional<std::string> JobStore::find(std::string_view key) {
    std::optional<std::string> found;
    with_store([&] { found = store_->find(key); });
    return found;
}

std::int64_t JobStore::latest() {
    return dptk::detail::number_of_generation(find(MembershipKeys::latest));
}

bool JobStore::may_run(std::int64_t launcher) {
    if (find(MembershipKeys::launcher_ended(launcher))) return false;
    const std::string members = find(MembershipKeys::members_of(launcher)).value_or("");
    for (std::string_view left = members; !left.empty();) {
        dptk::detail::MemberId id = 0;
        if (!dptk::detail::parse_number(dptk::detail::next_word(left), id)) continue;
        if (!find(MembershipKeys::ended(id)) && !find(MembershipKeys::lost(id))) return true;
    }
    return members.empty();
}

}  // namespace run
