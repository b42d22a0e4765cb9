#include "support/verb_suite.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace test {

namespace {

using dptk::Collective;
using dptk::ProcessGroup;
using dptk::ReduceOp;
using dptk::Verb;
using dptk::detail::Complex;
using dptk::detail::SixteenBitFloat;

struct Particle {
    double mass;
    std::array<std::int16_t, 5> place;

    friend bool operator==(const Particle&, const Particle&) = default;
};

/// Elements whose address is `offset` bytes (in OtherMemory: elements) after an aligned address.
template <class T>
class Elements {
  public:
    Elements(std::size_t count, std::size_t offset, OtherMemory* other)
        : memory_(count * sizeof(T) + offset), offset_(offset), count_(count), other_(other) {
        if (other_ != nullptr) there_ = other_->allocate((count + offset) * sizeof(T));
    }

    /// Returns an element of the host's copy.
    [[nodiscard]] T operator[](std::size_t i) const {
        return dptk::detail::load<T>(memory_.data() + offset_, i);
    }
    void set(std::size_t i, const T& value) { dptk::detail::store<T>(memory_.data() + offset_, i, value); }
    [[nodiscard]] std::size_t size() const { return count_; }

    /// Returns the buffer for a call.
    [[nodiscard]] dptk::Buffer buffer() {
        const dptk::Device device = other_ == nullptr ? dptk::Device{} : other_->device();
        return {place(), count_, dptk::dtype_of<T>, device, sizeof(T)};
    }

    [[nodiscard]] dptk::Buffer part(int rank, std::size_t count) {
        return buffer().slice(static_cast<std::size_t>(rank) * count, count);
    }

    /// Copies the host's copy to the buffer before a call; read() copies it back after the call.
    void write() {
        if (other_ != nullptr) other_->write(place(), memory_.data() + offset_, count_ * sizeof(T));
    }
    void read() {
        if (other_ != nullptr) other_->read(memory_.data() + offset_, place(), count_ * sizeof(T));
    }

  private:
    [[nodiscard]] std::byte* place() {
        return other_ == nullptr ? memory_.data() + offset_
                                 : static_cast<std::byte*>(there_.get()) + offset_ * sizeof(T);
    }

    std::vector<std::byte> memory_;
    std::size_t offset_;
    std::size_t count_;
    OtherMemory* other_;
    std::shared_ptr<void> there_;
};

/// Returns element `i` of rank `rank`'s input. The values are small, so that sums and products are exact. The
/// exception are the 16-bit formats, in which a sum that is rounded after each addition differs from a sum
/// that is rounded once.
template <class T>
T given(int rank, std::size_t i) {
    const auto number = static_cast<std::size_t>(rank) * 2 + i;
    if constexpr (std::same_as<T, Particle>) {
        return {0.5 * static_cast<double>(number),
                {static_cast<std::int16_t>(rank), static_cast<std::int16_t>(i)}};
    } else if constexpr (std::same_as<T, bool>) {
        return number % 3 == 0;
    } else if constexpr (SixteenBitFloat<T>) {
        return T(rank == 0 && i % 2 == 0 ? 2048.0F : 1.0F + static_cast<float>(number % 3) / 8);
    } else if constexpr (Complex<T>) {
        using Part = typename T::value_type;
        return {static_cast<Part>(1 + number % 3), static_cast<Part>(number % 2)};
    } else {
        return static_cast<T>(1 + number % 3);
    }
}

/// Combines the elements of all ranks, in rank order, and rounds once.
template <class T>
T combined(ReduceOp op, int ranks, std::size_t i) {
    using Wide = std::conditional_t<SixteenBitFloat<T>, float, T>;
    auto result = static_cast<Wide>(given<T>(0, i));
    for (int rank = 1; rank < ranks; ++rank) {
        const auto next = static_cast<Wide>(given<T>(rank, i));
        if constexpr (!Complex<T>) {
            if (op == ReduceOp::min) result = std::min(result, next);
            if (op == ReduceOp::max) result = std::max(result, next);
        }
        if constexpr (!std::same_as<T, bool>) {
            if (op == ReduceOp::sum || op == ReduceOp::avg) result = static_cast<Wide>(result + next);
            if (op == ReduceOp::product) result = static_cast<Wide>(result * next);
        }
        if constexpr (std::integral<T>) {
            if (op == ReduceOp::band) result = static_cast<Wide>(result & next);
            if (op == ReduceOp::bor) result = static_cast<Wide>(result | next);
            if (op == ReduceOp::bxor) result = static_cast<Wide>(result ^ next);
        }
    }
    if constexpr (std::floating_point<Wide>) {
        if (op == ReduceOp::avg) result /= static_cast<Wide>(ranks);
    } else if constexpr (Complex<T>) {
        if (op == ReduceOp::avg) result /= static_cast<typename T::value_type>(ranks);
    }
    return static_cast<T>(result);
}

enum class Mode { blocking, async };

void carry_out(ProcessGroup& group, const Collective& call, Mode mode) {
    if (mode == Mode::blocking) {
        group.engine().run(call);
    } else {
        group.engine().start(call, nullptr).wait();
    }
}

/// The parameters of a call.
struct Case {
    std::size_t count;
    std::size_t offset;
    Mode mode;
};

constexpr std::array cases = {Case{0, 0, Mode::blocking}, Case{1, 0, Mode::async}, Case{7, 1, Mode::blocking},
                              Case{1000, 1, Mode::async}, Case{5001, 0, Mode::blocking}};

template <class T>
class Suite {
  public:
    Suite(ProcessGroup& group, const VerbSuiteOptions& options, const Case& how)
        : group_(group),
          options_(options),
          how_(how),
          rank_(group.rank()),
          size_(group.size()),
          count_(how.count) {}

