/// load_weights() and save_weights(): the values of a network and its buffers, by the names that PyTorch's
/// state_dict() has, in safetensors files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/weights/safetensors.hpp"
#include "dptk/weights/safetensors_writer.hpp"

namespace DPTK_NAMESPACE {

/// What load_weights() has done with each tensor.
struct LoadedWeights {
    std::vector<std::string> loaded;       ///< The parameters and buffers that have new values.
    std::vector<std::string> missing;      ///< Those that the file does not have.
    std::vector<std::string> other_shape;  ///< Those that have another shape in the file.
    std::vector<std::string> other_type;   ///< Those whose elements in the file cannot be converted.
    std::vector<std::string> unused;       ///< The file's tensors whose name is no parameter or buffer.

    /// Returns whether all were loaded, and each tensor used.
    [[nodiscard]] bool is_complete() const noexcept {
        return missing.empty() && other_shape.empty() && other_type.empty() && unused.empty();
    }

    /// Returns a text such as "loaded 8 tensors; not in the file: fc.bias; unused: head.weight".
    [[nodiscard]] std::string describe() const;
};

/// What load_weights() does if names, shapes or types differ.
enum class Match {
    exact,   ///< Throws, and loads nothing.
    partial  ///< Loads what matches a tensor in name, shape and type, and skips the rest: see the result.
             ///< Throws if nothing matches.
};

namespace detail {

/// A parameter or buffer.
struct NamedShape {
    std::string name;
    Shape shape;
    DType dtype;
};

/// Decides what is loaded. A prefix "module.", which PyTorch's DistributedDataParallel adds, is removed from
/// the file's names. Throws ArgumentError if names, shapes or types differ, unless `match` allows it, and if
/// nothing matches. Returns for each parameter its tensor, or null.
[[nodiscard]] std::vector<const SafetensorsEntry*> match_weights(const SafetensorsFile& file,
                                                                 const std::vector<NamedShape>& parameters,
                                                                 Match match, LoadedWeights& report);

/// Reads a tensor to a buffer of the network, which may be in device memory.
template <class Net>
void read_buffer(Net& net, const SafetensorsFile& file, const SafetensorsEntry& entry, const Buffer& buffer) {
    if (!buffer.on_device()) return file.read(entry, buffer);
    if constexpr (requires { net.store_buffer(buffer.data, buffer); }) {
        std::vector<std::byte> copy(buffer.bytes());
        file.read(entry, {copy.data(), buffer.count, buffer.dtype});
        net.store_buffer(copy.data(), buffer);
    }
}

/// Returns the parameters, followed by the buffers.
template <class Net>
[[nodiscard]] std::vector<NamedShape> shapes_of(Net& net) {
    std::vector<NamedShape> all;
    net.for_each_parameter([&](const auto& parameter) {
        all.push_back({parameter.name, parameter.shape, dtype_of<typename Net::Scalar>});
    });
    for (const nn::NamedBuffer& buffer : nn::detail::buffers_of_net(net))
        all.push_back({buffer.name, buffer.shape, buffer.data.dtype});
    return all;
}

}  // namespace detail

/// Sets a network's parameters and buffers from a file, whatever the backend's layout. Elements of another
/// floating-point type are converted. A prefix "module." of the file's names is removed. Call it on every
/// rank; it is not collective. Throws ArgumentError, before any value is set, if names, shapes or types
/// differ and `match` is exact, or if no tensor matches; and what SafetensorsFile::read() throws.
template <class Net>
LoadedWeights load_weights(Net& net, const SafetensorsFile& file, Match match = Match::exact) {
    using Scalar = typename Net::Scalar;
    LoadedWeights report;
    const std::vector<const SafetensorsEntry*> entries =
        detail::match_weights(file, detail::shapes_of(net), match, report);
    const std::vector<nn::NamedBuffer> buffers = nn::detail::buffers_of_net(net);
    const std::size_t parameters = entries.size() - buffers.size();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        if (entries[parameters + i] != nullptr)
            detail::read_buffer(net, file, *entries[parameters + i], buffers[i].data);
    }
    for (std::size_t i = 0; i < parameters; ++i) {
        if (entries[i] == nullptr) continue;
        std::vector<Scalar> values(entries[i]->count);
        file.read(*entries[i], {values.data(), values.size(), dtype_of<Scalar>});
        net.set_parameter_values(i, values);
    }
    return report;
}

/// Writes a network's parameters and buffers to a file, row-major, as PyTorch has them, with the file's
/// `metadata`. Call it on one rank; it is not collective. Throws BackendError if the file cannot be written.
template <class Net>
void save_weights(Net& net, const std::filesystem::path& path,
                  const std::map<std::string, std::string>& metadata = {{"format", "pt"}}) {
    using Scalar = typename Net::Scalar;
    std::vector<std::vector<Scalar>> values(net.parameter_count());
    std::vector<SafetensorsTensor> tensors;
    net.for_each_parameter([&](const auto& parameter) {
        const auto own = net.parameter_values(tensors.size());
        std::vector<Scalar>& copy = values[tensors.size()];
        copy.assign(own.begin(), own.end());
        tensors.push_back({parameter.name, parameter.shape, {copy.data(), copy.size(), dtype_of<Scalar>}});
    });
    std::vector<nn::NamedBuffer> buffers = nn::detail::buffers_of_net(net);
    std::vector<std::vector<std::byte>> copies;  // since buffers may be in device memory
    for (nn::NamedBuffer& buffer : buffers) {
        if constexpr (requires(void* copy) { net.fetch_buffer(buffer.data, copy); }) {
            copies.emplace_back(buffer.data.bytes());
            net.fetch_buffer(buffer.data, copies.back().data());
            buffer.data = {copies.back().data(), buffer.data.count, buffer.data.dtype};
        }
        tensors.push_back({std::move(buffer.name), std::move(buffer.shape), buffer.data});
    }
    write_safetensors(path, tensors, metadata);
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/weights/load_weights.ipp"
#endif
