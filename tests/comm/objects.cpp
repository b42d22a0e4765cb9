// Collectives on serialized objects, and serializers that fail.
#include <doctest/doctest.h>
#include <dptk/comm/objects.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "support/agreed_errors.hpp"
#include "support/ranks.hpp"

namespace {

/// Typical settings of a program.
using Settings = std::map<std::string, double>;

/// A trivially copyable type whose Serializer does not copy it bytewise: `secret` is not sent.
struct Account {
    std::int32_t number;
    std::int32_t secret;
};

/// A type that is neither default-constructible nor copyable.
class Token {
  public:
    explicit Token(int value) : value_(value) {}
    Token(Token&&) = default;
    Token& operator=(Token&&) = default;

    [[nodiscard]] int value() const { return value_; }

  private:
    int value_;
};

/// A type whose Serializer fails as `failure` says.
struct Fragile {
    enum class Failure : std::uint8_t { none, to_bytes, from_bytes, argument, strange };

    Failure failure = Failure::none;
};

/// A type without a Serializer.
struct Unknown {
    std::string text;
};

}  // namespace

template <>
struct dptk::Serializer<Settings> {
    static std::string to_bytes(const Settings& settings) {
        std::vector<std::string> lines;
        for (const auto& [key, value] : settings) lines.push_back(key + '=' + std::to_string(value));
        return Serializer<std::vector<std::string>>::to_bytes(lines);
    }

    static Settings from_bytes(std::string_view bytes) {
        Settings settings;
        for (const std::string& line : Serializer<std::vector<std::string>>::from_bytes(bytes))
            settings[line.substr(0, line.find('='))] = std::stod(line.substr(line.find('=') + 1));
        return settings;
    }
};

template <>
struct dptk::Serializer<Account> {
    static std::string to_bytes(const Account& account) { return std::to_string(account.number); }
    static Account from_bytes(std::string_view bytes) { return {std::stoi(std::string(bytes)), 0}; }
};

template <>
struct dptk::Serializer<Token> {
    static std::string to_bytes(const Token& token) {
        return std::string(static_cast<std::size_t>(token.value()), 't');
    }
    static Token from_bytes(std::string_view bytes) { return Token(static_cast<int>(bytes.size())); }
};

template <>
struct dptk::Serializer<Fragile> {
    static std::string to_bytes(const Fragile& fragile) {
        if (fragile.failure == Fragile::Failure::to_bytes) throw std::runtime_error("it broke when packed");
        if (fragile.failure == Fragile::Failure::argument) throw dptk::ArgumentError("it is not to be sent");
        if (fragile.failure == Fragile::Failure::strange) throw 7;
        return {static_cast<char>(fragile.failure)};
    }

    static Fragile from_bytes(std::string_view bytes) {
        const Fragile fragile{static_cast<Fragile::Failure>(bytes.at(0))};
        if (fragile.failure == Fragile::Failure::from_bytes)
            throw std::runtime_error("it broke when unpacked");
        return fragile;
    }
};

namespace {

static_assert(dptk::Serializable<std::vector<std::vector<std::string>>>);
static_assert(!dptk::Serializable<Unknown>);
static_assert(!dptk::Serializable<std::vector<Unknown>>);
static_assert(!dptk::Serializable<int*>);
static_assert(!dptk::Serializable<std::string_view>);
static_assert(!dptk::Serializable<std::span<int>>);

template <class T>
T back_and_forth(const T& object) {
    return dptk::Serializer<T>::from_bytes(dptk::Serializer<T>::to_bytes(object));
}

/// Returns the words of rank `rank`. Each rank has a different number of them; rank 0 has none.
std::vector<std::string> words(int rank) {
    std::vector<std::string> all;
    for (int i = 0; i < rank; ++i)
        all.emplace_back(static_cast<std::size_t>(100 * i), static_cast<char>('a' + rank));
    return all;
}

}  // namespace

TEST_CASE("objects become bytes and again the same objects") {
    CHECK(back_and_forth(std::string("a\0b", 3)) == std::string("a\0b", 3));
    CHECK(back_and_forth(2.5) == 2.5);
    CHECK(back_and_forth(std::vector<std::int16_t>{1, -2, 3}) == std::vector<std::int16_t>{1, -2, 3});
    CHECK(back_and_forth(std::vector<bool>{true, false, true}) == std::vector<bool>{true, false, true});
    CHECK(back_and_forth(std::vector<int>()).empty());
    const std::vector<std::vector<std::vector<double>>> nested = {{}, {{1, 2}, {}, {3}}, {{}}};
    CHECK(back_and_forth(nested) == nested);
    const std::vector<std::string> strings = {"", "one", std::string(1000, 'x')};
    CHECK(back_and_forth(strings) == strings);
    CHECK(back_and_forth(Settings{{"lr", 0.1}, {"momentum", 0.9}}).at("momentum") == 0.9);
}