    void check_all_reduce(ReduceOp op) {
        Elements<T> data = own(count_);
        Elements<T> apart = zeros(count_);
        const Elements<T> before = data;
        run({.verb = Verb::all_reduce, .input = data.buffer(), .output = apart.buffer(), .reduction = op},
            data, apart);
        expect(count_wrong(data, [&](std::size_t i) { return before[i]; }) == 0, op, "all_reduce's input");
        run({.verb = Verb::all_reduce, .input = data.buffer(), .output = data.buffer(), .reduction = op},
            data);
        for (const Elements<T>& result : {data, apart})
            expect(count_wrong(result, sum(op)) == 0, op, "all_reduce");
    }

    void check_reduce(ReduceOp op) {
        for (int root = 0; root < size_; ++root) {
            Elements<T> data = own(count_);
            Elements<T> apart = zeros(rank_ == root ? count_ : 0);
            const Elements<T> before = data;
            run({.verb = Verb::reduce,
                 .input = data.buffer(),
                 .output = apart.buffer(),
                 .reduction = op,
                 .root = root},
                data, apart);
            expect(count_wrong(data, [&](std::size_t i) { return before[i]; }) == 0, op, "reduce's input");
            if (rank_ == root) expect(count_wrong(apart, sum(op)) == 0, op, "reduce");
            run({.verb = Verb::reduce,
                 .input = data.buffer(),
                 .output = data.buffer(),
                 .reduction = op,
                 .root = root},
                data);
            const auto expected = [&](std::size_t i) { return rank_ == root ? sum(op)(i) : before[i]; };
            expect(count_wrong(data, expected) == 0, op, "reduce in place");
        }
    }

    void check_reduce_scatter(ReduceOp op) {
        Elements<T> data = own(count_ * ranks());
        const Elements<T> before = data;
        Elements<T> apart = zeros(count_);
        const std::size_t first = static_cast<std::size_t>(rank_) * count_;
        const auto expected = [&](std::size_t i) { return sum(op)(first + i); };
        run({.verb = Verb::reduce_scatter, .input = data.buffer(), .output = apart.buffer(), .reduction = op},
            data, apart);
        expect(count_wrong(apart, expected) == 0, op, "reduce_scatter");
        expect(count_wrong(data, [&](std::size_t i) { return before[i]; }) == 0, op,
               "reduce_scatter's input");
        run({.verb = Verb::reduce_scatter,
             .input = data.buffer(),
             .output = data.part(rank_, count_),
             .reduction = op},
            data);
        expect(count_wrong(data, expected, first, count_) == 0, op, "reduce_scatter in place");
    }

