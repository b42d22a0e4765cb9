/// HostDataset, the samples of a dataset in memory that all ranks of a host share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/allocation.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/serializer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/dataset.hpp"
#include "dptk/data/fingerprint.hpp"
#include "dptk/data/image.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// The serialized samples of one host. Rank r of n has the samples r, r + n, r + 2n, ..., in blocks that are
/// laid in shared memory one after the other, so that a rank needs little memory of its own while it reads.
class HostSamples {
  public:
    explicit HostSamples(std::size_t ranks) : ranks_(ranks) {}

    /// Appends this rank's next sample to its current block.
    void add(std::string_view bytes);

    /// Returns whether the current block should be shared before the next sample is added.
    [[nodiscard]] bool is_full() const noexcept;

    /// Lays the current block of each rank in memory. Collective.
    void share(ProcessGroup& host);

    /// Frees the memory of the current block.
    void finish();

    /// Returns the bytes of a sample.
    [[nodiscard]] std::string_view operator[](std::size_t index) const;

    /// Whether the ranks of the host use the same memory.
    [[nodiscard]] bool is_shared() const noexcept { return is_shared_; }

    /// Returns the number of bytes of all blocks.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  private:
    /// Samples of one rank. The block begins with the end of each of its samples.
    struct Block {
        std::size_t last;          // the number of the rank's samples up to the end of this block
        const std::uint8_t* ends;  // unaligned std::uint64_t
        const char* samples;
    };

    void add_block(std::size_t rank, const std::uint8_t* begin, std::size_t samples);

    std::vector<std::vector<Block>> ranks_;
    std::vector<std::uint64_t> own_ends_;  // the current block
    std::string own_samples_;
    std::size_t own_bytes_ = 0;  // of this rank's blocks in memory_
    std::vector<Allocation<std::uint8_t>> memory_;
    std::vector<std::vector<std::uint8_t>> copies_;  // if the ranks cannot share memory
    std::size_t bytes_ = 0;
    bool is_shared_ = false;
};

}  // namespace detail

/// A copy of a dataset that is read once on each host: its ranks read equal parts of it at the same time,
/// into memory that they share. Use it for files that are slow to read or to decode and that fit in memory.
/// The memory is freed with the last rank's copy, and has no name that could be left behind.
///
/// If the group's transport cannot share memory between ranks (threads, or DPTK_SHM=0), each rank gets a copy
/// of all samples.
template <IndexableDataset Dataset>
class HostDataset {
  public:
    /// The type of a sample, which must have a Serializer. A sample is read without references to the
    /// dataset.
    using Sample = std::remove_cvref_t<decltype(sample_of(std::declval<const Dataset&>(), std::size_t{}))>;
    static_assert(Serializable<Sample>,
                  "HostDataset stores samples as bytes: specialize dptk::Serializer for their type "
                  "(comm/serializer.hpp), which must not be a view");

    /// Reads this rank's part of the dataset, and waits for the other ranks. Collective. Throws MismatchError
    /// on all ranks if the datasets' sizes or fingerprints differ, and Error on all ranks, with the index, if
    /// a sample cannot be read on any rank.
    HostDataset(const Dataset& dataset, ProcessGroup& group)
        : HostDataset(dataset, group, group.split_by_host()) {}

    /// Returns the number of samples.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Returns a copy of sample `index`, which must be below size().
    [[nodiscard]] Sample operator[](std::size_t index) const {
        return Serializer<Sample>::from_bytes(samples_[index]);
    }

    /// Returns the fingerprint of the dataset that was read.
    [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }

    /// Returns whether the ranks of this host share the memory.
    [[nodiscard]] bool is_shared() const noexcept { return samples_.is_shared(); }

    /// Returns the size of the memory, in bytes.
    [[nodiscard]] std::size_t bytes() const noexcept { return samples_.bytes(); }

  private:
    HostDataset(const Dataset& dataset, ProcessGroup& group, ProcessGroup host)
        : size_(static_cast<std::size_t>(dataset.size())),
          fingerprint_(on_all_or_none(group, [&] { return fingerprint_of(dataset); })),
          samples_(static_cast<std::size_t>(host.size())) {
        detail::check_equal_tables(group, "datasets",
                                   detail::text("samples ", size_, "\nfingerprint ", fingerprint_));
        auto next = static_cast<std::size_t>(host.rank());
        bool is_read = false;
        while (!is_read) {
            on_all_or_none(group, [&] { read_block(dataset, next, static_cast<std::size_t>(host.size())); });
            samples_.share(host);
            is_read = group.all_reduce_value(std::uint8_t{next >= size_}, ReduceOp::min) != 0;
        }
        samples_.finish();
    }

    [[nodiscard]] static std::uint64_t fingerprint_of(const Dataset& dataset) {
        try {
            return dataset_fingerprint(dataset);
        } catch (const std::exception& error) {
            throw Error(detail::text("HostDataset: the first or the last sample: ", error.what()));
        }
    }

    void read_block(const Dataset& dataset, std::size_t& next, std::size_t ranks) {
        for (; next < size_ && !samples_.is_full(); next += ranks) {
            try {
                samples_.add(Serializer<Sample>::to_bytes(sample_of(dataset, next)));
            } catch (const std::exception& error) {
                throw Error(detail::text("HostDataset: sample ", next, ": ", error.what()));
            }
        }
    }

    std::size_t size_;
    std::uint64_t fingerprint_;
    detail::HostSamples samples_;
};

/// Serializes an image as its width, its height, its channels and its pixels.
template <>
struct Serializer<Image> {
    /// Returns the bytes of the image.
    static std::string to_bytes(const Image& image) {
        return Parts::to_bytes({image.width, image.height, image.channels, image.pixels});
    }

    /// Throws FormatError if the bytes are not those of an image.
    static Image from_bytes(std::string_view bytes) {
        auto [width, height, channels, pixels] = Parts::from_bytes(bytes);
        if (pixels.size() != width * height * channels)
            throw FormatError("expected the bytes of an image, found another number of pixels");
        return {width, height, channels, std::move(pixels)};
    }

  private:
    using Parts = Serializer<std::tuple<std::size_t, std::size_t, std::size_t, std::vector<std::uint8_t>>>;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/host_dataset.ipp"
#endif