TEST_CASE("pairs, tuples, arrays, optionals, variants, maps and sets become bytes, nested in each other") {
    CHECK(back_and_forth(std::pair<int, std::string>(3, "three")) == std::pair<int, std::string>(3, "three"));
    CHECK(back_and_forth(std::tuple<>()) == std::tuple<>());
    const std::tuple<char, std::vector<float>, std::pair<bool, double>> tuple = {'x', {1, 2}, {true, 0.5}};
    CHECK(back_and_forth(tuple) == tuple);
    CHECK(back_and_forth(std::array<float, 3>{1, 2, 3}) == std::array<float, 3>{1, 2, 3});
    const std::array<std::string, 2> names = {"", "second"};
    CHECK(back_and_forth(names) == names);
    const std::vector<std::array<float, 2>> points = {{1, 2}, {3, 4}};
    CHECK(back_and_forth(points) == points);
    for (const std::optional<std::string>& text :
         {std::optional<std::string>(), std::optional<std::string>("")})
        CHECK(back_and_forth(text) == text);
    CHECK(back_and_forth(std::optional<int>(7)) == 7);
    using Value = std::variant<std::monostate, bool, double, std::string, std::vector<int>>;
    const std::map<std::string, Value> values = {{"none", {}},
                                                 {"flag", true},
                                                 {"lr", 0.1},
                                                 {"name", std::string("mlp")},
                                                 {"sizes", std::vector{1, 2}}};
    CHECK(back_and_forth(values) == values);
    const std::unordered_map<int, std::map<std::string, std::optional<double>>> maps = {
        {1, {{"a", 0.5}, {"b", std::nullopt}}}, {-2, {}}};
    CHECK(back_and_forth(maps) == maps);
    const std::set<std::string> set = {"", "a", "bc"};
    CHECK(back_and_forth(set) == set);
    CHECK(back_and_forth(std::unordered_set<int>{3, 1}) == std::unordered_set<int>{3, 1});
    CHECK(back_and_forth(std::multimap<int, int>{{1, 2}, {1, 3}}) == std::multimap<int, int>{{1, 2}, {1, 3}});
    CHECK(back_and_forth(std::deque<std::string>{"a", "b"}) == std::deque<std::string>{"a", "b"});
    CHECK(back_and_forth(std::list<int>{1, 2}) == std::list<int>{1, 2});
}

TEST_CASE("a type's own serializer is used inside other types as well") {
    const Account account{7, 1234};
    const auto is_right = [](const Account& arrived) { return arrived.number == 7 && arrived.secret == 0; };
    CHECK(is_right(back_and_forth(std::vector<Account>{account})[0]));
    CHECK(is_right(back_and_forth(std::array<Account, 1>{account})[0]));
    CHECK(is_right(*back_and_forth(std::optional<Account>(account))));
    CHECK(is_right(std::get<Account>(back_and_forth(std::variant<int, Account>(account)))));
    CHECK(is_right(back_and_forth(std::pair<int, Account>(1, account)).second));
    CHECK(back_and_forth(std::pair<Token, int>(Token(3), 4)).first.value() == 3);
}

TEST_CASE("each cut or extended sequence of bytes is a FormatError or another object, never a crash") {
    using Object = std::tuple<std::optional<std::string>, std::variant<int, std::string>,
                              std::map<std::string, std::vector<double>>, std::array<std::string, 2>>;
    const Object object("text", std::string("other"), {{"key", {1, 2}}}, {"a", "b"});
    const std::string bytes = dptk::Serializer<Object>::to_bytes(object);
    for (std::size_t size = 0; size < bytes.size(); ++size)
        CHECK_THROWS_AS(dptk::Serializer<Object>::from_bytes(bytes.substr(0, size)), dptk::FormatError);
    CHECK_THROWS_WITH_AS(dptk::Serializer<Object>::from_bytes(bytes + "x"),
                         "expected no bytes after the last element, got 1", dptk::FormatError);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        std::string changed = bytes;
        changed[i] = static_cast<char>(0x7f);
        try {
            static_cast<void>(dptk::Serializer<Object>::from_bytes(changed));
        } catch (const dptk::FormatError&) {
        }
    }
    using Choice = dptk::Serializer<std::variant<std::string, int>>;
    CHECK_THROWS_WITH_AS(Choice::from_bytes("\x02"), "expected a number below 2, got 2", dptk::FormatError);
    CHECK_THROWS_AS(Choice::from_bytes(""), dptk::FormatError);
}