    void check_broadcast() {
        for (int root = 0; root < size_; ++root) {
            Elements<T> data = own(count_);
            run({.verb = Verb::broadcast, .input = data.buffer(), .output = data.buffer(), .root = root},
                data);
            expect(count_wrong(data, [&](std::size_t i) { return given<T>(root, i); }) == 0, "broadcast");
        }
    }

    void check_gather() {
        Elements<T> data = own(count_);
        Elements<T> all = zeros(count_ * ranks());
        const auto everybodys = [&](std::size_t i) {
            return given<T>(static_cast<int>(i / count_), i % count_);
        };
        run({.verb = Verb::all_gather, .input = data.buffer(), .output = all.buffer()}, data, all);
        expect(count_wrong(all, everybodys) == 0, "all_gather");
        Elements<T> in_place = with_own_part();
        run({.verb = Verb::all_gather, .input = in_place.part(rank_, count_), .output = in_place.buffer()},
            in_place);
        expect(count_wrong(in_place, everybodys) == 0, "all_gather in place");
        for (int root = 0; root < size_; ++root) {
            Elements<T> roots = zeros(rank_ == root ? count_ * ranks() : 0);
            run({.verb = Verb::gather, .input = data.buffer(), .output = roots.buffer(), .root = root}, data,
                roots);
            expect(count_wrong(roots, everybodys) == 0, "gather");
            if (rank_ == root) roots = with_own_part();
            run({.verb = Verb::gather,
                 .input = rank_ == root ? roots.part(rank_, count_) : data.buffer(),
                 .output = roots.buffer(),
                 .root = root},
                roots, data);
            expect(count_wrong(roots, everybodys) == 0, "gather in place");
        }
    }

    void check_all_gather_uneven() {
        std::vector<std::size_t> counts;
        std::vector<T> expected;
        for (int rank = 0; rank < size_; ++rank) {
            counts.push_back(rank % 2 == 0 ? count_ + static_cast<std::size_t>(rank) : count_ / 3);
            for (std::size_t i = 0; i < counts.back(); ++i) expected.push_back(given<T>(rank, i));
        }
        Elements<T> data = own(counts[static_cast<std::size_t>(rank_)]);
        Elements<T> all = zeros(expected.size());
        run({.verb = Verb::all_gather_uneven,
             .input = data.buffer(),
             .output = all.buffer(),
             .counts = counts},
            data, all);
        expect(count_wrong(all, [&](std::size_t i) { return expected[i]; }) == 0, "all_gather_uneven");
    }

    void check_scatter() {
        for (int root = 0; root < size_; ++root) {
            Elements<T> all = rank_ == root ? own(count_ * ranks()) : zeros(0);
            Elements<T> part = zeros(count_);
            const std::size_t first = static_cast<std::size_t>(rank_) * count_;
            const auto expected = [&](std::size_t i) { return given<T>(root, first + i); };
            run({.verb = Verb::scatter, .input = all.buffer(), .output = part.buffer(), .root = root}, all,
                part);
            expect(count_wrong(part, expected) == 0, "scatter");
            run({.verb = Verb::scatter,
                 .input = all.buffer(),
                 .output = rank_ == root ? all.part(rank_, count_) : part.buffer(),
                 .root = root},
                all, part);
            expect(count_wrong(rank_ == root ? all : part, expected, rank_ == root ? first : 0, count_) == 0,
                   "scatter in place");
        }
    }

    void check_all_to_all() {
        Elements<T> data = own(count_ * ranks());
        Elements<T> apart = zeros(count_ * ranks());
        const auto expected = [&](std::size_t i) {
            return given<T>(static_cast<int>(i / count_),
                            static_cast<std::size_t>(rank_) * count_ + i % count_);
        };
        run({.verb = Verb::all_to_all, .input = data.buffer(), .output = apart.buffer()}, data, apart);
        expect(count_wrong(apart, expected) == 0, "all_to_all");
        run({.verb = Verb::all_to_all, .input = data.buffer(), .output = data.buffer()}, data);
        expect(count_wrong(data, expected) == 0, "all_to_all in place");
    }