TEST_CASE("objects are sent from rank to rank, also from any rank, and empty ones") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        using Object = std::map<std::string, std::vector<int>>;
        if (group.size() == 1) return;
        if (group.rank() > 0) {
            group.send_object(Object{{"rank", {group.rank()}}}, 0, 5);
            group.send_object(std::string(), 0);
            return;
        }
        std::vector<int> senders;
        for (int i = 1; i < group.size(); ++i) {
            Object object;
            const int sender = group.recv_object(object, dptk::any_rank, 5);
            CHECK(object.at("rank") == std::vector{sender});
            senders.push_back(sender);
            std::string text = "not empty";
            CHECK(group.recv_object(text, sender) == sender);
            CHECK(text.empty());
        }
        std::ranges::sort(senders);
        CHECK(senders.front() == 1);
        CHECK(senders.back() == group.size() - 1);
    });
}

TEST_CASE("bytes that end too early are a FormatError") {
    const std::string numbers = dptk::Serializer<std::vector<int>>::to_bytes({1, 2});
    const std::string strings = dptk::Serializer<std::vector<std::string>>::to_bytes({"one", "two"});
    using Strings = dptk::Serializer<std::vector<std::string>>;
    CHECK_THROWS_AS(dptk::Serializer<int>::from_bytes("abc"), dptk::FormatError);
    CHECK_THROWS_AS(dptk::Serializer<int>::from_bytes("abcde"), dptk::FormatError);
    CHECK_THROWS_AS(dptk::Serializer<std::vector<int>>::from_bytes(numbers.substr(0, 7)), dptk::FormatError);
    for (std::size_t size = 1; size < strings.size(); ++size) {
        if (size == strings.size() / 2) continue;  // the first string is complete
        CHECK_THROWS_AS(Strings::from_bytes(strings.substr(0, size)), dptk::FormatError);
    }
    CHECK_THROWS_WITH_AS(Strings::from_bytes(strings.substr(0, 10)),
                         "truncated item: expected 3 bytes, got 2", dptk::FormatError);
}

TEST_CASE("broadcast_object sends each root's object to all") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (int root = 0; root < group.size(); ++root) {
            auto mine = words(group.rank());
            group.broadcast_object(mine, root);
            CHECK(mine == words(root));
        }
        Settings settings;
        if (group.rank() == 0) settings = {{"lr", 0.5}};
        group.broadcast_object(settings);
        CHECK(settings == Settings{{"lr", 0.5}});
        Token token(group.rank() + 1);
        group.broadcast_object(token, group.size() - 1);
        CHECK(token.value() == group.size());
    });
}

TEST_CASE("gather_object and all_gather_object bring all ranks' objects in rank order") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<std::vector<std::string>> expected;
        for (int rank = 0; rank < group.size(); ++rank) expected.push_back(words(rank));
        CHECK(group.all_gather_object(words(group.rank())) == expected);
        for (int root = 0; root < group.size(); ++root) {
            const auto gathered = group.gather_object(words(group.rank()), root);
            if (group.rank() == root) CHECK(gathered == expected);
            if (group.rank() != root) CHECK(gathered.empty());
        }
        const std::vector<Token> tokens = group.all_gather_object(Token(group.rank()));
        CHECK(tokens.back().value() == group.size() - 1);
    });
}

TEST_CASE("scatter_object gives each rank its own of the root's objects") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (int root = 0; root < group.size(); ++root) {
            std::vector<std::vector<std::string>> all;
            for (int rank = 0; rank < group.size(); ++rank) all.push_back(words(rank));
            if (group.rank() != root) all.resize(1);  // not used
            CHECK(group.scatter_object(all, root) == words(group.rank()));
        }
        std::vector<bool> flags;
        for (int rank = 0; rank < group.size(); ++rank) flags.push_back(rank % 2 == 1);
        if (group.rank() != 0) flags.clear();
        CHECK(group.scatter_object<bool>(flags) == (group.rank() % 2 == 1));
    });
}

TEST_CASE("objects of megabytes arrive whole") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<std::int64_t> numbers(group.rank() == 0 ? 500000 : 0);
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i * i);
        group.broadcast_object(numbers);
        REQUIRE(numbers.size() == 500000);
        CHECK(numbers.back() == 499999LL * 499999LL);
    });
}