    void check_all_to_all_uneven() {
        // Rank r sends (r + 2 t) % 4 * count_ / 3 elements to rank t: zero from some ranks to some.
        const auto count = [&](int from, int to) {
            return static_cast<std::size_t>((from + 2 * to) % 4) * count_ / 3;
        };
        std::vector<std::size_t> sent, received;
        std::vector<T> expected;
        std::size_t all = 0;
        for (int other = 0; other < size_; ++other) {
            sent.push_back(count(rank_, other));
            received.push_back(count(other, rank_));
            all += sent.back();
            std::size_t first = 0;
            for (int before = 0; before < rank_; ++before) first += count(other, before);
            for (std::size_t i = 0; i < received.back(); ++i) expected.push_back(given<T>(other, first + i));
        }
        Elements<T> data = own(all);
        Elements<T> apart = zeros(expected.size());
        run({.verb = Verb::all_to_all_uneven,
             .input = data.buffer(),
             .output = apart.buffer(),
             .counts = sent,
             .output_counts = received},
            data, apart);
        expect(count_wrong(apart, [&](std::size_t i) { return expected[i]; }) == 0, "all_to_all_uneven");
    }

  private:
    [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(size_); }

    [[nodiscard]] Elements<T> zeros(std::size_t count) const { return {count, how_.offset, options_.memory}; }

    [[nodiscard]] Elements<T> own(std::size_t count) const {
        Elements<T> elements = zeros(count);
        for (std::size_t i = 0; i < count; ++i) elements.set(i, given<T>(rank_, i));
        return elements;
    }

    [[nodiscard]] Elements<T> with_own_part() const {
        Elements<T> elements = zeros(count_ * ranks());
        for (std::size_t i = 0; i < count_; ++i)
            elements.set(static_cast<std::size_t>(rank_) * count_ + i, given<T>(rank_, i));
        return elements;
    }

    /// Returns how many of `count` elements from `first` on differ from expected(i).
    template <class Expected>
    [[nodiscard]] std::size_t count_wrong(const Elements<T>& found, Expected&& expected,
                                          std::size_t first = 0,
                                          std::size_t count = static_cast<std::size_t>(-1)) const {
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < std::min(count, found.size()); ++i)
            wrong += !is_right(found[first + i], expected(i));
        return wrong;
    }

    [[nodiscard]] bool is_right(const T& found, const T& expected) const {
        if constexpr (SixteenBitFloat<T>) {
            if (options_.rounding == Rounding::on_the_way) {
                const float wanted = static_cast<float>(expected);
                const float unit = std::same_as<T, dptk::bfloat16> ? 0x1p-7F : 0x1p-10F;
                return std::abs(static_cast<float>(found) - wanted) <=
                       unit * static_cast<float>(size_) * std::abs(wanted);
            }
        }
        return found == expected;
    }

    [[nodiscard]] auto sum(ReduceOp op) const {
        return [op, size = size_](std::size_t i) { return combined<T>(op, size, i); };
    }

    /// Runs the call. `elements` are all objects whose buffers the call uses.
    template <class... E>
    void run(Collective call, E&... elements) {
        if (options_.memory != nullptr) call.stream = options_.memory->stream();
        (elements.write(), ...);
        carry_out(group_, call, how_.mode);
        (elements.read(), ...);
    }

    void expect(bool right, ReduceOp op, const std::string& what) const {
        CHECK_MESSAGE(right, what, " of ", count_, " ", dptk::dtype_name(dptk::dtype_of<T>), " by ",
                      dptk::reduce_op_name(op), " on rank ", rank_, " of ", size_);
    }
    void expect(bool right, const std::string& what) const {
        CHECK_MESSAGE(right, what, " of ", count_, " ", dptk::dtype_name(dptk::dtype_of<T>), " on rank ",
                      rank_, " of ", size_);
    }

    ProcessGroup& group_;
    VerbSuiteOptions options_;
    Case how_;
    int rank_;
    int size_;
    std::size_t count_;
};