TEST_CASE("an object that cannot be packed on one rank is an error on all") {
    using Failure = Fragile::Failure;
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (int culprit = 0; culprit < group.size(); ++culprit) {
            const auto mine = [&](Failure failure) {
                return Fragile{group.rank() == culprit ? failure : Failure::none};
            };
            const std::string broke = group.size() == 1
                                          ? std::string("it broke when packed")
                                          : dptk::detail::text("rank ", culprit, ": it broke when packed");
            Fragile fragile = mine(Failure::to_bytes);
            CHECK(test::all_throw<dptk::Error>(group, broke,
                                               [&] { group.broadcast_object(fragile, culprit); }));
            CHECK(
                test::all_throw<dptk::Error>(group, broke, [&] { return group.all_gather_object(fragile); }));
            CHECK(
                test::all_throw<dptk::Error>(group, broke, [&] { return group.gather_object(fragile, 0); }));
            std::vector<Fragile> all(static_cast<std::size_t>(group.size()));
            all.back().failure = Failure::to_bytes;
            CHECK(test::all_throw<dptk::Error>(group, broke,
                                               [&] { return group.scatter_object(all, culprit); }));
            CHECK(test::all_throw<dptk::ArgumentError>(group, "it is not to be sent", [&] {
                return group.all_gather_object(mine(Failure::argument));
            }));
            CHECK(test::all_throw<dptk::Error>(
                group, "an exception that is not derived from std::exception",
                [&] { return group.all_gather_object(mine(Failure::strange)); }));
        }
    });
}

TEST_CASE("an object that cannot be unpacked on some ranks is an error on all") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const int size = group.size();
        constexpr std::string_view broke = "it broke when unpacked";
        for (int root = 0; root < size; ++root) {
            const Fragile fragile{group.rank() == root ? Fragile::Failure::from_bytes
                                                       : Fragile::Failure::none};
            CHECK(
                test::all_throw<dptk::Error>(group, broke, [&] { return group.all_gather_object(fragile); }));
            CHECK(test::all_throw<dptk::Error>(group, broke,
                                               [&] { return group.gather_object(fragile, size - 1); }));
            std::vector<Fragile> all(static_cast<std::size_t>(size));
            all.back() = Fragile{Fragile::Failure::from_bytes};
            CHECK(
                test::all_throw<dptk::Error>(group, broke, [&] { return group.scatter_object(all, root); }));
            Fragile mine = fragile;
            if (size == 1) continue;  // the root does not deserialize its own object
            CHECK(test::all_throw<dptk::Error>(group, broke, [&] { group.broadcast_object(mine, root); }));
            CHECK(mine.failure == fragile.failure);
        }
        if (size == 1) return;
        CHECK(test::all_throw<dptk::FormatError>(
            group, "rank 1: expected 4 bytes per object, got 3 bytes in total", [&] {
                std::vector<char> three(3);
                std::vector<std::int32_t> other;
                if (group.rank() == 1) return group.broadcast_object(other);
                group.broadcast_object(three);
            }));
    });
}

TEST_CASE("arguments that make no sense are errors on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const int size = group.size();
        int object = 1;
        for (const int root : {-1, size}) {
            const std::string outside = dptk::detail::text("root ", root, " is outside [0, ", size - 1, "]");
            CHECK(test::all_throw<dptk::ArgumentError>(group, "broadcast_object: " + outside,
                                                       [&] { group.broadcast_object(object, root); }));
            CHECK(test::all_throw<dptk::ArgumentError>(group, "gather_object: " + outside,
                                                       [&] { return group.gather_object(object, root); }));
            CHECK(test::all_throw<dptk::ArgumentError>(group, "scatter_object: " + outside,
                                                       [&] { return group.scatter_object<int>({}, root); }));
        }
        for (int root = 0; root < size; ++root) {
            for (const int count : {0, size - 1, size + 1}) {
                if (count == size) continue;
                const std::vector<int> objects(group.rank() == root ? static_cast<std::size_t>(count) : 9);
                CHECK(test::all_throw<dptk::ArgumentError>(
                    group, dptk::detail::text("expected ", size, " objects, one for each rank, got ", count),
                    [&] { return group.scatter_object(objects, root); }));
            }
        }
        if (size == 1) return;
        const int root = group.rank() == 1 ? 1 : 0;
        CHECK(test::all_throw<dptk::MismatchError>(group, "rank 1 has root 1, but rank 0 has root 0",
                                                   [&] { group.broadcast_object(object, root); }));
    });
}