/// Calls `action` for each dtype. To save time it selects only a few dtypes for more than four ranks, and if
/// DPTK_TEST_DTYPES=few, which tests set that repeat the same arithmetic over other transports.
template <class Action>
void with_each_dtype(const ProcessGroup& group, Action&& action) {
    using enum dptk::DType;
    const char* setting = std::getenv("DPTK_TEST_DTYPES");
    const bool all = group.size() <= 4 && (setting == nullptr || std::string_view(setting) != "few");
    for (int i = 0; i < static_cast<int>(opaque); ++i) {
        const auto dtype = static_cast<dptk::DType>(i);
        if (all || dtype == i16 || dtype == bf16 || dtype == f64) dptk::visit_dtype(dtype, action);
    }
}

/// Host memory that the group has allocated.
class AllocatedMemory final : public OtherMemory {
  public:
    explicit AllocatedMemory(ProcessGroup& group) : all_(group.allocate<std::byte>(bytes)) {}

    [[nodiscard]] dptk::Device device() const override { return {}; }
    [[nodiscard]] dptk::StreamRef stream() const override { return {}; }

    /// Returns consecutive pieces of the memory. It starts again from the first piece when the memory is used
    /// up; by then that piece is no longer used.
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t wanted) override {
        const std::size_t rounded = (wanted + 63) / 64 * 64;
        REQUIRE(rounded <= bytes / 4);
        if (next_ + rounded > bytes) next_ = 0;
        std::byte* const piece = all_.data() + next_;
        next_ += rounded;
        return {all_.memory(), piece};
    }

    void write(void* to, const void* from, std::size_t count) override { copy(to, from, count); }
    void read(void* to, const void* from, std::size_t count) override { copy(to, from, count); }

  private:
    static constexpr std::size_t bytes = std::size_t{64} << 20;

    static void copy(void* to, const void* from, std::size_t count) {
        if (count != 0) std::memcpy(to, from, count);
    }

    dptk::Allocation<std::byte> all_;
    std::size_t next_ = 0;
};

constexpr std::array operations = {ReduceOp::sum, ReduceOp::avg,  ReduceOp::product, ReduceOp::min,
                                   ReduceOp::max, ReduceOp::band, ReduceOp::bor,     ReduceOp::bxor};

}  // namespace

void check_reductions(ProcessGroup& group) {
    check_reductions_on(group, {});
}

void check_reductions_on(ProcessGroup& group, const VerbSuiteOptions& options) {
    with_each_dtype(group, [&](auto zero) {
        using T = decltype(zero);
        for (const ReduceOp op : operations) {
            if (!dptk::is_meaningful(dptk::dtype_of<T>, op)) {
                std::array<T, 8> some{};
                std::array<T, 1> one{};
                CHECK_THROWS_AS(group.all_reduce(some, op), dptk::ArgumentError);
                CHECK_THROWS_AS(group.reduce(some, 0, op), dptk::ArgumentError);
                const auto whole = std::span(some).first(static_cast<std::size_t>(group.size()));
                CHECK_THROWS_AS(group.reduce_scatter(whole, one, op), dptk::ArgumentError);
                continue;
            }
            for (const Case& how : cases) {
                Suite<T> suite(group, options, how);
                suite.check_all_reduce(op);
                suite.check_reduce(op);
                suite.check_reduce_scatter(op);
            }
        }
    });
}

void check_nan(ProcessGroup& group) {
    const auto check = [&]<class T>(T) {
        constexpr std::size_t count = 37;
        const auto is_nan = [](T element) { return std::isnan(static_cast<float>(element)); };
        for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
            for (int rank = 0; rank < group.size(); ++rank) {
                for (const std::size_t place : {0U, 1U, 5U, 16U, 35U, 36U}) {
                    const auto own = [&](std::size_t size) {
                        std::vector<T> elements(size, T(1.0F));
                        if (group.rank() == rank) elements[place] = T(std::nanf(""));
                        return elements;
                    };
                    const auto is_right = [&](const std::vector<T>& found, std::size_t first) {
                        for (std::size_t i = 0; i < found.size(); ++i)
                            if (is_nan(found[i]) != (first + i == place)) return false;
                        return true;
                    };
                    std::vector<T> all = own(count);
                    group.all_reduce(all, op);
                    CHECK(is_right(all, 0));
                    std::vector<T> started = own(count);
                    group.all_reduce_async(started, op).wait();
                    CHECK(is_right(started, 0));
                    const int root = group.size() - 1;
                    std::vector<T> reduced = own(count);
                    group.reduce(reduced, root, op);
                    if (group.rank() == root) CHECK(is_right(reduced, 0));
                    std::vector<T> part(count);
                    const auto ranks = static_cast<std::size_t>(group.size());
                    group.reduce_scatter(own(count * ranks), part, op);
                    CHECK(is_right(part, static_cast<std::size_t>(group.rank()) * count));
                }
            }
        }
    };
    check(float{});
    check(double{});
    check(dptk::float16{});
    check(dptk::bfloat16{});
}

void check_moves(ProcessGroup& group) {
    check_moves_on(group, {});
}

void check_moves_on(ProcessGroup& group, const VerbSuiteOptions& options) {
    const auto check = [&]<class T>(T) {
        for (const Case& how : cases) {
            Suite<T> suite(group, options, how);
            suite.check_broadcast();
            suite.check_gather();
            suite.check_all_gather_uneven();
            suite.check_scatter();
            suite.check_all_to_all();
            suite.check_all_to_all_uneven();
        }
    };
    with_each_dtype(group, check);
    check(Particle{});
}

void check_allocated_memory(ProcessGroup& group) {
    AllocatedMemory memory(group);
    const VerbSuiteOptions allocated{.memory = &memory};
    const VerbSuiteOptions own{};
    const VerbSuiteOptions& mixed = group.rank() % 2 == 0 ? own : allocated;
    check_reductions_on(group, allocated);
    check_moves_on(group, allocated);
    check_weighted_sums_on(group, allocated);
    const auto check_many_elements = [&]<class T>(T, ReduceOp op) {
        for (const VerbSuiteOptions& options : {allocated, own, mixed}) {
            Suite<T> suite(group, options, {70'001, 1, Mode::blocking});
            suite.check_all_reduce(op);
            suite.check_reduce_scatter(op);
            suite.check_broadcast();
            suite.check_gather();
        }
    };
    check_many_elements(float{}, ReduceOp::avg);
    check_many_elements(dptk::float16{}, ReduceOp::sum);
    check_many_elements(std::int8_t{}, ReduceOp::max);
    check_many_elements(std::complex<float>{}, ReduceOp::product);
}

void check_user_functions(ProcessGroup& group) {
    const int size = group.size();
    // The operation is associative but not commutative: it returns the last value and the number of values.
    struct Last {
        int value;
        int count;
    };
    const auto last = [](const Last& a, const Last& b) { return Last{b.value, a.count + b.count}; };
    std::vector<Last> data(1001, Last{group.rank(), 1});
    group.all_reduce(data, last);
    CHECK(std::ranges::all_of(data, [&](const Last& l) { return l.value == size - 1 && l.count == size; }));
    for (int root = 0; root < size; ++root) {
        std::vector<Last> mine(3, Last{group.rank(), 1});
        group.reduce(mine, root, last);
        CHECK(mine[2].value == (group.rank() == root ? size - 1 : group.rank()));
        CHECK(mine[2].count == (group.rank() == root ? size : 1));
    }
    std::vector<Last> parts(2 * static_cast<std::size_t>(size), Last{group.rank(), 1});
    std::vector<Last> own(2);
    group.reduce_scatter_async(parts, own, last).wait();
    CHECK(own[1].value == size - 1);
    CHECK(own[1].count == size);
    // A user function on a built-in dtype.
    const float largest = group.all_reduce_value(static_cast<float>(-group.rank()) - 1, [](float a, float b) {
        return std::abs(a) < std::abs(b) ? b : a;
    });
    CHECK(largest == static_cast<float>(-size));
}

void check_messages(ProcessGroup& group) {
    const int rank = group.rank();
    for (int from = 0; from < group.size(); ++from) {
        for (int to = 0; to < group.size(); ++to) {
            if (from == to) continue;
            for (const std::size_t count : {0U, 1U, 5000U}) {
                std::vector<std::int32_t> data(count, rank == from ? 100 * from + to : -1);
                if (rank == from) group.send(data, to, 3);
                if (rank != to) continue;
                CHECK(group.recv(data, from, 3) == from);
                CHECK(std::ranges::all_of(data, [&](int value) { return value == 100 * from + to; }));
            }
        }
    }
    std::vector<int> one(1);
    CHECK_THROWS_AS(group.send(one, group.size()), dptk::ArgumentError);
    CHECK_THROWS_AS(group.send(one, rank), dptk::ArgumentError);
    CHECK_THROWS_AS(group.recv(one, -2), dptk::ArgumentError);
    if (group.size() > 1)
        CHECK_THROWS_AS(group.send(one, rank == 0 ? 1 : 0, dptk::max_tag + 1), dptk::ArgumentError);
    if (group.size() > 1) CHECK_THROWS_AS(group.send(one, rank == 0 ? 1 : 0, -1), dptk::ArgumentError);
}

void check_messages_in_background(ProcessGroup& group) {
    const int rank = group.rank();
    const int size = group.size();
    std::vector<int> others;
    for (int other = 0; other < size; ++other) {
        if (other != rank) others.push_back(other);
    }
    const auto content = [](int from, int to, int tag) { return 10'000 * from + 100 * to + tag; };

    // All ranks send to all ranks at once, and receive in another order than they send.
    std::vector<std::vector<int>> sent;
    std::vector<std::vector<int>> received;
    std::vector<dptk::Work> works;
    std::vector<int> expected;
    for (const std::size_t count : {1U, 20'000U}) {
        for (const int tag : {5, 6, 7}) {
            for (const int other : others) sent.emplace_back(count, content(rank, other, tag));
        }
        for (const int tag : {7, 6, 5}) {
            for (const int other : others) {
                received.emplace_back(count, -1);
                expected.push_back(content(other, rank, tag));
            }
        }
        std::size_t next_sent = sent.size() - 3 * others.size();
        std::size_t next_received = received.size() - 3 * others.size();
        for (const int tag : {5, 6, 7}) {
            for (const int other : others) works.push_back(group.send_async(sent[next_sent++], other, tag));
        }
        for (const int tag : {7, 6, 5}) {
            for (const int other : others)
                works.push_back(group.recv_async(received[next_received++], other, tag));
        }
        std::ranges::reverse(works);
        for (dptk::Work& work : works) work.wait();
        works.clear();
        for (std::size_t i = 0; i < received.size(); ++i)
            CHECK(received[i] == std::vector<int>(received[i].size(), expected[i]));
        sent.clear();
        received.clear();
        expected.clear();
    }

    // Messages with one tag arrive in the order in which they were sent, rank 0 receives from any rank, and a
    // collective is pending meanwhile.
    std::vector<int> sum(1000, 1);
    dptk::Work background;
    if (rank == 0) background = group.all_reduce_async(sum);
    if (rank == 0) {
        int from_all = 0;
        for (std::size_t i = 0; i < 2 * others.size(); ++i) {
            int value = 0;
            const int from = group.recv(std::span(&value, 1));
            CHECK(value / 10 == from);
            from_all += value;
        }
        int expected_sum = 0;
        for (const int other : others) expected_sum += 2 * 10 * other + 1;
        CHECK(from_all == expected_sum);
        for (const int other : others) {
            std::array<int, 3> values{};
            std::array<dptk::Work, 3> in_order;
            for (std::size_t i = 0; i < 3; ++i)
                in_order[i] = group.recv_async(std::span(values).subspan(i, 1), other, 9);
            for (dptk::Work& work : in_order) CHECK(work.source_rank() == other);
            CHECK(values == std::array{other, other + 1, other + 2});
        }
    } else {
        for (const int i : {0, 1}) group.send(std::array{10 * rank + i}, 0);
        const std::array values = {rank, rank + 1, rank + 2};
        for (std::size_t i = 0; i < 3; ++i) group.send_async(std::span(values).subspan(i, 1), 0, 9).detach();
        background = group.all_reduce_async(sum);
        background.wait();
        group.barrier();  // completes the messages whose Work was dropped
    }
    if (rank == 0) {
        background.wait();
        group.barrier();
    }
    CHECK(sum == std::vector<int>(1000, size));
}

void check_many(ProcessGroup& group) {
    const int size = group.size();
    std::vector<std::vector<float>> data;
    std::vector<dptk::Work> works;
    for (int i = 0; i < 16; ++i) data.emplace_back(1000 * (i % 3), static_cast<float>(i));
    for (auto& each : data) works.push_back(group.all_reduce_async(each));
    std::ranges::reverse(works);
    for (dptk::Work& work : works) work.wait();
    for (int i = 0; i < 16; ++i) {
        const auto right = [&](float value) { return value == static_cast<float>(i * size); };
        CHECK(std::ranges::all_of(data[static_cast<std::size_t>(i)], right));
    }

    std::vector<std::int64_t> dropped(100, 1);
    std::vector<std::int64_t> parts(static_cast<std::size_t>(size), group.rank());
    std::vector<std::int64_t> swapped(parts.size());
    group.all_reduce_async(dropped).detach();
    group.all_to_all_async(parts, swapped).detach();
    group.barrier();
    CHECK(dropped == std::vector<std::int64_t>(100, size));
    for (int i = 0; i < size; ++i) CHECK(swapped[static_cast<std::size_t>(i)] == i);

    int wrong = 0;
    for (int i = 0; i < 1000; ++i) wrong += group.all_reduce_value(i) != i * size;
    CHECK(wrong == 0);
}

void check_weighted_sums(ProcessGroup& group) {
    check_weighted_sums_on(group, {});
}

void check_weighted_sums_on(ProcessGroup& group, const VerbSuiteOptions& options) {
    const auto check = [&]<class T>(T) {
        Elements<T> data(5001, 0, options.memory);
        for (std::size_t i = 0; i < data.size(); ++i) data.set(i, given<T>(group.rank(), i));
        const Elements<T> before = data;
        Elements<T> apart(data.size(), 0, options.memory);
        const auto weight = [](int rank) { return 0.25 * (rank + 1); };
        Collective call{.verb = Verb::all_reduce,
                        .input = data.buffer(),
                        .output = apart.buffer(),
                        .reduction = dptk::Reduction(dptk::WeightedSum{weight(group.rank())})};
        if (options.memory != nullptr) call.stream = options.memory->stream();
        data.write();
        apart.write();
        carry_out(group, call, Mode::blocking);
        data.read();
        apart.read();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < data.size(); ++i) {
            double sum = 0;
            for (int rank = 0; rank < group.size(); ++rank)
                sum += weight(rank) * static_cast<double>(static_cast<float>(given<T>(rank, i)));
            const double found = static_cast<double>(static_cast<float>(apart[i]));
            const double unit = SixteenBitFloat<T> ? 0x1p-7 : 0x1p-22;
            wrong += std::abs(found - sum) > unit * group.size() * std::abs(sum);
            wrong += !(data[i] == before[i]);
        }
        CHECK_MESSAGE(wrong == 0, "weighted sum of ", dptk::dtype_name(dptk::dtype_of<T>), " on rank ",
                      group.rank(), " of ", group.size());
    };
    check(float{});
    check(double{});
    check(dptk::float16{});
    check(dptk::bfloat16{});
    std::vector<int> whole(2);
    CHECK_THROWS_AS(group.all_reduce(whole, dptk::WeightedSum{0.5}), dptk::ArgumentError);
}

void check_verbs(ProcessGroup& group) {
    check_verbs_on(group, {});
}

void check_verbs_on(ProcessGroup& group, const VerbSuiteOptions& options) {
    check_reductions_on(group, options);
    check_weighted_sums_on(group, options);
    if (options.rounding == Rounding::once) check_nan(group);  // otherwise NCCL's arithmetic decides
    check_moves_on(group, options);
    check_user_functions(group);
    check_messages(group);
    check_many(group);
}

}  // namespace test
